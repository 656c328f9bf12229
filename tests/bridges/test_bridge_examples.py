"""The examples on frameworks, and the one of infiniop-cy check, at small sizes."""
import importlib.util
import pathlib
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_digits_are_learned_on_autograd():
    pytest.importorskip("autograd", reason="autograd is not installed")
    pytest.importorskip("sklearn", reason="the examples need scikit-learn")
    accuracy = example("digits_autograd").train(epochs=5, samples=500)
    assert len(accuracy) == 5
    assert accuracy[-1] > 0.7  # guessing: 0.1


def test_float16_module_has_torch_s_gradients():
    pytest.importorskip("torch", reason="torch is not installed")
    seconds, difference = example("float16_torch").compare(batch=2, size=8, channels=8, repeats=1)
    assert set(seconds) == {"torch", "infiniop_cy"}
    assert difference < 0.01  # of two float16 networks, of five layers


def test_the_slip_in_the_kernel_is_found():
    ran = subprocess.run([sys.executable, EXAMPLES / "check_my_kernel.py", "--quick"], capture_output=True, text=True,
                         check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    first, second = ran.stdout.split("check_my_kernel:first_try: 0 of 1 checks hold")
    assert "accuracy              FAILS" in first
    assert "check_my_kernel:second_try: 1 of 1 checks hold" in second
    assert "FAILS" not in second
