"""Is my kernel right? A gradient of gelu written in NumPy, with a slip in it, and what infiniop-cy check finds.

    python examples/check_my_kernel.py

runs these commands, which need no code at all, and would do for any function of NumPy arrays:

    infiniop-cy check gelu_backward --candidate check_my_kernel:first_try --parameter approximate=tanh --dtype float32
    infiniop-cy check gelu_backward --candidate check_my_kernel:second_try --parameter approximate=tanh --dtype float32
"""
import subprocess
import sys
from pathlib import Path

import numpy as np

C = np.sqrt(2 / np.pi)


def first_try(grad_output, input, approximate):
    """From memory. The plot looks right, and so does the training."""
    x = input
    t = np.tanh(C * (x + 0.044715 * x**3))
    slope = (1 + t) / 2 + x / 2 * (1 - t * t) * C * (1 + 0.044715 * x**2)  # the derivative of x**3 is 3 * x**2
    return (grad_output * slope).astype(input.dtype)


def second_try(grad_output, input, approximate):
    """The derivative that is meant, in float64, and in terms that neither cancel nor overflow in the tails."""
    x = np.clip(input.astype(np.float64), -30, 30)  # beyond, the slope is 0 or 1 in float32
    e = np.exp(-2 * np.abs(C * (x + 0.044715 * x**3)))
    s = np.where(x > 0, 1, e) / (1 + e)
    slope = s + 2 * x * e / (1 + e) ** 2 * C * (1 + 3 * 0.044715 * x**2)
    return (grad_output * slope).astype(input.dtype)


def check(name, *options):
    """Run the command on a function of this file; its exit status is 0 where all properties hold."""
    command = [sys.executable, "-m", "infiniop_cy", "check", "gelu_backward", "--candidate", f"check_my_kernel:{name}",
               "--parameter", "approximate=tanh", "--dtype", "float32", *options]
    return subprocess.run(command, cwd=Path(__file__).parent, check=False).returncode


if __name__ == "__main__":
    outcomes = check("first_try", *sys.argv[1:]), check("second_try", *sys.argv[1:])
    sys.exit(outcomes != (1, 0))
