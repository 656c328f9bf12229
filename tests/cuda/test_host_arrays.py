"""device="cuda" with NumPy arrays: copied there, computed, copied back."""
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from rotation import each_case

import infiniop_cy as iop
from infiniop_cy.backends import cuda_context
from infiniop_cy.testing import DTYPES, LAYOUTS, SHAPES, arrange, same_bits
from infiniop_cy.testing.conv import CONV_CASES, make_case

relu = iop.relu_backward._function
conv = iop.conv_backward._function


def expected(g, x):
    return np.where(x <= 0, g.dtype.type(0), g)


@each_case(dtype=DTYPES, layout=LAYOUTS, shape=["0-d", "empty", "4-d", "long rows"])
def test_every_layout(case, dtype, layout, shape, rng):
    """The same bits as mirrored device arrays in C order; outputs written where they are, and only there."""
    inputs = case.random(rng, SHAPES[shape], dtype)
    want = case(*inputs)  # on device arrays
    function = getattr(iop, case.operator.name)._function
    laid = [arrange(a, layout) for a in inputs]
    got = function(*laid, device="cuda", **case.parameters)
    assert type(got) is np.ndarray
    assert same_bits(got, want)
    assert got.strides == np.empty_like(laid[0]).strides
    out = arrange(np.full_like(inputs[0], 7), layout)
    assert function(*laid, out=out, device="cuda", **case.parameters) is out
    assert same_bits(np.array(out), want)
    assert function(*laid, out=laid[0], device="cuda", **case.parameters) is laid[0]
    assert same_bits(np.array(laid[0]), want)


@pytest.mark.parametrize("n", [cuda_context.STAGED_FROM // 4 - 1, cuda_context.STAGED_FROM // 4,
                               cuda_context.CHUNK // 4, cuda_context.CHUNK // 4 + 1, 5 * cuda_context.CHUNK // 4 + 3])
def test_staging(n, rng):
    """Below and above where pinned buffers are used, a chunk, and several whose buffers are used again."""
    g, x = rng.standard_normal((2, n)).astype(np.float32)
    got = relu(g, x, device="cuda")
    assert same_bits(got, expected(g, x))
    old = got.copy()
    assert same_bits(relu(g, x, out=got, accumulate=True, device="cuda"), old + expected(g, x))


def test_broadcast_inputs_travel_once(rng, monkeypatch):
    """One element, or row, stands for all."""
    sent = []
    monkeypatch.setattr(cuda_context.ThreadContext, "upload",
                        lambda self, address, array, upload=cuda_context.ThreadContext.upload: (
                            sent.append(array.nbytes), upload(self, address, array)))
    g = np.broadcast_to(np.float32(3), (100, 200))
    x = np.broadcast_to(rng.standard_normal(200).astype(np.float32), (100, 200))
    assert same_bits(relu(g, x, device="cuda"), expected(g, x))
    assert sent == [4, 800]


def test_arrays_that_overlap(rng):
    memory = rng.standard_normal(100).astype(np.float32)
    g, x, out = memory[:50], memory[20:70], memory[30:80]
    want = expected(g, x)
    relu(g, x, out=out, device="cuda")
    assert same_bits(out, want)


def test_threads(rng):
    """Every thread has a stream and buffers of its own."""
    data = [rng.standard_normal((2, 400_000)).astype(np.float32) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        for got, (g, x) in zip(pool.map(lambda pair: relu(*pair, device="cuda"), data), data):
            assert same_bits(got, expected(g, x))


@pytest.mark.parametrize("layout", ["contiguous", "channels last", "reversed"])
@pytest.mark.parametrize("name", ["2d-groups", "3d-everything", "1d-dilated"])
def test_conv(name, layout, rng):
    case = CONV_CASES[name]
    data = make_case(case, "float32", rng)
    want = conv(*data, **case.keywords)
    laid = [arrange(a, layout) for a in data]
    outs = tuple(arrange(np.full_like(a, 7), layout) for a in want)
    got = conv(*laid, **case.keywords, out=outs, device="cuda")
    assert all(a is b and same_bits(np.array(a), c) for a, b, c in zip(got, outs, want))
    accumulated = conv(*laid, **case.keywords, out=outs, accumulate=True, device="cuda")
    assert all(same_bits(np.array(a), c + c) for a, c in zip(accumulated, want))
    masked = conv(*laid, **case.keywords, output_mask=(False, True, False), device="cuda")
    assert masked.grad_input is None
    assert same_bits(masked.grad_weight, want.grad_weight)
    bias = rng.integers(-8, 9, case.cout).astype(np.float32)
    want, out = iop.conv._function(*data[1:], bias, **case.keywords), arrange(np.full_like(data[0], 7), layout)
    assert iop.conv._function(*laid[1:], arrange(bias, layout), **case.keywords, out=out, device="cuda") is out
    assert same_bits(np.array(out), want)


def test_sources_are_kept_until_they_are_read(emulator, rng, monkeypatch):
    """Where no result is waited for, because of an error or since none is wanted, the end of the call waits."""
    case = CONV_CASES["2d-groups"]
    data = [arrange(a, "reversed") for a in make_case(case, "float32", rng)]
    with cuda_context.current(0) as context:
        context.context.synchronize()
    before = emulator.pending()  # of tests that left something on another device
    assert conv(*data, **case.keywords, output_mask=(False,) * 3, device="cuda") == (None,) * 3
    assert emulator.pending() == before
    with pytest.raises(iop.BadTensorShape):
        relu(np.ones((5, 4), np.float32)[::-1], np.ones((4, 5), np.float32)[::-1], device="cuda")
    assert emulator.pending() == before


def test_an_error_leaves_outputs_alone(rng):
    out = np.full(3, 7, np.float32)
    for bad in (np.ones(4, np.float32), np.ones(3), np.ones(3, int)):
        with pytest.raises(iop.InfiniopError):
            relu(np.ones(3, np.float32), bad, out=out, device="cuda")
    assert (out == 7).all()
