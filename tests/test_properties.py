"""Properties that hold exactly for every elementwise operator, on drawn shapes, strides and values."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from rotation import each_case

from infiniop_cy.testing import CASES, DTYPES, FORMATS, GRADIENTS, dtype_of, random_values, same_bits

seeds = st.integers(0, 2**32 - 1)


@st.composite
def views(draw, shape):
    """A view of that shape on some buffer: axes permuted, steps and directions drawn, gaps between."""
    order = draw(st.permutations(range(len(shape))))
    steps = [draw(st.sampled_from([1, 1, 2, 3, -1, -2])) for _ in shape]
    pads = [draw(st.integers(0, 2)) for _ in shape]

    def build(values):
        holder_shape = [values.shape[axis] * abs(steps[axis]) + pads[axis] for axis in order]
        holder = np.full(holder_shape, 99, values.dtype)
        view = holder.transpose(np.argsort(order))[(*(
            slice(pads[axis] if steps[axis] > 0 else None, None, steps[axis]) for axis in range(len(shape))), ...)]
        view = view[(*(slice(0, n) for n in shape), ...)]
        view[...] = values
        return view, holder
    return build


def drawn_keywords(data, case):
    """Whether a gradient is accumulated."""
    return {"accumulate": data.draw(st.booleans())} if case.operator.backward else {}


shapes = st.lists(st.integers(1, 7), min_size=0, max_size=5).map(tuple)


@each_case(dtype=DTYPES, turns=1)
@given(data=st.data(), seed=seeds)
def test_any_strides_give_the_same_bits(case, dtype, data, seed):
    shape = data.draw(shapes)
    rng = np.random.default_rng(seed)
    *inputs, old = (*case.random(rng, shape, dtype), random_values(rng, shape, dtype))
    keywords = drawn_keywords(data, case)
    expected = case(*inputs, out=old.copy(), **keywords)
    *drawn, (out, holder) = (data.draw(views(shape))(values) for values in (*inputs, old))
    before = [input_holder.copy() for _, input_holder in drawn]
    out[...] = 0
    outside = holder.copy()
    out[...] = old
    assert case(*(view for view, _ in drawn), out=out, **keywords) is out
    assert same_bits(np.array(out), expected)
    assert all(same_bits(input_holder, then) for (_, input_holder), then in zip(drawn, before))
    out[...] = 0  # what is not out has kept its canaries
    assert same_bits(holder, outside)


@each_case(cases=GRADIENTS, dtype=DTYPES, turns=1)
@given(seed=seeds, n=st.integers(1, 200))
def test_linear_in_grad_output(case, dtype, seed, n):
    """A power of two goes through every rounding, unless it is to a subnormal: f(2g, x) = 2 f(g, x)."""
    rng = np.random.default_rng(seed)
    g, x = random_values(rng, n, dtype), random_values(rng, n, dtype, scale=1)
    once, twice = case(g, x), case(g * g.dtype.type(2), x)
    normal = np.abs(once.astype(float)) >= 2.0 ** FORMATS[dtype][1]
    assert same_bits(twice[normal], (once * g.dtype.type(2))[normal])


@given(data=st.data(), seed=seeds, n=st.integers(1, 200_000), threads=st.integers(2, 9), cut=st.floats(0, 1))
@each_case(dtype=DTYPES, turns=1)
def test_threads_and_cuts(case, dtype, data, seed, n, threads, cut):
    """Any number of threads, and any cut of the batch, give the same bits."""
    rng = np.random.default_rng(seed)
    *inputs, old = (*case.random(rng, n, dtype), random_values(rng, n, dtype))
    keywords = drawn_keywords(data, case)
    at = int(cut * n)
    one, many, pieces = (old.copy() for _ in range(3))
    case(*inputs, out=one, **keywords, num_threads=1)
    case(*inputs, out=many, **keywords, num_threads=threads)
    for part in (slice(None, at), slice(at, None)):
        case(*(a[part] for a in inputs), out=pieces[part], **keywords)
    assert same_bits(many, one)
    assert same_bits(pieces, one)


@each_case(cases=GRADIENTS)
@given(data=st.data(), seed=seeds)
def test_broadcast_is_materialised(case, data, seed):
    shapes_drawn = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=5))
    rng = np.random.default_rng(seed)
    g, x = (random_values(rng, shape, "float32") for shape in shapes_drawn.input_shapes)
    got = case(g, x)
    assert got.shape == shapes_drawn.result_shape
    assert same_bits(got, case(*(a.copy() for a in np.broadcast_arrays(g, x))))


def overlapping(draw, n):
    """Three same-length views of one buffer, overlapping in any way."""
    buffer = np.random.default_rng(draw(seeds)).normal(0, 1, 4 * n + 8).astype(np.float32)

    def view():
        step = draw(st.sampled_from([1, 1, 2, -1, -2]))
        start = draw(st.integers(0, buffer.size - 1 - (n - 1) * abs(step)))
        part = buffer[start:start + (n - 1) * abs(step) + 1:abs(step)]
        return part[::-1] if step < 0 else part
    return view(), view(), view()


@given(data=st.data(), n=st.integers(1, 40))
def test_overlap_is_as_if_there_were_none(data, n):
    """NumPy's rule, on views that overlap partly, exactly, interleaved or backwards."""
    case = data.draw(st.sampled_from(CASES))
    keywords = drawn_keywords(data, case)
    *inputs, out = overlapping(data.draw, n)[-1 - case.count:]
    expected = case(*(a.copy() for a in inputs), out=out.copy(), **keywords)
    case(*inputs, out=out, **keywords)
    assert same_bits(np.array(out), expected)


@given(data=st.data())
def test_overlap_of_a_broadcast_input(data):
    """out[i] = f(g[i], out[0]): the one element that is read throughout is overwritten first."""
    case = data.draw(st.sampled_from(GRADIENTS))
    x = np.linspace(-2, 2, 50, dtype=np.float32)
    g = np.ones(50, np.float32)
    expected = case(g, np.full(50, x[7]))
    case(g, x[7:8], out=x)
    assert same_bits(x, expected)


@pytest.mark.parametrize("make", [
    lambda a: a.astype(a.dtype.newbyteorder(">")),
    lambda a: np.frombuffer(b"x" + a.tobytes(), np.uint8)[1:].view(a.dtype),
    lambda a: (a.setflags(write=False), a)[1],
    lambda a: a.view(type("Sub", (np.ndarray,), {})),
    lambda a: a.tolist(),
    lambda a: memoryview(a),
    lambda a: np.array([(0, v) for v in a], [("pad", np.uint8), ("v", a.dtype)])["v"],
], ids=["byte-swapped", "unaligned", "read-only", "subclass", "list", "memoryview", "packed field"])
@each_case()
def test_inputs_that_need_care(case, make, rng):
    inputs = case.random(rng, (83,), "float64")
    expected = case(*inputs)
    got = case(*(make(a.copy()) for a in inputs))
    assert type(got) is np.ndarray
    assert got.dtype.isnative
    assert same_bits(got, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtype_of_the_result(dtype):
    ones = np.ones(3, dtype_of(dtype))
    for case in CASES:
        assert case(*[ones] * case.count).dtype == ones.dtype
