"""Accuracy of every operator: float32 and float64 against 50 digits, 16-bit types on all of their values."""
import mpmath
import numpy as np
import pytest
from rotation import in_full

import infiniop_cy as iop
from infiniop_cy.testing import (
    CASES,
    GRADIENTS,
    assert_ulp,
    derivative,
    every_value,
    gradcheck,
    result_errors,
)
from infiniop_cy.testing.reference import TOLERANCES

each_case = pytest.mark.parametrize("case", CASES, ids=str)
each_gradient = pytest.mark.parametrize("case", GRADIENTS, ids=str)


def grid(case, dtype):
    """[-12, 12] evenly, at random, densely around 0, zeros of the derivative, and where a result becomes subnormal."""
    rng = np.random.default_rng(7)
    tiny = 10.0 ** rng.uniform(-12, 0, 300)
    x = np.concatenate([
        np.linspace(-12, 12, 1200), rng.uniform(-12, 12, 800), rng.normal(0, 1, 500), tiny[:150], -tiny[150:],
        rng.normal(case.operator.zeros[:1] or -0.75, 0.05, 300), np.linspace(-11, -10, 100)])
    x = x[x != 0].astype(dtype)
    return x if in_full(case) else x[CASES.index(case) % 2::2]  # half of them for the operators beyond the sample


def with_ones(case, x):
    """The inputs of a case: x, and a gradient of ones where it takes one."""
    return (np.ones_like(x), x)[-case.count:]


@each_case
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_error_in_ulp(case, dtype, on_emulation, record_property):
    """An emulated GPU computes the formulas that the CPU does: a quarter of the 50-digit references is enough."""
    inputs = with_ones(case, grid(case, dtype)[::4 if on_emulation else 1])
    worst, text = result_errors(case, dtype, case(*inputs), *inputs)
    record_property("ulp", worst)
    assert worst <= TOLERANCES[dtype][0], text


@each_gradient
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_grad_output_scales(case, dtype):
    """With g other than 1 the product rounds once more at most."""
    x = grid(case, dtype)[::7]
    g = np.random.default_rng(8).normal(0, 1e3, x.shape).astype(dtype)
    worst, text = result_errors(case, dtype, case(g, x), g, x)
    assert worst <= TOLERANCES[dtype][0], text


@each_case
def test_far_tail(case):
    """float64 down to where results vanish, beyond the interval that the bound is promised on."""
    inputs = with_ones(case, np.concatenate([np.linspace(-37, -12, 60), np.linspace(12, 37, 60)]))
    worst, text = result_errors(case, "float64", case(*inputs), *inputs)
    assert worst <= TOLERANCES["float64"][0], text


@each_case
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_16_bit_input(case, dtype):
    """At most 1 ulp from the CPU's float64, which the tests above hold to 16 ulp of its own; finite, inf and NaN alike.
    """
    x = every_value(dtype)
    for g in (1.0, -0.6875, 1.5e-3, 100.0) if case.operator.backward else (1.0,):
        inputs = (np.full_like(x, g), x)[-case.count:]
        with np.errstate(all="ignore"):
            got = case(*inputs)
            exact = case(*(a.astype(float) for a in inputs), device="cpu")
        assert_ulp(got, exact, 1)


@each_gradient
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_results_round_to_nearest(case, dtype):
    """Every g, a few x: half an ulp, and what float32 adds to it; truncated or rounded twice it would be more."""
    g = every_value(dtype)
    with np.errstate(all="ignore"):
        for value in (-2.5, -0.5, 0.0, 0.375, 3.0):
            x = np.full_like(g, value)
            assert_ulp(case(g, x), case(g.astype(float), x.astype(float)), 0.505)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_ties_go_to_even(dtype):
    """Products with 0.5 and 1.5 that lie halfway between two values, normal and subnormal."""
    g = every_value(dtype)
    for slope in (0.5, 1.5):
        with np.errstate(all="ignore"):
            expected = (g.astype(float) * slope).astype(g.dtype).astype(float)
            got = iop.leaky_relu_backward(g, np.full_like(g, -1), slope).astype(float)
        np.testing.assert_array_equal(got, expected)


@each_gradient
def test_central_differences(case):
    """The plainest check there is: float64 differences of the forward, which know no derivative."""
    class FloatMath:
        import math as _math
        exp, expm1, log1p, erfc, tanh, sqrt = _math.exp, _math.expm1, _math.log1p, _math.erfc, _math.tanh, _math.sqrt
        pi, mpf = _math.pi, float

    def forward(x):
        return [case.operator.forward(FloatMath, v, **case.parameters) for v in x.tolist()]
    x = np.linspace(-6.05, 6.1, 200)
    x = x[[min((abs(v - kink) for kink in case.operator.kinks), default=1) > 1e-3 for v in x]]
    gradcheck(forward, case, x, rtol=1e-8, atol=1e-9)  # h^2 and eps/h


def test_the_reference_is_right():
    """The derivative from the forward equals closed forms where there are some."""
    with mpmath.workdps(40):
        for case in GRADIENTS:
            if case.operator.name == "sigmoid_backward":
                s = 1 / (1 + mpmath.exp(-mpmath.mpf(3)))
                assert abs(derivative(case, 3) - s * (1 - s)) < mpmath.mpf(10) ** -30
