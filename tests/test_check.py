"""infiniop-cy check: it finds nothing on this library, and each planted defect under the property that names it."""
import json
import pathlib
import subprocess
import sys

import pytest
from planted_defects import PLANTED

from infiniop_cy.check import runner
from infiniop_cy.check.candidates import Spec
from infiniop_cy.check.session import Session
from infiniop_cy.check.standards import standard_of


def verdicts(spec, operator, dtypes=("float32",), parameters=None, timeout=20, threads=False):
    """{(title, dtype): Result} of a quick run."""
    settings = runner.Settings(quick=True, threads=threads)
    with Session(spec, timeout) as session:
        return {(r.title, r.dtype): r for r in (
            runner.check(session, *subject, settings)
            for subject in runner.subjects([operator], dtypes, parameters or {}))}


def failures(results):
    return {key: {v.name: v.evidence for v in r.verdicts if v.failed} for key, r in results.items()
            if any(v.failed for v in r.verdicts)}


@pytest.mark.parametrize("operator", runner.OPERATORS)
def test_finds_nothing_on_this_library(operator):
    results = verdicts(Spec("preset", "infiniop_cy"), operator, runner.DTYPES)
    assert not failures(results)
    assert not [key for key, r in results.items() if r.not_offered]


@pytest.mark.parametrize("name", PLANTED)
def test_names_a_planted_defect(name, monkeypatch):
    operator, dtype, wanted = PLANTED[name]
    monkeypatch.chdir(pathlib.Path(__file__).parent)  # where the process of the candidate finds the module
    results = verdicts(Spec("python", f"planted_defects:{name}"), operator, [dtype], timeout=1.5,
                       threads="threads" in wanted)
    found = failures(results)
    assert found, "nothing failed"
    assert all(wanted in failed for failed in found.values()), found


def command(*words, cwd=None):
    return subprocess.run([sys.executable, "-m", "infiniop_cy", "check", *words], cwd=cwd, capture_output=True,
                          text=True, timeout=120, check=False)


def test_exit_codes_and_json(tmp_path):
    (tmp_path / "mine.py").write_text("def relu(g, x):\n    return g * (x >= 0)\n")
    words = ("relu_backward", "--dtype", "float32", "--quick", "--candidate")
    done = command(*words, "mine:relu", "--json", "out.json", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "special values, float32: " in done.stdout
    facts = json.loads((tmp_path / "out.json").read_text())
    assert {v["property"] for v in facts["results"][0]["verdicts"] if v["outcome"] == "fails"} >= {"special values"}
    assert command(*words, "infiniop_cy").returncode == 0
    for bad in (("nothing:here",), ("mine:relu", "--standard", "mine"), ("mine:relu", "--dtype", "int8")):
        done = command(*words, *bad, cwd=tmp_path)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1, done.stderr


def test_standards_have_sources():
    for name in ("infiniop", "ulp:2.5", "torch", "ascend", "mlu-ops", "benchdnn"):
        assert standard_of(name).source
