"""leaky_relu_backward promotes its inputs and casts into any out: the rules of aclnnLeakyReluBackward."""
import itertools

import numpy as np
import pytest

import infiniop_cy as iop
from infiniop_cy.dtypes import CAST_ONLY
from infiniop_cy.testing import DTYPES, arrange, dtype_of, random_values, same_bits

PROMOTED = {frozenset(("float16", "bfloat16")): "float32"}
RANK = ("float16", "bfloat16", "float32", "float64")


def promoted(a, b):
    return PROMOTED.get(frozenset((a, b)), max(a, b, key=RANK.index))


@pytest.mark.parametrize(("g_dtype", "x_dtype"), list(itertools.product(DTYPES, DTYPES)))
@pytest.mark.parametrize("layout", ["contiguous", "every other"])
def test_promotion(g_dtype, x_dtype, layout, rng):
    g, x = random_values(rng, (7, 301), g_dtype), random_values(rng, (7, 301), x_dtype)
    target = dtype_of(promoted(g_dtype, x_dtype))
    got = iop.leaky_relu_backward(arrange(g, layout), arrange(x, layout), 0.3)
    assert same_bits(got, iop.leaky_relu_backward(g.astype(target), x.astype(target), 0.3))


@pytest.mark.parametrize("out_dtype", [*DTYPES, *CAST_ONLY])
@pytest.mark.parametrize("dtype", DTYPES)
def test_out_is_cast_after_computing(dtype, out_dtype, rng):
    """In range, the cast is NumPy's."""
    g = np.abs(random_values(rng, (5, 77), dtype, scale=20))
    x = random_values(rng, (5, 77), dtype)
    out = arrange(np.zeros((5, 77), dtype_of(out_dtype)), "padded rows")
    assert iop.leaky_relu_backward(g, x, 0.5, out=out) is out
    expected = iop.leaky_relu_backward(g, x, 0.5)
    if dtype_of(dtype).kind == "V" or dtype_of(out_dtype).kind == "V":
        expected = expected.astype(np.float64)  # NumPy casts bfloat16 to few types directly; float64 is exact
    assert same_bits(out, expected.astype(out.dtype))


@pytest.mark.parametrize("out_dtype", [*DTYPES, *CAST_ONLY])
def test_descriptor_of_every_dtype_means_what_numpy_means(out_dtype):
    """A dtype's code and size: the core writes values of that dtype, in its own rows, and nothing between them."""
    rows = np.zeros((3, 8), dtype_of(out_dtype))
    out, values = rows[:, :5], np.arange(15, dtype=np.float32).reshape(3, 5)
    described = iop.TensorDescriptor((3, 5), out_dtype, strides=(8, 1))
    inputs = iop.TensorDescriptor((3, 5), "float32")
    op = iop.LeakyReluBackwardDescriptor(iop.Handle(), described, inputs, inputs)
    op.calculate(None, out, np.ones((3, 5), np.float32), values)
    expected = np.zeros((3, 8), rows.dtype)
    expected[:, :5] = values.astype(rows.dtype)
    assert same_bits(rows, expected)
    assert described.dtype == rows.dtype


@pytest.mark.parametrize(("out_dtype", "values", "expected"), [
    ("int8", [1e9, -1e9, np.nan, np.inf, -2.9, 127.5], [127, -128, 0, 127, -2, 127]),
    ("uint8", [1e9, -1, np.nan, -np.inf, 2.9], [255, 0, 0, 0, 2]),
    ("int64", [1e30, -1e30, np.nan, 2.0**62], [2**63 - 1, -2**63, 0, 2**62]),
    ("uint64", [1e30, -5, 2.0**63], [2**64 - 1, 0, 2**63]),
    ("int32", [2.0**31, -(2.0**31) - 1, 7], [2**31 - 1, -2**31, 7]),
    ("bool", [0.0, -0.0, 0.25, np.nan, np.inf], [False, False, True, True, True]),
    ("complex64", [1.5, -2.0], [1.5 + 0j, -2 + 0j]),
])
def test_casts_out_of_range_saturate(out_dtype, values, expected):
    """NumPy leaves these undefined; here they are the same everywhere."""
    for dtype in ("float32", "float64"):
        g = np.array(values, dtype)
        out = np.zeros(len(g), out_dtype)
        iop.leaky_relu_backward(g, np.ones_like(g), out=out)
        np.testing.assert_array_equal(out, np.array(expected, out_dtype))


def test_float64_rounds_once_into_16_bits():
    """1 + 2^-11 + 2^-40 is above the midpoint of two float16; through float32 it would be the midpoint."""
    g = np.array([1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11, 1 + 3 * 2.0**-11 - 2.0**-40, -1 - 2.0**-11 - 2.0**-40])
    out = np.zeros(4, np.float16)
    iop.leaky_relu_backward(g, np.ones(4), out=out)
    np.testing.assert_array_equal(out, g.astype(np.float16))


def test_every_float16_and_bfloat16_survives_promotion():
    for dtype in ("float16", "bfloat16"):
        g = np.arange(65536, dtype=np.uint16).view(dtype_of(dtype))
        got = iop.leaky_relu_backward(g, np.ones(65536, np.float64))
        with np.errstate(invalid="ignore"):  # signalling NaN
            np.testing.assert_array_equal(got, g.astype(np.float64))


def test_float32_to_16_bits_rounds_like_numpy(rng):
    """A million random bit patterns, NaN, inf and subnormals among them."""
    g = rng.integers(0, 2**32, 1_000_000, np.uint32).view(np.float32)
    for dtype in ("float16", "bfloat16"):
        out = np.zeros(g.shape, dtype_of(dtype))
        iop.leaky_relu_backward(g, np.ones_like(g), out=out)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(out.astype(np.float32), g.astype(out.dtype).astype(np.float32))


@pytest.mark.parametrize("out_dtype", DTYPES)
def test_accumulate_into_another_dtype(out_dtype, rng):
    """Nothing of what out holds is lost before the sum is rounded once."""
    g, x = random_values(rng, (1000,), "float16"), random_values(rng, (1000,), "float16")
    old = random_values(rng, (1000,), out_dtype)
    out = old.copy()
    iop.leaky_relu_backward(g, x, 0.5, out=out, accumulate=True)
    exact = old.astype(float) + np.where(x.astype(float) > 0, g.astype(float), g.astype(float) * 0.5)
    np.testing.assert_array_equal(out, exact.astype(np.float32).astype(out.dtype) if out_dtype != "float64" else exact)


def test_accumulate_into_integers_is_refused():
    out = np.ones(3, np.int32)
    with pytest.raises(iop.BadTensorDtype, match="out has dtype int32"):
        iop.leaky_relu_backward(np.ones(3), np.ones(3), out=out, accumulate=True)
    np.testing.assert_array_equal(out, 1)
