"""What each operator promises at zeros, infinities and NaN, row by row, in every dtype; and the corners beside it."""
from math import exp, expm1, log1p

import ml_dtypes
import numpy as np
import pytest

import infiniop_cy as iop
from infiniop_cy.operators import BY_NAME
from infiniop_cy.testing import DTYPES, dtype_of

INF, NAN = np.inf, np.nan

# (operator, parameters, g, x, expected); sigma'(x) of the far tails is checked by test_accuracy.
GRADIENTS = [
    ("relu_backward", {}, 3.0, 0.0, 0.0),
    ("relu_backward", {}, 3.0, -0.0, 0.0),
    ("relu_backward", {}, 3.0, INF, 3.0),
    ("relu_backward", {}, 3.0, -INF, 0.0),
    ("relu_backward", {}, 3.0, NAN, 3.0),
    ("relu_backward", {}, INF, 0.0, 0.0),
    ("relu_backward", {}, NAN, -1.0, 0.0),
    ("relu_backward", {}, NAN, 1.0, NAN),
    ("relu_backward", {}, -INF, 1.0, -INF),
    ("leaky_relu_backward", {"negative_slope": 0.5}, 3.0, 0.0, 1.5),
    ("leaky_relu_backward", {"negative_slope": 0.5}, 3.0, -0.0, 1.5),
    ("leaky_relu_backward", {"negative_slope": 0.5}, 3.0, NAN, 1.5),
    ("leaky_relu_backward", {"negative_slope": 0.5}, 3.0, INF, 3.0),
    ("leaky_relu_backward", {"negative_slope": 0.5}, 3.0, -INF, 1.5),
    ("leaky_relu_backward", {"negative_slope": 0.0}, INF, -1.0, NAN),
    ("leaky_relu_backward", {"negative_slope": 0.0}, 3.0, -1.0, 0.0),
    ("leaky_relu_backward", {"negative_slope": 0.0, "self_is_result": True}, 3.0, 0.0, 0.0),
    ("leaky_relu_backward", {"negative_slope": -2.0}, 3.0, -1.0, -6.0),
    ("leaky_relu_backward", {"negative_slope": NAN}, 3.0, -1.0, NAN),
    *[("gelu_backward", {"approximate": form}, g, x, expected) for form in ("none", "tanh") for g, x, expected in (
        (3.0, 0.0, 1.5), (3.0, -0.0, 1.5), (-0.375, 0.0, -0.1875), (3.0, NAN, NAN), (3.0, INF, 3.0), (3.0, -INF, 0.0),
        (NAN, 1.0, NAN), (INF, 1.0, INF), (-INF, 1.0, -INF), (0.0, -3.0, 0.0), (3.0, 40.0, 3.0))],
    ("sigmoid_backward", {}, 3.0, INF, 0.0),
    ("sigmoid_backward", {}, 3.0, -INF, 0.0),
    ("sigmoid_backward", {}, 4.0, 0.0, 1.0),
    ("sigmoid_backward", {}, 4.0, -0.0, 1.0),
    ("sigmoid_backward", {}, 3.0, NAN, NAN),
    ("sigmoid_backward", {}, INF, 1.0, INF),
    *[(name, {}, g, x, expected) for name in ("silu_backward", "quick_gelu_backward") for g, x, expected in (
        (3.0, 0.0, 1.5), (3.0, -0.0, 1.5), (3.0, NAN, NAN), (3.0, INF, 3.0), (3.0, -INF, 0.0), (INF, 1.0, INF))],
    *[("mish_backward", {}, g, x, expected) for g, x, expected in (
        (3.0, NAN, NAN), (3.0, INF, 3.0), (3.0, -INF, 0.0), (3.0, 200.0, 3.0), (3.0, -3e4, 0.0), (INF, 1.0, INF))],
    *[("tanh_backward", {}, 3.0, x, expected) for x, expected in (
        (0.0, 3.0), (-0.0, 3.0), (NAN, NAN), (INF, 0.0), (-INF, 0.0))],
    *[("softplus_backward", given, 3.0, x, expected) for given, x, expected in (
        ({}, 0.0, 1.5), ({}, NAN, NAN), ({}, INF, 3.0), ({}, -INF, 0.0), ({}, 20.5, 3.0), ({"beta": 2.0}, 11.0, 3.0),
        ({"threshold": -1.0}, 0.0, 3.0), ({"beta": -2.0}, -11.0, 3.0), ({"beta": -2.0}, INF, 0.0))],
    *[("log_sigmoid_backward", {}, 3.0, x, expected) for x, expected in (
        (0.0, 1.5), (NAN, NAN), (INF, 0.0), (-INF, 3.0))],
    *[("elu_backward", {"alpha": 0.5}, 4.0, x, expected) for x, expected in (
        (0.0, 2.0), (-0.0, 2.0), (1.0, 4.0), (NAN, NAN), (INF, 4.0), (-INF, 0.0))],
    *[("selu_backward", {}, 3.0, x, expected) for x, expected in ((NAN, NAN), (-INF, 0.0))],
    *[("celu_backward", {"alpha": 0.5}, 4.0, x, expected) for x, expected in (
        (0.0, 4.0), (-0.0, 4.0), (1.0, 4.0), (NAN, NAN), (INF, 4.0), (-INF, 0.0))],
    *[("hardswish_backward", {}, 3.0, x, expected) for x, expected in (
        (-3.0, 0.0), (3.0, 3.0), (0.0, 1.5), (-1.5, 0.0), (1.5, 3.0), (NAN, NAN), (INF, 3.0), (-INF, 0.0))],
    *[("hardsigmoid_backward", {}, 6.0, x, expected) for x, expected in (
        (-3.0, 0.0), (3.0, 0.0), (0.0, 1.0), (NAN, 1.0), (INF, 0.0), (-INF, 0.0))],
    *[("hardtanh_backward", given, 3.0, x, expected) for given, x, expected in (
        ({}, -1.0, 0.0), ({}, 1.0, 0.0), ({}, 0.5, 3.0), ({}, NAN, 3.0), ({}, INF, 0.0), ({}, -INF, 0.0),
        ({"min_val": 2.0, "max_val": 2.0}, 2.0, 0.0), ({"min_val": -4.0}, -3.0, 3.0))],
    *[("relu6_backward", {}, 3.0, x, expected) for x, expected in (
        (0.0, 0.0), (6.0, 0.0), (5.0, 3.0), (NAN, 3.0), (INF, 0.0), (-INF, 0.0))],
    *[("softsign_backward", {}, 4.0, x, expected) for x, expected in (
        (0.0, 4.0), (1.0, 1.0), (-1.0, 1.0), (NAN, NAN), (INF, 0.0), (-INF, 0.0))],
    # An infinite g, where exponentials leave float16, the normal numbers of float32 and of float64, and where they end.
    *[(name, given, INF, x, expected) for name, given, expected in (
        ("gelu_backward", {}, -INF), ("gelu_backward", {"approximate": "tanh"}, -INF), ("silu_backward", {}, -INF),
        ("quick_gelu_backward", {}, -INF), ("mish_backward", {}, -INF), ("sigmoid_backward", {}, INF),
        ("tanh_backward", {}, INF), ("softplus_backward", {}, INF), ("softplus_backward", {"beta": 4.0}, INF),
        ("elu_backward", {}, INF), ("elu_backward", {"alpha": -0.5}, -INF), ("selu_backward", {}, INF),
        ("celu_backward", {}, INF), ("celu_backward", {"alpha": 0.25}, INF),
    ) for x in (-14.0, -60.0, -90.0, -130.0, -1100.0, -30000.0, -INF)],
    *[("log_sigmoid_backward", {}, -INF, x, -INF) for x in (14.0, 90.0, 1100.0, INF)],
]


# (operator, parameters, x, expected)
VALUES = [
    *[("relu", {}, x, expected) for x, expected in ((INF, INF), (-INF, 0.0), (NAN, NAN), (0.0, 0.0), (-0.0, -0.0))],
    *[("leaky_relu", {"negative_slope": 0.5}, x, expected) for x, expected in (
        (INF, INF), (-INF, -INF), (NAN, NAN), (0.0, 0.0), (-0.0, -0.0), (-1.0, -0.5))],
    ("leaky_relu", {"negative_slope": 0.0}, -INF, NAN),
    ("leaky_relu", {"negative_slope": NAN}, -1.0, NAN),
    ("leaky_relu", {"negative_slope": -2.0}, -1.0, 2.0),
    *[("gelu", {"approximate": form}, x, expected) for form in ("none", "tanh") for x, expected in (
        (INF, INF), (-INF, 0.0), (NAN, NAN), (0.0, 0.0), (-0.0, -0.0), (100.0, 100.0))],
    *[("sigmoid", {}, x, expected) for x, expected in ((INF, 1.0), (-INF, 0.0), (NAN, NAN), (0.0, 0.5), (-0.0, 0.5))],
    *[(name, {}, x, expected) for name in ("silu", "quick_gelu", "mish") for x, expected in (
        (INF, INF), (-INF, 0.0), (NAN, NAN), (0.0, 0.0), (-0.0, -0.0), (200.0, 200.0), (-3e4, 0.0))],
    *[("tanh", {}, x, expected) for x, expected in (
        (INF, 1.0), (-INF, -1.0), (NAN, NAN), (0.0, 0.0), (-0.0, -0.0), (100.0, 1.0))],
    *[("softplus", given, x, expected) for given, x, expected in (
        ({}, INF, INF), ({}, -INF, 0.0), ({}, NAN, NAN), ({}, 24.0, 24.0), ({"beta": 2.0}, INF, INF),
        ({"threshold": -1.0}, 0.0, 0.0), ({"beta": -2.0}, -INF, -INF), ({"beta": -2.0}, INF, 0.0))],
    *[("log_sigmoid", {}, x, expected) for x, expected in ((INF, 0.0), (-INF, -INF), (NAN, NAN), (-64.0, -64.0))],
    *[(name, {"alpha": 0.5}, x, expected) for name in ("elu", "celu") for x, expected in (
        (INF, INF), (-INF, -0.5), (NAN, NAN), (2.0, 2.0), (0.0, 0.0), (-0.0, -0.0))],
    *[("selu", {}, x, expected) for x, expected in ((INF, INF), (NAN, NAN), (0.0, 0.0), (-0.0, -0.0))],
    *[("hardswish", {}, x, expected) for x, expected in (
        (INF, INF), (-INF, 0.0), (NAN, NAN), (-3.0, 0.0), (3.0, 3.0), (-4.0, 0.0), (16384.0, 16384.0), (0.0, 0.0))],
    *[("hardsigmoid", {}, x, expected) for x, expected in (
        (INF, 1.0), (-INF, 0.0), (NAN, NAN), (-3.0, 0.0), (3.0, 1.0), (0.0, 0.5))],
    *[("hardtanh", {}, x, expected) for x, expected in (
        (INF, 1.0), (-INF, -1.0), (NAN, NAN), (0.0, 0.0), (-0.0, -0.0), (0.5, 0.5))],
    ("hardtanh", {"min_val": 0.25, "max_val": 0.25}, -3.0, 0.25),
    *[("relu6", {}, x, expected) for x, expected in ((INF, 6.0), (-INF, 0.0), (NAN, NAN), (-0.0, -0.0), (7.0, 6.0))],
    *[("softsign", {}, x, expected) for x, expected in (
        (INF, 1.0), (-INF, -1.0), (NAN, NAN), (0.0, 0.0), (-0.0, -0.0), (1.0, 0.5))],
]
TABLE = [*((name, given, (g, x), expected) for name, given, g, x, expected in GRADIENTS),
         *((name, given, (x,), expected) for name, given, x, expected in VALUES)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("operator", "parameters", "inputs", "expected"), TABLE, ids=str)
@pytest.mark.parametrize("n", [1, 100])  # a tail, and whole vectors
def test_table(dtype, operator, parameters, inputs, expected, n):
    got = getattr(iop, operator)(*(np.full(n, value, dtype_of(dtype)) for value in inputs), **parameters)
    np.testing.assert_array_equal(got.astype(float), np.full(n, expected))
    if expected == 0 and len(inputs) == 1 and inputs[0] == 0:
        assert (np.signbit(got) == np.signbit(expected)).all()


# Parameters at the ends of the range, alone or with an input there: (operator, parameters, dtypes, inputs, the result
# of these as the dtype has them). A parameter that the compute type does not hold is infinite there.
SINGLE, WIDE = ("bfloat16", "float32"), ("bfloat16", "float32", "float64")
FAR_PARAMETERS = [
    ("elu_backward", {"alpha": 1e-35}, WIDE, (1e30, -20.0), lambda g, x: 1e-35 * g * exp(x)),
    ("elu_backward", {"alpha": 1e-35}, WIDE, (1e-3, -1.0), lambda g, x: 1e-35 * g * exp(x)),
    ("elu_backward", {"alpha": -1e38}, WIDE, (1e-30, -40.0), lambda g, x: -1e38 * g * exp(x)),
    ("elu_backward", {"alpha": 3e38}, WIDE, (1e-3, -0.5), lambda g, x: 3e38 * g * exp(x)),
    ("elu_backward", {"alpha": 3e38}, WIDE, (1.0, -0.25), lambda g, x: 3e38 * g * exp(x)),
    *[("elu_backward", {"alpha": alpha}, ("float16",), (g, x), lambda g, x, alpha=alpha: alpha * g * exp(x))
      for alpha, g, x in ((1e38, 1.0, -89.0), (-3e38, 60000.0, -110.0), (1e30, 0.5, -60.0), (1e38, 1.0, -3e4))],
    ("elu_backward", {"alpha": 1e308}, ("float64",), (1e-3, -600.0), lambda g, x: 1e308 * exp(x) * g),
    ("celu", {"alpha": 1e30}, WIDE, (-1e-12,), lambda x: x),
    ("celu", {"alpha": 3e38}, WIDE, (-1e38,), lambda x: 3e38 * expm1(x / 3e38)),
    ("celu", {"alpha": 1e-39}, (*DTYPES,), (-1.0,), lambda x: -1e-39),
    ("celu", {"alpha": 1e-39}, (*DTYPES,), (0.0,), lambda x: 0.0),
    ("celu", {"alpha": 3.5e38}, (*DTYPES,), (0.0,), lambda x: 0.0),
    ("celu", {"alpha": 1e40}, SINGLE, (-3e38,), lambda x: x),
    ("celu", {"alpha": INF}, (*DTYPES,), (-3e4,), lambda x: x),
    ("celu", {"alpha": 1e306}, ("float64",), (-1e-3,), lambda x: x),
    ("celu", {"alpha": 1e306}, ("float64",), (-1e307,), lambda x: 1e306 * expm1(x / 1e306)),
    ("celu_backward", {"alpha": 3e38}, WIDE, (2.0, -3e38), lambda g, x: g * exp(x / 3e38)),
    ("celu_backward", {"alpha": 1e-37}, WIDE, (2.0, -1e-37), lambda g, x: g * exp(x / 1e-37)),
    ("celu_backward", {"alpha": 1e-60}, ("float32",), (2.0, -1e-45), lambda g, x: 0.0),
    ("celu_backward", {"alpha": INF}, (*DTYPES,), (2.0, -3e4), lambda g, x: g),
    ("softplus", {"beta": 3e38}, WIDE, (-1.0,), lambda x: 0.0),
    ("softplus", {"beta": 3e38}, WIDE, (-1e-38,), lambda x: log1p(exp(3e38 * x)) / 3e38),
    ("softplus", {"beta": 1e35, "threshold": INF}, WIDE, (1e-35,), lambda x: log1p(exp(1e35 * x)) / 1e35),
    ("softplus", {"beta": 2.0, "threshold": INF}, WIDE, (3e38,), lambda x: x),
    ("softplus", {"beta": 1e-37}, WIDE, (-3e38,), lambda x: log1p(exp(1e-37 * x)) / 1e-37),
    *[("softplus", {"beta": beta}, (*DTYPES,), (-INF,), lambda x: 0.0) for beta in (1e-37, 1e-36, 1e-30)],
    ("softplus", {"beta": INF}, (*DTYPES,), (-1.0,), lambda x: 0.0),
    ("softplus_backward", {"beta": 3e38}, WIDE, (2.0, -1e-38), lambda g, x: g / (1 + exp(-3e38 * x))),
    ("softplus_backward", {"beta": 1e-37}, WIDE, (2.0, -3e38), lambda g, x: g / (1 + exp(-1e-37 * x))),
]


@pytest.mark.parametrize(("operator", "parameters", "dtypes", "inputs", "expected"), FAR_PARAMETERS,
                         ids=lambda value: getattr(value, "__name__", None) or str(value))
def test_far_parameters(operator, parameters, dtypes, inputs, expected):
    for dtype in map(dtype_of, dtypes):
        given = [np.full(9, value).astype(dtype) for value in inputs]
        right = expected(*(float(array[0]) for array in given))
        got = getattr(iop, operator)(*given, **parameters).astype(float)
        information = ml_dtypes.finfo(dtype)
        ulps = 1 if dtype.itemsize == 2 else 4
        np.testing.assert_allclose(got, right, rtol=ulps * float(information.eps),
                                   atol=ulps * float(information.smallest_subnormal), err_msg=str(dtype))


@pytest.mark.parametrize("operator", ["celu", "celu_backward", "softplus", "softplus_backward", "elu_backward"])
def test_nan_parameters_give_nan(operator):
    if operator.startswith("celu"):
        with pytest.raises(iop.BadParam, match="alpha is nan, expected above 0"):
            getattr(iop, operator)(*[np.float32([-1])] * len(BY_NAME[operator].inputs), alpha=NAN)
        return
    given = {"beta" if "softplus" in operator else "alpha": NAN}
    for dtype in DTYPES:
        inputs = [np.full(9, -1).astype(dtype_of(dtype))] * len(BY_NAME[operator].inputs)
        assert np.isnan(getattr(iop, operator)(*inputs, **given).astype(float)).all()


def test_every_operator_is_in_the_table():
    assert {operator for operator, *_ in TABLE} == set(BY_NAME)


@pytest.mark.parametrize(("dtype", "g"), [("float16", 60000.0), ("bfloat16", 3e38), ("float32", 3e38),
                                          ("float64", 1e308)])
@pytest.mark.parametrize("operator", ["gelu_backward", "sigmoid_backward"])
def test_a_huge_gradient_does_not_revive_infinity(dtype, g, operator):
    """x = -inf gives 0 with the largest g too, although g meets the tail before it underflows."""
    x = np.array([-INF], dtype_of(dtype))
    assert getattr(iop, operator)(np.array([g], dtype_of(dtype)), x).astype(float) == 0


@pytest.mark.parametrize(("dtype", "x"), [("float32", 17.0), ("float32", 80.0), ("float32", -100.0), ("float16", 10.0),
                                          ("bfloat16", 10.0), ("float64", 700.0)])
def test_sigmoid_does_not_vanish_early(dtype, x):
    """s*(1 - s) computed literally is 0 at all of these."""
    assert iop.sigmoid_backward(np.array([1], dtype_of(dtype)), np.array([x], dtype_of(dtype))).astype(float) > 0


@pytest.mark.parametrize(("x", "expected"), [(-6.0, -3.5468709e-8), (-7.0, -6.266323e-11), (-12.0, -2.5578957e-31)])
def test_gelu_tail_keeps_relative_accuracy(x, expected):
    """torch is 16 % off at -6 and gives 0 from -7 in float32."""
    got = iop.gelu_backward(np.float32([1]), np.float32([x]))[0]
    assert got == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operator", BY_NAME)
def test_nan_is_nan_of_whichever_sign(dtype, operator):
    """Where two NaN meet, processors keep the one or the other: the sign is not promised, by position or by layout."""
    nan = np.array([NAN, -NAN] * 34)[:67].astype(dtype_of(dtype))
    inputs = [nan] * len(BY_NAME[operator].inputs)
    for step in (1, 2):
        for keywords in ({}, {"accumulate": True})[:len(inputs)]:
            out = np.full(67 * step, -NAN, dtype_of(dtype))[::step]
            assert np.isnan(getattr(iop, operator)(*inputs, out=out, **keywords).astype(float)).all()


def test_leaky_slope_stays_in_compute_precision():
    """A slope rounded to bfloat16 would be 0.01001 and give 1.2812."""
    import ml_dtypes
    g, x = np.array([127.5], ml_dtypes.bfloat16), np.array([-1], ml_dtypes.bfloat16)
    assert iop.leaky_relu_backward(g, x, 0.01)[0] == ml_dtypes.bfloat16(127.5 * 0.01)
    g, x = np.float16([3000]), np.float16([-1])
    assert iop.leaky_relu_backward(g, x, 1e-8)[0] == np.float16(3000e-8)  # 1e-8 is 0 in float16


def test_relu_is_not_leaky_with_slope_0():
    g, x = np.float32([INF, NAN]), np.float32([-1, -1])
    np.testing.assert_array_equal(iop.relu_backward(g, x), [0, 0])
    np.testing.assert_array_equal(iop.leaky_relu_backward(g, x, 0.0), [NAN, NAN])


def test_documented_tanh_erratum():
    """The formula printed in the infiniop document lacks 1/2 and would give 0 at x = 0."""
    assert iop.gelu_backward(np.float64([1]), np.float64([0]), approximate="tanh")[0] == 0.5
    assert "without the 1" in iop.gelu_backward.__doc__
