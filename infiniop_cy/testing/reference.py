"""References in 50 digits, derived from each row's forward, and errors in units in the last place."""
from functools import lru_cache

import mpmath
import numpy as np

# name: (bits of the significand, exponent of the smallest normal number)
FORMATS = {"float16": (11, -14), "bfloat16": (8, -126), "float32": (24, -126), "float64": (53, -1022)}

# (ulp anywhere, or absolute error over |g| within NEAR of a zero of the derivative)
TOLERANCES = {"float16": (1, 0), "bfloat16": (1, 0), "float32": (4, 1e-7), "float64": (16, 2e-17)}
NEAR = 0.3


@lru_cache(maxsize=200_000)
def _derivative(forward, x, parameters, digits):
    with mpmath.workdps(digits):
        return mpmath.diff(lambda v: forward(mpmath, v, **dict(parameters)), mpmath.mpf(x))


def derivative(case, x, digits=50):
    """The derivative of the case's forward at the float x, as an mpf. Not for kinks. Where the forward is about 1 and
    its derivative about 10**-k, the difference quotient leaves digits - k digits right."""
    return _derivative(case.operator.forward, float(x), tuple(case.parameters.items()), digits)


@lru_cache(maxsize=200_000)
def _value(forward, x, parameters, digits):
    with mpmath.workdps(digits):
        return +mpmath.mpf(forward(mpmath, mpmath.mpf(x), **dict(parameters)))


def exact_result(case, *inputs):
    """What the case computes for floats (grad_output, x), or (x,) of a forward function, as an mpf. Not for kinks."""
    if case.operator.backward:
        return mpmath.mpf(inputs[0]) * derivative(case, inputs[1])
    return _value(case.operator.forward, float(inputs[0]), tuple(case.parameters.items()), 50)


def ulp_of(value, dtype):
    """The unit in the last place of ``|value|`` in that dtype, subnormals included; value: float or array."""
    bits, lowest = FORMATS[dtype]
    _, exponent = np.frexp(np.asarray(value, np.float64))
    return np.ldexp(1.0, np.maximum(exponent - 1, lowest) - (bits - 1))


def result_errors(case, dtype, got, *inputs):
    """Errors of `got` in ulp, as (worst, text of the worst) over all elements; what is within the absolute bound
    near a zero of the function, or of its derivative, counts as within the ulp bound; kinks are passed over. 1-d
    arrays."""
    most, absolute = TOLERANCES[dtype]
    worst, text = 0.0, ""
    with mpmath.workdps(50):
        for value, *values in zip(*(a.astype(float) for a in (got, *inputs))):
            if values[-1] in case.operator.kinks:
                continue
            exact = exact_result(case, *values)
            error = abs(mpmath.mpf(value) - exact)
            ulps = float(error / mpmath.mpf(float(ulp_of(float(exact), dtype))))
            scale = abs(values[0]) if case.operator.backward else 1
            if error <= absolute * scale and any(abs(values[-1] - zero) < NEAR for zero in case.operator.zeros):
                ulps = min(ulps, most)
            if ulps > worst or ulps != ulps:
                worst, text = ulps, (f"{case} {dtype}: {dict(zip(case.operator.inputs, values))} gives {value!r}, "
                                     f"expected {float(exact)!r}, {ulps:.2f} ulp")
    return worst, text


def same_bits(a, b):
    """Equal shape, dtype and bytes of every element."""
    return a.shape == b.shape and a.dtype == b.dtype and (
        np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes())
