"""infiniop-cy check: it finds nothing on this library, and each planted defect under the property that names it."""
import importlib.metadata
import json
import math
import os
import pathlib
import platform
import subprocess
import sys
from xml.etree import ElementTree

import ml_dtypes
import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided
from planted_defects import NEEDS_GLIBC, NOT_QUICK, PLANTED
from rotation import SAMPLE

import infiniop_cy as iop
import infiniop_cy.__main__
from infiniop_cy import operators
from infiniop_cy.capi import infini_root
from infiniop_cy.capi.client import spellings
from infiniop_cy.check import cli, exhaustive, plot, runner, session
from infiniop_cy.check.calls import CONVOLUTIONS
from infiniop_cy.check.candidates import Spec
from infiniop_cy.check.library import GuardedClient
from infiniop_cy.check.properties import PROPERTIES
from infiniop_cy.check.reference import decidable
from infiniop_cy.check.session import Session
from infiniop_cy.check.standards import standard_of
from infiniop_cy.check.tally import Tally, add, flushed
from infiniop_cy.testing import (
    CASES,
    DTYPES,
    Case,
    assert_invariant,
    assert_ulp,
    every_value,
    gradcheck,
    special_values,
    ulp_error,
)
from infiniop_cy.testing.reference import exact_result


def verdicts(spec, operator, dtypes=("float32",), parameters=None, timeout=20, quick=True, **settings):
    """{(title, dtype): Result} of a quick run."""
    settings = runner.Settings(**{"quick": quick, "threads": False} | settings)
    with Session(spec, timeout) as opened:
        return {(r.title, r.dtype): r for r in (
            runner.check(opened, *subject, settings)
            for subject in runner.subjects([operator], dtypes, parameters or {}, quick=True))}


def failures(results):
    return {key: {v.name: v.evidence for v in r.verdicts if v.failed} for key, r in results.items()
            if any(v.failed for v in r.verdicts)}


@pytest.mark.parametrize("operator", runner.OPERATORS)
def test_finds_nothing_on_this_library(operator):
    """In every dtype for one operator of each kind, in one for any other, which dtype goes round."""
    turn = runner.OPERATORS.index(operator) % len(DTYPES)
    dtypes = DTYPES if operator in (*SAMPLE, *CONVOLUTIONS) else DTYPES[turn:turn + 1]
    results = verdicts(Spec("preset", "infiniop_cy"), operator, dtypes)
    assert not failures(results)
    assert not [key for key, r in results.items() if r.not_offered]


def test_all_parameters_that_are_tried_have_a_reference():
    """softplus by beta = 0 has none: a whole report ended with its division by zero."""
    elementwise = [name for name in runner.OPERATORS if name not in CONVOLUTIONS]
    for name, case, _ in runner.subjects(elementwise, ["float64"], {}):
        assert math.isfinite(exact_result(case, *[1.7] * (1 + case.operator.backward))), f"{name} {case}"


@pytest.mark.parametrize("parameters", [{"threshold": 0.0}, {"threshold": 2.5}, {"beta": 2.5}])
def test_kinks_move_with_parameters(parameters):
    """At a kink difference quotients are anything: 1e53 at the one of softplus."""
    results = verdicts(Spec("preset", "infiniop_cy"), "softplus_backward", ["float64"], parameters)
    assert not failures(results)
    case = Case(operators.BY_NAME["softplus_backward"], parameters)
    kink = parameters.get("threshold", 20.0) / parameters.get("beta", 1.0)
    assert list(decidable(case, np.array([kink, kink + 0.01]))) == [False, True]


@pytest.mark.parametrize("name", PLANTED)
def test_names_a_planted_defect(name, monkeypatch):
    operator, dtype, wanted = PLANTED[name]
    if name in NEEDS_GLIBC and platform.libc_ver()[0] != "glibc":
        pytest.skip("glibc alone tells or sets this")
    monkeypatch.chdir(pathlib.Path(__file__).parent)  # where the process of the candidate finds the module
    results = verdicts(Spec("python", f"planted_defects:{name}"), operator, [dtype], timeout=1.5,
                       quick=name not in NOT_QUICK, threads="threads" in wanted, only=(wanted,))
    assert any(wanted in found for found in failures(results).values())


@pytest.mark.parametrize(("parameters", "own", "returned", "said"), [
    ("grad_output, input", "holds", "skipped", "around inputs alone: the candidate takes no out="),
    ("grad_output, input, out=None", "holds", "holds", ""),
    ("grad_output, input, *, out", "skipped", "skipped", "")])
def test_what_was_not_tried_does_not_hold(parameters, own, returned, said, mine):
    """A function that always, or never, writes to its caller's array."""
    (mine / "mine.py").write_text(f"""
import infiniop_cy as iop
def f({parameters}):
    return iop.relu_backward(grad_output, input{", out=out" * ("out" in parameters.split("input")[1])})
""")
    result, = verdicts(Spec("python", "mine:f"), "relu_backward", only=(
        "own array", "returned", "no writes outside")).values()
    found = {v.name: v for v in result.verdicts}
    assert (found["own array"].outcome, found["returned"].outcome) == (own, returned)
    assert (found["no writes outside"].outcome, found["no writes outside"].evidence) == ("holds", said)


def test_any_nan_is_a_result(tmp_path, monkeypatch):
    """All bits set are a NaN that vectorized kernels write; so they are before a call, where nothing is written."""
    (tmp_path / "mine.py").write_text("""
import infiniop_cy as iop, numpy as np
def f(grad_output, input, out=None):
    result = iop.sigmoid_backward(grad_output, input, out=out)
    np.copyto(result.view(np.uint32), np.uint32(0xffffffff), where=np.isnan(result))
    return result
""")
    monkeypatch.chdir(tmp_path)
    assert not failures(verdicts(Spec("python", "mine:f"), "sigmoid_backward", only=("output written",)))


# ---- the command

def command(*words):
    return cli.run([*words, "--quick"])


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A folder with a wrong kernel in mine.py."""
    (tmp_path / "mine.py").write_text("def relu(g, x):\n    return g * (x >= 0)\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_wrong_kernel(mine, monkeypatch, capsys):
    """The table, every file that a run can write, and exit code 1."""
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(plot, "has_torch", lambda: False)  # whose import takes seconds
    assert command("relu_backward", "--dtype", "float32", "--candidate", "mine:relu", "--json", "out.json", "--junit",
                   "out.xml", "--repro", "worst.py", "--plot", "out.png") == 1
    printed = capsys.readouterr().out
    assert "special values, float32: " in printed
    assert "0 of 1 checks hold" in printed
    facts = json.loads((mine / "out.json").read_text())
    failed = [v for v in facts["results"][0]["verdicts"] if v["outcome"] == "fails"]
    assert [v["property"] for v in failed] == ["special values"]
    suite, = ElementTree.parse(mine / "out.xml").getroot()
    assert suite.attrib["failures"] == "1"
    assert (mine / "out.png").stat().st_size > 5000
    done = subprocess.run([sys.executable, "worst.py"], capture_output=True, text=True, check=True)
    worst = failed[0]["details"]["examples"][0]
    assert f"exact  {worst['exact']}" in done.stdout
    assert "again" in done.stdout


def test_a_wrong_convolution_is_reproduced(mine):
    """The script computes the gradients by the definition, in NumPy alone: those of this library."""
    (mine / "mine.py").write_text("""
import infiniop_cy as iop
def conv(g, x, w, **geometry):
    return [2 * a for a in iop.conv_backward(g, x, w, **geometry)]
""")
    assert command("conv_backward", "--dtype", "float32", "--candidate", "mine:conv", "--repro", "worst.py") == 1
    names = {}
    exec((mine / "worst.py").read_text(), names)
    expected = iop.conv_backward(names["g"], names["x"], names["w"], **names["geometry"])
    for got, wanted in zip(names["gradients"](names["g"], names["x"], names["w"], **names["geometry"]), expected):
        np.testing.assert_array_equal(got, wanted)


def test_a_wrong_forward_convolution_is_reproduced(mine):
    """The same, with a bias and without."""
    for factor, result in (("2 * ", ""), ("", " + (0 if bias is None else 1)")):
        (mine / "mine.py").write_text(f"""
import infiniop_cy as iop
def conv(input, weight, bias=None, **geometry):
    return {factor}iop.conv(input, weight, bias, **geometry){result}
""")
        assert command("conv", "--dtype", "float32", "--candidate", "mine:conv", "--repro", "worst.py") == 1
        names = {}
        exec((mine / "worst.py").read_text(), names)
        arrays = [names[name] for name in ("x", "w", "bias") if name in names]
        assert len(arrays) == (2 if factor else 3)
        np.testing.assert_array_equal(names["exact"], iop.conv(*arrays, **names["geometry"]))


def test_the_script_shows_the_property_that_it_names(mine):
    """The first geometry that was off by anything was shown, and not what the candidate gave."""
    (mine / "mine.py").write_text("""
import infiniop_cy as iop
def conv(g, x, w, *, groups, **geometry):
    result = list(iop.conv_backward(g, x, w, groups=groups, **geometry))
    result[0] = result[0] + (100 if groups == 2 else 1e-3)
    return result
""")
    assert command("conv_backward", "--dtype", "float32", "--candidate", "mine:conv", "--repro", "worst.py") == 1
    names = {}
    exec((mine / "worst.py").read_text(), names)
    assert names["geometry"]["groups"] == 2
    expected = iop.conv_backward(names["g"], names["x"], names["w"], **names["geometry"])
    np.testing.assert_array_equal(names["got"]["grad_input"], expected[0] + 100)


@pytest.mark.parametrize(("candidate", "signature"), [("K.f", "g, x"), ("K.f", "g, x, *, out"), ("f", "g, x")])
def test_scripts_run(candidate, signature, mine):
    """Of a function in a class, or with a required out=; evidence with quotes and backslashes."""
    (mine / "mine.py").write_text(f"""
import numpy as np
class K:
    def f({signature}):
        return np.multiply(g, x >= 0{", out=out" if "out" in signature else ""})
def f(g, x):
    if x.size > 8:
        raise ValueError('\\\\x {chr(34) * 3} there')
    return 2 * g
""")
    words = ("relu_backward", "--dtype", "float32", "--repro", "worst.py")
    assert command(*words, "--candidate", f"mine:{candidate}") == 1
    compile((mine / "worst.py").read_text(), "worst.py", "exec")
    done = subprocess.run([sys.executable, "worst.py"], capture_output=True, text=True, check=True)
    assert ("again" in done.stdout) == (candidate == "K.f")


@pytest.mark.parametrize(("words", "reason"), [
    (("relu_backward", "--candidate", "nothing:here"), "No module named 'nothing'"),
    (("relu_backward", "--candidate", "mine:nothing"), "no attribute 'nothing'"),
    (("relu_backward", "--candidate", "mine"), "expected module:function"),
    (("relu_backward", "--candidate", "mine:relu", "--standard", "mine"), "expected infiniop, ulp:N, torch"),
    (("relu_backward", "--candidate", "mine:relu", "--dtype", "int8"), "expected float16"),
    (("relu_backward", "--candidate", "mine:relu", "--parameter", "slope=1"), "expected NAME=VALUE"),
    (("silly_backward", "--candidate", "mine:relu"), "expected one of relu_backward"),
    (("relu_backward",), "one of the arguments --candidate"),
    (("relu_backward", "--command", "true"), "expected the words {inputs} and {outputs}"),
    (("relu_backward", "--command", "false {inputs} {outputs}"), "ended with exit code 1"),
    (("relu_backward", "--lib", "nothing.so"), "nothing.so: cannot open"),
    (("relu_backward", "--candidate", "mine:relu", "--json", "no/out.json"), "--json no/out.json: cannot be written"),
    (("relu_backward", "--candidate", "mine:relu", "--timeout", "0"), "expected more than 0 seconds"),
    (("relu_backward", "--candidate", "mine:relu", "--exhaustive", "--dtype", "float16"), "is about float32"),
    (("relu_backward", "--candidate", "mine:relu", "--exhaustive", "--resume", "mine.py"), "no state of an exhaustive"),
    (("relu_backward", "--candidate", "mine:relu", "--resume", "out.json"), "of use with --exhaustive"),
    (("relu_backward", "--candidate", "numpy", "--arrays", "jax"), "is about --candidate MODULE:FUNCTION"),
    (("leaky_relu_backward", "--candidate", "numpy", "--parameter", "negative_slope=a"), "expected a number"),
    (("leaky_relu_backward", "--candidate", "numpy", "--parameter", "self_is_result=a"), "expected true or false"),
    (("softplus_backward", "--candidate", "infiniop_cy", "--parameter", "beta=0"), "the function is infinite"),
    (("hardtanh_backward", "--candidate", "infiniop_cy", "--parameter", "min_val=5"), "expected at most max_val"),
    (("relu_backward", "--candidate", "mine:relu", "--dtype", "float32", "--only", "groups"), "no property of relu_b"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_could_not_run(words, reason, mine, capsys):
    assert command(*words) == 2
    line, = capsys.readouterr().err.strip().splitlines()
    assert reason in line


def test_what_a_candidate_says_breaks_no_report(mine, capsys):
    """Colours in its last words, and brackets in its command line, in which rich and XML see marks of their own."""
    line = f"{sys.executable} kernel.py [/x] [out] {{inputs}} {{outputs}}"
    (mine / "mine.py").write_text("""
import os, sys
def f(g, x):
    print("\\033[31mno \\1 kernel <here>", flush=True)
    os.abort()
""")
    words = ("relu_backward", "--dtype", "float32", "--only", "runs")
    assert command(*words, "--candidate", "mine:f", "--junit", "out.xml") == 1
    assert "no  kernel <here>" in ElementTree.parse(mine / "out.xml").getroot()[0][0][0].attrib["message"]
    capsys.readouterr()
    (mine / "kernel.py").write_text("import os\nos.abort()\n")
    assert command(*words, "--command", line) == 1
    assert "kernel.py [/x] [out] {inputs} {outputs}: 0 of 1" in capsys.readouterr().out


def test_what_a_candidate_prints_fills_no_disk(mine):
    (mine / "mine.py").write_text("""
def f(g, x):
    print("x" * 999_999, flush=True)
    return g
""")
    case, x = _case("relu_backward"), np.ones(3, np.float32)
    with Session(Spec("python", "mine:f"), 20) as opened:
        for _ in range(9):
            assert opened.elementwise(case, x, x).ok
        assert 0 < os.fstat(opened.worker.log.fileno()).st_size < 2_100_000


def test_a_property_is_not_held_by_a_candidate_that_dies(mine, capsys):
    """The table had no row, and the exit code was 0."""
    (mine / "mine.py").write_text("import os\ndef f(g, x):\n    os.abort()\n")
    assert command("relu_backward", "--candidate", "mine:f", "--dtype", "float32", "--only", "shapes") == 1
    assert "already a first call crashes" in capsys.readouterr().out


def test_a_missing_extra_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rich", None)
    assert cli.run(["relu_backward"]) == 2
    assert capsys.readouterr().err == "infiniop-cy check needs rich: pip install 'infiniop_cy[check]'\n"


def test_entry_points():
    """The command is `infiniop-cy` and `python -m infiniop_cy`; pytest finds the fixtures."""
    entries = importlib.metadata.entry_points()
    script, = entries.select(group="console_scripts", name="infiniop-cy")
    assert script.load() is infiniop_cy.__main__.main
    plugin, = entries.select(group="pytest11", name="infiniop_cy")
    imports = f"import sys, {plugin.value}; sys.exit('infiniop_cy' in sys.modules)"
    subprocess.run([sys.executable, "-c", imports], check=True)  # else pytest could not start without the extra
    done = subprocess.run([sys.executable, "-m", "infiniop_cy", "check", "--help"], capture_output=True, text=True,
                          check=True)
    assert all(p.name in done.stdout for p in PROPERTIES)


def test_fixtures(request):
    for name in ("assert_ulp", "ulp_error", "gradcheck", "assert_invariant", "special_values", "every_value"):
        assert request.getfixturevalue(name) is getattr(infiniop_cy.testing, name)


def test_a_program(mine):
    (mine / "kernel.py").write_text("""
import sys, numpy as np
g, x = map(np.load, sys.argv[1:3])
print("computing")
np.save(sys.argv[3], np.where(x <= 0, g.dtype.type(0), g))
""")
    words = ("relu_backward", "--dtype", "float16", "--only", "accuracy", "--only", "special values")
    assert command(*words, "--command", f"{sys.executable} kernel.py {{inputs}} {{outputs}}") == 0


def test_parameters_reach_the_candidate(mine):
    (mine / "mine.py").write_text("""
import infiniop_cy as iop
def leaky(g, x, negative_slope=0.01):
    return iop.leaky_relu_backward(g, x, 0.25)
""")
    words = ("leaky_relu_backward", "--candidate", "mine:leaky", "--dtype", "float32", "--only", "accuracy")
    assert command(*words, "--parameter", "negative_slope=0.25") == 0
    assert command(*words, "--parameter", "negative_slope=0.5") == 1


def test_exhaustive_runs_go_on_where_they_stopped(mine, monkeypatch):
    """Two blocks instead of 4,096, then a third; the last run has nothing left to try."""
    monkeypatch.setattr(exhaustive, "KEEP_EVERY", 1)
    words = ("sigmoid_backward", "--candidate", "infiniop_cy", "--dtype", "float32", "--exhaustive", "--only",
             "accuracy", "--resume", "state.json", "--json", "out.json")
    tried = []
    for blocks in (2, 3, 3):
        monkeypatch.setattr(exhaustive, "TOTAL", blocks * session.BLOCK)
        assert command(*words) == 0
        tried.append(json.loads((mine / "out.json").read_text())["inputs tried"])
    assert tried[1] - tried[0] == session.BLOCK
    assert tried[2] == tried[1]


@pytest.mark.parametrize(("before", "after"), [
    ("pass", "result *= 2"),  # edited in between: the old state is of another candidate
    ("os.abort()", "os.abort()"),  # what a block that was tried before the interruption has shown
])
def test_a_state_of_an_exhaustive_run_hides_nothing(before, after, mine, monkeypatch, capsys):
    monkeypatch.setattr(exhaustive, "KEEP_EVERY", 1)
    monkeypatch.setattr(exhaustive, "TOTAL", 2 * session.BLOCK)
    words = ("sigmoid_backward", "--candidate", "mine:f", "--dtype", "float32", "--exhaustive", "--only", "accuracy",
             "--resume", "state.json")
    for line in (before, after):
        (mine / "mine.py").write_text(f"""
import infiniop_cy as iop, numpy as np, os
def f(grad_output, input):
    result = iop.sigmoid_backward(grad_output, input)
    if input.size == {session.BLOCK} and input[0] == 0:
        {line}
    return result
""")
        assert command(*words) == (line != "pass")
    assert ("inputs 0x00000000 to 0x000fffff" in capsys.readouterr().out) == (before == after)
    assert len(json.loads((mine / "state.json").read_text())) == 1 + (before != after)


# ---- C libraries

needs_libraries = pytest.mark.skipif(sys.platform != "linux", reason="the C libraries are built on Linux")


@needs_libraries
def test_the_c_library_holds():
    for operator, dtype, cases in (("leaky_relu_backward", "float16", 3), ("conv", "bfloat16", 1)):
        results = verdicts(Spec("library", f"{infini_root()}/lib/libinfiniop.so"), operator, [dtype])
        assert len(results) == cases
        assert not failures(results)


def test_a_textbook_convolution_in_16_bits_rounds_every_sum():
    """numpy is the preset that shows what a first version gets wrong: its rounding, and no index."""
    found, = failures(verdicts(Spec("preset", "numpy"), "conv", ["float16"], only=(
        "error of sums", "convolution", "bias", "any geometry"))).values()
    assert list(found) == ["error of sums"]


@needs_libraries
def test_workspaces_lie_between_known_bytes():
    client = GuardedClient(f"{infini_root()}/lib/libinfiniop.so")
    for at, where in ((100, "1 bytes past the end"), (-3, "3 bytes before the start")):
        workspace = client.workspace(100)
        assert np.isnan(workspace[:96].view(np.float32)).all()
        as_strided(workspace[50:], (2, 1), (at - 50, 1))[1] = 0
        assert client.overrun() == f"written to {where} of the workspace of 100 bytes"
    assert client.overrun() is None


@needs_libraries
def test_missing_symbols_are_named(capsys):
    root = infini_root()
    words = ("gelu_backward", "--dtype", "float32", "--lib")
    assert command(*words, f"{root}/lib/libinfinirt.so") == 2
    assert "has no symbol infiniopCreateHandle" in capsys.readouterr().err
    assert command(*words, f"{root}/lib/libinfiniop.so", "--symbols", "GELUBackward") == 2
    assert "has no symbol infiniopCreateGELUBackwardDescriptor" in capsys.readouterr().err


def test_symbols_of_one_form():
    """Clients that write GeLUBackward mean the tanh form, and have no V2 call to say so."""
    words = ("gelu_backward", "--dtype", "float16", "--quick", "--lib", f"{infini_root()}/lib/libinfiniop.so",
             "--symbols", "GeLUBackward")
    assert command(*words, "--parameter", "approximate=tanh") == 0
    assert command(*words) == 1


def test_geometries_that_are_refused_are_said(mine, capsys):
    """A candidate may refuse some, but not without a word in the table's notes."""
    (mine / "conv.py").write_text("""
import infiniop_cy as iop

def f(grad_output, input, weight, *, stride, padding, dilation, groups):
    if max(dilation) > 2:
        raise NotImplementedError("dilation over 2")
    return tuple(iop.conv_backward(grad_output, input, weight, stride=tuple(stride), padding=tuple(padding),
                                   dilation=tuple(dilation), groups=groups))
""")
    assert command("conv_backward", "--dtype", "float32", "--quick", "--candidate", "conv:f") == 0
    assert "dilation, float32: the candidate refused 3 of 4 geometries, first: " in capsys.readouterr().out


@pytest.mark.parametrize(("where", "outcome", "said"), [
    ("input.size == 5003", "fails", "a shape is refused: 5003 elements: ValueError: not here"),
    ("min(input.strides, default=0) < 0", "holds", "refused reversed, last axis reversed, first: ValueError: not here"),
    ("not (input.flags.c_contiguous and grad_output.flags.c_contiguous)", "skipped", "refused transposed, rotated"),
])
def test_calls_that_are_refused_are_said(where, outcome, said, mine):
    """A length is no reason, however rare; strides may be one, but are not promised by those that were not tried."""
    (mine / "mine.py").write_text(f"""
import infiniop_cy as iop
def f(grad_output, input):
    if {where}:
        raise ValueError("not here")
    return iop.relu_backward(grad_output, input)
""")
    name = "shapes" if outcome == "fails" else "same bits by layout"
    result, = verdicts(Spec("python", "mine:f"), "relu_backward", only=(name, "no reads outside")).values()
    verdict, = (v for v in result.verdicts if v.name == name)
    assert (verdict.outcome, bool(verdict.details.get("refused"))) == (outcome, outcome == "holds")
    assert said in verdict.evidence


def test_a_convolution_without_bias(mine):
    """conv may be f(input, weight, ...): the bias is then not offered, and all else is checked."""
    (mine / "mine.py").write_text("""
import infiniop_cy as iop
def f(input, weight, **geometry):
    return iop.conv(input, weight, **geometry)
""")
    results = verdicts(Spec("python", "mine:f"), "conv")
    assert not failures(results)
    result, = results.values()
    found = {v.name: v for v in result.verdicts}
    assert "not offered: TypeError: " in found["bias"].evidence
    assert found["convolution"].outcome == found["error of sums"].outcome == found["NaN and inf"].outcome == "holds"


def test_spellings():
    assert spellings("gelu_backward") == ["GeluBackward", "GeLUBackward", "GELUBackward"]
    assert {"LeakyReluBackward", "LeakyReLUBackward"} <= set(spellings("leaky_relu_backward"))
    assert "ConvBackward" in spellings("conv_backward")


# ---- standards

@pytest.mark.parametrize("name", ["infiniop", "ulp:1", "torch", "ascend", "mlu-ops", "benchdnn"])
def test_standards_judge(name):
    """Each tells the right result from one that is 5 % off at every tenth input, and has a source."""
    standard = standard_of(name)
    assert standard.source
    case, = (c for c in CASES if str(c) == "sigmoid_backward")
    x = np.linspace(-3, 3, 10_000).astype(np.float16)
    g = np.ones_like(x)
    exact = case(g.astype(float), x.astype(float))
    for factor, wanted in ((1, True), (1.05, False)):
        tally = Tally("float16")
        got = exact.astype(np.float16)
        got[::10] *= np.float16(factor)
        add(tally, case, g, x, got, exact, 0.0, standard)
        assert standard.verdict(tally.standard, "float16")[0] is wanted


def _tally(case, x, got, standard, dtype, ftz=False):
    """Of results for g = 1."""
    tally, g = Tally(dtype), np.ones_like(x)
    exact = case(g.astype(float), x.astype(float))
    add(tally, case, g, x, got, exact, 0.0, standard, case(g.astype(float), flushed(x, dtype)) if ftz else None)
    return tally


def _case(name):
    return next(c for c in CASES if str(c) == name)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_squares_of_small_errors_do_not_vanish(dtype):
    """diff2 as by hand, in two blocks of which the second has larger numbers, at the end of the dtype's range."""
    x, standard, sums = np.linspace(-1, 1, 1000).astype(dtype), standard_of("mlu-ops"), {}
    for size in (1, np.finfo(dtype).max):
        got = np.ones_like(x) * size
        got[::50] *= 1 - 2.0 ** -7
        tally, g = Tally(dtype), np.full_like(x, size)
        add(tally, _case("relu_backward"), g, np.abs(x), got, g.astype(float), 0.0, standard)
        standard.merge(sums, tally.standard)
        for found in (tally.standard, sums):
            assert f"diff2 {2.0 ** -7 * 0.02 ** 0.5:.3g}" in standard.verdict(found, dtype)[1]


def test_what_is_shown_as_worst_is_off():
    """A result in the tail may be off by many ulp, and be near enough by an absolute rule: another one is not."""
    case, standard = _case("sigmoid_backward"), standard_of("torch")
    x = np.linspace(-20, 20, 4001).astype(np.float32)
    exact = case(np.ones_like(x, float), x.astype(float))
    got = np.where(x < -15, 0, exact).astype(np.float32)
    got[2100] += np.float32(1e-4)
    for part in (slice(None), slice(None, None, -1)):
        tally = _tally(case, x[part], got[part], standard, "float32")
        assert tally.standard["violations"] == 1
        assert tally.worst[0].got_value == got[2100]


@pytest.mark.parametrize(("standard", "fails"), [
    ("infiniop", True), ("ulp:5", False), ("torch", False), ("ascend", False), ("mlu-ops", True), ("benchdnn", True)])
def test_numbers_at_special_inputs_are_judged_by_the_standard(standard, fails):
    """0.609375 for 0.6 at x = 0: within torch's 1.6 % in bfloat16. inf there is within no rule."""
    x = np.zeros(1, ml_dtypes.bfloat16)
    for value, expected in ((0.609375, fails), (0.6, False), (np.inf, True), (np.nan, True)):
        tally = _tally(_case("mish_backward"), x, np.array([value], x.dtype), standard_of(standard), "bfloat16")
        assert bool(tally.counts.get("special values")) is expected


@pytest.mark.parametrize("name", ["infiniop", "torch", "ascend", "mlu-ops", "benchdnn"])
def test_every_standard_allows_flushing_where_asked(name):
    """float16, whose subnormal results are larger than what published rules neglect."""
    standard = standard_of(name)
    for operator, x in (("sigmoid_backward", np.linspace(9.8, 10.5, 50)), ("relu_backward", [3e-5, 5e-5])):
        x = np.array(x, np.float16)
        for ftz in (False, True):
            tally = _tally(_case(operator), x, np.zeros_like(x), standard, "float16", ftz)
            neglected = (name, operator) == ("benchdnn", "sigmoid_backward")  # its derivative vanishes
            assert standard.verdict(tally.standard, "float16")[0] is (ftz or neglected)


def test_flushed_subnormals_are_allowed_where_asked(monkeypatch):
    monkeypatch.chdir(pathlib.Path(__file__).parent)
    for words in (("sigmoid_backward", "--candidate", "planted_defects:flushes_subnormals", "--only", "accuracy"),
                  ("relu_backward", "--candidate", "planted_defects:subnormal_input_is_zero", "--only", "accuracy",
                   "--only", "not vanished", "--only", "special values", "--only", "finite", "--only", "sign")):
        assert command(*words, "--dtype", "float32") == 1
        assert command(*words, "--dtype", "float32", "--ftz") == 0


def test_outside_a_standard_is_shown_and_not_counted(monkeypatch, capsys):
    monkeypatch.chdir(pathlib.Path(__file__).parent)
    words = ("relu_backward", "--dtype", "float32", "--candidate", "planted_defects:assumes_contiguous", "--only",
             "same bits by layout")
    assert command(*words) == 1
    assert command(*words, "--standard", "torch") == 0
    assert "outside the standard" in capsys.readouterr().out


# ---- the same as a library

def test_assert_ulp():
    x = np.float32([1, 2, np.inf, np.nan])
    assert_ulp(x, x.astype(float), 0)
    np.testing.assert_array_equal(ulp_error(x[:2], [1 + 2.0 ** -23, 2 - 2.0 ** -22]), [1, 2])
    np.testing.assert_array_equal(ulp_error(x, [np.inf, 2, -np.inf, 0]), [np.inf, 0, np.inf, np.inf])
    with pytest.raises(AssertionError, match=r"worst at \(1,\): 2.0 \(0x40000000\)"):
        assert_ulp(x[:2], [1, 2.1], 10)


def test_gradcheck():
    x = np.linspace(-2, 2, 40)
    for forward in (np.sinh, np.vectorize(math.sinh)):  # by a complex step, and by differences
        gradcheck(forward, lambda g, v: g * np.cosh(v), x, grad_output=np.cos(x))
        with pytest.raises(AssertionError):
            gradcheck(forward, lambda g, v: g * np.cosh(v) * 1.001, x)


def test_assert_invariant(rng):
    arrays = rng.normal(size=(2, 13, 5)).astype(np.float32)
    assert_invariant(iop.gelu_backward, arrays, threads=(1, 3), batch_cuts=(1, 6))
    for what, f, how in (("batch cut", lambda g, x: g * x.shape[0], {"layouts": (), "batch_cuts": (1,)}),
                         ("other bits", lambda g, x: g * x.flags.c_contiguous, {}),
                         ("threads", lambda g, x, num_threads=1: g * num_threads, {"threads": (1, 2)})):
        with pytest.raises(AssertionError, match=what):
            assert_invariant(f, arrays, **how)


ONES = np.ones(4, np.float32)


@pytest.mark.parametrize(("error", "message", "call"), [
    (ValueError, r"exact has shape \(3,\), expected \(4,\)", lambda: assert_ulp(ONES, np.ones(3), 1)),
    (ValueError, "limit is nan", lambda: assert_ulp(ONES, np.ones(4), np.nan)),
    (TypeError, "actual has dtype int64", lambda: ulp_error(np.arange(4), np.ones(4))),
    (TypeError, "exact has dtype float32, expected float64, or wider", lambda: ulp_error(ONES, ONES)),
    (ValueError, "grad_output has shape", lambda: gradcheck(np.sin, lambda g, x: g, np.ones(4), np.ones(3))),
    (ValueError, "layouts has 'none'", lambda: assert_invariant(np.multiply, [ONES] * 2, layouts=["none"])),
    (ValueError, "batch_cuts has 4", lambda: assert_invariant(np.multiply, [ONES] * 2, batch_cuts=[4])),
    (ValueError, "expected one shape", lambda: assert_invariant(np.multiply, [ONES, ONES[:1]])),
    (ValueError, "dtype is int8", lambda: special_values("int8")),
], ids=lambda value: value if isinstance(value, str) else "")
def test_arguments_that_cannot_be_meant(error, message, call):
    """Checks that would hold whatever the candidate does."""
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("dtype", DTYPES)
def test_special_values(dtype):
    found = special_values(dtype)
    info = ml_dtypes.finfo(found.dtype)
    assert len(found) == 15
    assert {float(v) for v in (info.max, info.smallest_normal, info.smallest_subnormal)} <= {float(v) for v in found}
    if found.itemsize == 2:
        assert len(every_value(dtype)) == 2 ** 16
    else:
        with pytest.raises(ValueError, match="16-bit"):
            every_value(dtype)
