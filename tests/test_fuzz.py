"""A short run of `make fuzz`, and that it notices what it is there to notice."""
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from fuzz import memory

HERE = pathlib.Path(__file__).parent


def fuzz(*arguments, kinds=()):
    command = [sys.executable, "-m", "fuzz", *arguments, *(["--kinds", *kinds] if kinds else [])]
    return subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=400, check=False)


def test_a_few_seconds():
    """More of them are a step of CI."""
    kinds = () if sys.platform == "linux" else ("elementwise", "convolution", "descriptors", "errors")
    ran = fuzz("--seconds", "8", "--seed", "0", kinds=kinds)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.endswith(": 0 failures\n")


def broken(monkeypatch, function):
    """Run the attack on elementwise functions in this process, each followed by `function(out)`."""
    from fuzz import elementwise

    class Broken:
        def __init__(self, case):
            self.case, self.operator, self.count = case, case.operator, case.count

        def __call__(self, *inputs, out=None, **keywords):
            result = self.case(*inputs, out=out, **keywords)
            if keywords.get("num_threads", 1) > 1 and out.size:
                function(out)
            return result
    monkeypatch.setattr(elementwise, "CASES", [Broken(case) for case in elementwise.CASES])
    for number in range(200):
        elementwise.run(np.random.default_rng([5, number]))


def flip(out):
    out[(0,) * out.ndim] = 77


def write_beside(out):
    from ctypes import memset
    memset(out.ctypes.data + sum(s * (n - 1) for s, n in zip(out.strides, out.shape) if s > 0) + out.itemsize, 0, 1)


@pytest.mark.parametrize("mistake", [flip, write_beside])
def test_it_notices(mistake, monkeypatch):
    with pytest.raises(AssertionError):
        broken(monkeypatch, mistake)


def test_a_failure_is_a_script(tmp_path):
    """What is printed for a failure runs, and does what the case did."""
    from fuzz.__main__ import generator, script
    text = script("elementwise", 3, 12, "why")
    assert "# elementwise, seed 3, case 12" in text
    probe = text.replace("elementwise.run(", "print(").replace("))\n", ").integers(10**9))\n")
    ran = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert int(ran.stdout) == generator("elementwise", 3, 12).integers(10**9)


def test_same_tells_values_apart_but_not_nan():
    nan = np.array([np.nan, -np.nan, 1.0])
    memory.same(nan, -nan * [1, 1, -1])
    for wrong in ([np.nan, np.nan, np.nan], [0.0, np.nan, 1.0], [np.nan, np.nan, -1.0]):
        with pytest.raises(AssertionError):
            memory.same(np.array(wrong), nan)
