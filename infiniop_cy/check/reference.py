"""What is right: this library's float64 kernels where they decide, 50 digits of mpmath where they do not.

The kernels err by at most 16 ulp of float64, which is 3e-8 ulp of float32 and less of 16-bit types: they decide on
all candidates but those of float64. On these mpmath decides, from the forward function of the operator's row. Inputs
are values of the storage type, so nothing rounds before.
"""
from math import floor, log10

import mpmath
import numpy as np

from infiniop_cy.testing.reference import derivative, exact_result

# Nearer to a kink a difference quotient steps across it; farther out every derivative in float64 has reached its limit.
NEAREST, FARTHEST = 1e-30, 1e6


def kernel(case, g, x):
    """g times the derivative at x, in float64; the value at x of a forward function, which takes no g."""
    with np.errstate(all="ignore"):
        return case(*(a.astype(np.float64) for a in (g, x)[-case.count:]))


def decidable(case, x):
    """Where mpmath may be asked: finite, and away from kinks."""
    x = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        far = np.isfinite(x) & (np.abs(x) < FARTHEST)
        for kink in case.operator.kinks_by(case.parameters):
            far &= np.abs(x - kink) > NEAREST
    return far


def exact(case, g, x):
    """The same as an mpf, for one pair of numbers where `decidable`."""
    rough = abs(float(kernel(case, np.float64(1), np.float64(x))))
    digits = 50 if rough > 1e-20 else 30 - floor(log10(max(rough, 1e-323)))
    with mpmath.workdps(50):
        if case.count < 2:
            return exact_result(case, float(x))
        return mpmath.mpf(float(g)) * derivative(case, float(x), digits)


def exact_pair(case, g, x):
    """The same for arrays, each as a sum high + low of two float64, which errors of float64 are measured against.
    Where mpmath cannot be asked the kernel's value stands, with low = 0."""
    high, low = kernel(case, g, x), np.zeros(x.shape)
    for i in np.flatnonzero(decidable(case, x) & np.isfinite(g.astype(np.float64))):
        value = exact(case, g[i], x[i])
        high[i] = float(value)
        with mpmath.workdps(50):
            low[i] = float(value - mpmath.mpf(high[i])) if np.isfinite(high[i]) else 0
    return high, low
