"""Every operator, dtype and layout: the same bits as on contiguous arrays, and the right values."""
import numpy as np
import pytest
from rotation import each_case

from infiniop_cy.testing import (
    CASES,
    DTYPES,
    GRADIENTS,
    LAYOUTS,
    SHAPES,
    arrange,
    random_values,
    result_errors,
    same_bits,
    ulp_of,
)
from infiniop_cy.testing.reference import TOLERANCES

REFERENCED = 24  # elements per case compared with the 50-digit reference


@each_case(dtype=DTYPES, shape=SHAPES)
def test_values(case, dtype, shape, rng):
    """Contiguous arrays against the reference."""
    inputs = case.random(rng, SHAPES[shape], dtype)
    got = case(*inputs)
    assert got.shape == inputs[0].shape
    assert got.dtype == inputs[0].dtype
    pick = rng.integers(0, max(1, got.size), REFERENCED) if got.size else np.zeros(0, int)
    worst, text = result_errors(case, dtype, got.ravel()[pick], *(a.ravel()[pick] for a in inputs))
    assert worst <= TOLERANCES[dtype][0], text


@each_case(dtype=DTYPES, shape=SHAPES, layout=LAYOUTS)
def test_layout(case, dtype, shape, layout, rng):
    """Each operand in turn in this layout, and all of them."""
    inputs = case.random(rng, SHAPES[shape], dtype)
    expected = case(*inputs)
    lay = lambda a: arrange(a, layout)  # noqa: E731
    laid = tuple(map(lay, inputs))
    fresh = np.full_like(expected, 7)
    one_laid = [(*inputs[:k], laid[k], *inputs[k + 1:]) for k in range(case.count)]
    for operands, out in (*((one, None) for one in one_laid), (laid, None), (inputs, lay(fresh)), (laid, lay(fresh))):
        got = case(*operands, out=out)
        assert out is None or got is out
        assert same_bits(got, expected)


@each_case(dtype=DTYPES, shape=["0-d", "tail", "4-d", "parallel"], layout=LAYOUTS)
def test_in_place(case, dtype, shape, layout, rng):
    """Each input in turn is the output."""
    values = case.random(rng, SHAPES[shape], dtype)
    expected = case(*values)
    for k in range(case.count):
        inputs = [arrange(a.copy(), layout) for a in values]
        assert case(*inputs, out=inputs[k]) is inputs[k]
        assert same_bits(inputs[k], expected)


@each_case(cases=GRADIENTS, dtype=DTYPES, shapes=[
    ((5, 7), (7,)), ((5, 1), (1, 7)), ((), (4, 3)), ((3, 1, 2), (4, 1)), ((300, 1), (1, 200)), ((0, 1), (1, 3)),
    ((40000,), (1,))])
def test_broadcast(case, dtype, shapes, rng):
    """Broadcasting equals computing on the materialised arrays."""
    g, x = (random_values(rng, shape, dtype) for shape in shapes)
    full = [np.ascontiguousarray(a) for a in np.broadcast_arrays(g, x)]
    expected = case(*full)
    assert same_bits(case(g, x), expected)
    assert same_bits(case(*np.broadcast_arrays(g, x)), expected)  # zero strides from outside


@each_case(cases=GRADIENTS, dtype=DTYPES, shape=["0-d", "4-d", "parallel"], layout=["contiguous", "every other"])
def test_accumulate(case, dtype, shape, layout, rng):
    """out += gradient in the compute type, rounded once."""
    g, x, old = (random_values(rng, SHAPES[shape], dtype) for _ in range(3))
    out = arrange(old, layout)
    assert case(g, x, out=out, accumulate=True) is out
    if dtype in ("float32", "float64"):
        assert same_bits(out, old + case(g, x))
    else:  # one rounding to 16 bits, and what float32 adds to the gradient and to the sum
        gradient = case(g.astype(float), x.astype(float))
        exact = old.astype(float) + gradient
        error = np.abs(out.astype(float) - exact)
        assert (error <= ulp_of(exact, dtype) / 2 + 2e-6 * np.abs(gradient) + 2.0 ** -24 * np.abs(exact)).all()


@each_case(dtype=DTYPES, layouts=[("contiguous", "odd offset"), ("rotated", "padded rows"),
                                  ("transposed", "contiguous")])
def test_large_outputs(case, dtype, layouts, rng):
    """Outputs of more than a megabyte are stored past the caches; of any dtype, and equal to what small calls give."""
    shape = (3, 431, 419)
    *others, x = case.random(rng, shape, dtype)
    out = arrange(np.full_like(x, 7), layouts[1])
    case(*others, arrange(x, layouts[0]), out=out)
    for row in range(0, shape[1], 100):
        part = (slice(None), slice(row, row + 100))
        assert same_bits(out[part], case(*(a[part].copy() for a in (*others, x))))


@pytest.mark.parametrize("case", GRADIENTS, ids=str)
def test_many_axes(case, rng):
    """NumPy's limit of dimensions, and axes that merge only in part."""
    g = random_values(rng, (2,) * 6 + (1,) * 58, "float32")
    x = np.array(g.transpose(range(63, -1, -1)).reshape(g.shape))
    assert same_bits(case(g.swapaxes(0, 5), x), case(np.ascontiguousarray(g.swapaxes(0, 5)), x))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_result_keeps_the_order_of_its_inputs(layout, rng):
    """New results lie in memory as NumPy's would."""
    x = arrange(random_values(rng, (4, 5, 6), "float32"), layout)
    assert GRADIENTS[0](x, x).strides == np.add(x, x).strides
    assert CASES[-1](x).strides == np.exp(x).strides
