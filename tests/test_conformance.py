"""Every operator, dtype and layout: the same bits as on contiguous arrays, and the right values."""
import numpy as np
import pytest

from infiniop_cy.testing import (
    CASES,
    DTYPES,
    LAYOUTS,
    SHAPES,
    arrange,
    gradient_errors,
    random_values,
    same_bits,
    ulp_of,
)
from infiniop_cy.testing.reference import TOLERANCES

REFERENCED = 24  # elements per case compared with the 50-digit reference

each_case = pytest.mark.parametrize("case", CASES, ids=str)
each_dtype = pytest.mark.parametrize("dtype", DTYPES)
each_shape = pytest.mark.parametrize("shape", SHAPES)


@each_case
@each_dtype
@each_shape
def test_values(case, dtype, shape, rng):
    """Contiguous arrays against the reference."""
    g, x = (random_values(rng, SHAPES[shape], dtype) for _ in range(2))
    got = case(g, x)
    assert got.shape == g.shape
    assert got.dtype == g.dtype
    pick = rng.integers(0, max(1, got.size), REFERENCED) if got.size else np.zeros(0, int)
    worst, text = gradient_errors(case, dtype, got.ravel()[pick], g.ravel()[pick], x.ravel()[pick])
    assert worst <= TOLERANCES[dtype][0], text


@each_case
@each_dtype
@each_shape
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout(case, dtype, shape, layout, rng):
    """Each operand in turn in this layout, and all of them."""
    g, x = (random_values(rng, SHAPES[shape], dtype) for _ in range(2))
    expected = case(g, x)
    lay = lambda a: arrange(a, layout)  # noqa: E731
    fresh = np.full_like(expected, 7)
    for grad_output, input, out in ((lay(g), x, None), (g, lay(x), None), (lay(g), lay(x), None),
                                    (g, x, lay(fresh)), (lay(g), lay(x), lay(fresh))):
        got = case(grad_output, input, out=out)
        assert out is None or got is out
        assert same_bits(got, expected)


@each_case
@each_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", ["0-d", "tail", "4-d", "parallel"])
@pytest.mark.parametrize("place", ["grad_output", "input"])
def test_in_place(case, dtype, shape, layout, place, rng):
    g, x = (arrange(random_values(rng, SHAPES[shape], dtype), layout) for _ in range(2))
    expected = case(g, x)
    target = g if place == "grad_output" else x
    assert case(g, x, out=target) is target
    assert same_bits(target, expected)


@each_case
@each_dtype
@pytest.mark.parametrize(("g_shape", "x_shape"), [((5, 7), (7,)), ((5, 1), (1, 7)), ((), (4, 3)), ((3, 1, 2), (4, 1)),
                                                  ((300, 1), (1, 200)), ((0, 1), (1, 3)), ((40000,), (1,))], ids=str)
def test_broadcast(case, dtype, g_shape, x_shape, rng):
    """Broadcasting equals computing on the materialised arrays."""
    g, x = random_values(rng, g_shape, dtype), random_values(rng, x_shape, dtype)
    full = [np.ascontiguousarray(a) for a in np.broadcast_arrays(g, x)]
    expected = case(*full)
    assert same_bits(case(g, x), expected)
    assert same_bits(case(*np.broadcast_arrays(g, x)), expected)  # zero strides from outside


@each_case
@each_dtype
@pytest.mark.parametrize("shape", ["0-d", "4-d", "parallel"])
@pytest.mark.parametrize("layout", ["contiguous", "every other"])
def test_accumulate(case, dtype, shape, layout, rng):
    """out += gradient in the compute type, rounded once."""
    g, x, old = (random_values(rng, SHAPES[shape], dtype) for _ in range(3))
    out = arrange(old, layout)
    assert case(g, x, out=out, accumulate=True) is out
    if dtype in ("float32", "float64"):
        assert same_bits(out, old + case(g, x))
    else:  # one rounding to 16 bits, and what float32 adds to the gradient
        gradient = case(g.astype(float), x.astype(float))
        exact = old.astype(float) + gradient
        error = np.abs(out.astype(float) - exact)
        assert (error <= ulp_of(exact, dtype) / 2 + 2e-6 * np.abs(gradient)).all()


@each_case
@each_dtype
@pytest.mark.parametrize(("x_layout", "out_layout"), [("contiguous", "odd offset"), ("rotated", "padded rows"),
                                                      ("transposed", "contiguous")])
def test_large_outputs(case, dtype, x_layout, out_layout, rng):
    """Outputs of more than a megabyte are stored past the caches; of any dtype, and equal to what small calls give."""
    shape = (3, 431, 419)
    g, x = random_values(rng, shape, dtype), random_values(rng, shape, dtype)
    out = arrange(np.full_like(g, 7), out_layout)
    case(g, arrange(x, x_layout), out=out)
    for row in range(0, shape[1], 100):
        part = (slice(None), slice(row, row + 100))
        assert same_bits(out[part], case(g[part].copy(), x[part].copy()))


@each_case
def test_many_axes(case, rng):
    """NumPy's limit of dimensions, and axes that merge only in part."""
    g = random_values(rng, (2,) * 6 + (1,) * 58, "float32")
    x = np.array(g.transpose(range(63, -1, -1)).reshape(g.shape))
    assert same_bits(case(g.swapaxes(0, 5), x), case(np.ascontiguousarray(g.swapaxes(0, 5)), x))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_result_keeps_the_order_of_its_inputs(layout, rng):
    """New results lie in memory as NumPy's would."""
    x = arrange(random_values(rng, (4, 5, 6), "float32"), layout)
    assert CASES[0](x, x).strides == np.add(x, x).strides
