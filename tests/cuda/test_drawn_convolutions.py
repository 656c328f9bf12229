"""Convolutions of drawn geometries and layouts on a GPU: of small integers, whose sums are exact in any order, so that
they are the CPU's bit for bit."""
import numpy as np
import pytest

import infiniop_cy as iop
from infiniop_cy.testing import DTYPES, dtype_of

CHANNELS = (*range(1, 10), 16, 24, 31, 40, 64, 72, 136)  # of a group; few, by vectors, in part of a tile, in several
PRODUCTS = 3e6


def draw(rng):
    """(shapes of input and weight, keywords) of a convolution that has an output."""
    while True:
        axes, groups, batch = rng.integers(1, 4), rng.choice([1, 1, 1, 2, 3, 5]), rng.integers(1, 5)
        cin, cout = rng.choice(CHANNELS, 2)
        if rng.random() < 0.2:  # sums in parts
            cin, cout = rng.permutation([rng.integers(128, 400), rng.integers(8, 80)])
        limits = (1, 6), (1, 4), (1, 4), (0, 5)
        kernel, stride, dilation, padding = (rng.integers(low, high, axes) for low, high in limits)
        stride[rng.random() < 0.5] = 1
        size = rng.integers(1, 14 if rng.random() < 0.5 else 5, axes)
        size[rng.random(axes) < 0.15] = 1
        out = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
        pixels = max(int(size.prod()), int(out.prod()) if out.min() > 0 else 0)
        if out.min() > 0 and batch * groups * cin * cout * kernel.prod() * pixels <= PRODUCTS:
            return ((int(batch), int(groups * cin), *map(int, size)), (int(groups * cout), int(cin), *map(int, kernel)),
                    {"stride": tuple(map(int, stride)), "padding": tuple(map(int, padding)),
                     "dilation": tuple(map(int, dilation)), "groups": int(groups)})


def laid(array, rng):
    """The same numbers: contiguous, with channels side by side, some of them at odd addresses, or with gaps."""
    way = rng.integers(5)
    if way == 0 or array.ndim == 1:
        return array.copy()
    last = np.moveaxis(array, 1, -1)
    if way in (1, 2):
        return np.moveaxis(last.copy(), -1, 1)
    room = np.zeros((*last.shape[:-1], last.shape[-1] + (1 if way == 3 else 8)), array.dtype)
    view = room[..., 1:1 + last.shape[-1]] if way == 3 else room[..., :last.shape[-1]]
    view[...] = last
    return np.moveaxis(view, -1, 1)


@pytest.mark.parametrize("block", range(3))
@pytest.mark.parametrize("dtype", DTYPES)
def test_drawn_geometries(dtype, block, on_emulation):
    for seed in range(block * 1000, block * 1000 + (25 if on_emulation else 300)):
        rng = np.random.default_rng(seed)
        x_shape, w_shape, keywords = draw(rng)

        def numbers(shape, rng=rng):
            return rng.integers(-2, 3, shape).astype(np.int8).astype(dtype_of(dtype))
        x, w, bias = (laid(numbers(x_shape), rng), numbers(w_shape), numbers(w_shape[:1]))
        if rng.random() < 0.3:
            w = laid(w, rng)
        want = iop.conv._function(x, w, bias, device="cpu", **keywords)
        got = iop.conv._function(x, w, bias, device="cuda", **keywords)
        assert got.tobytes() == want.tobytes(), f"output, seed {seed}: {x_shape} {w_shape} {keywords}"
        g = laid(numbers(want.shape), rng)
        old = laid(numbers(x_shape), rng), laid(numbers(w_shape), rng), numbers(w_shape[:1])
        accumulate = bool(rng.random() < 0.3)
        results = []
        for device in ("cuda", "cpu"):
            out = tuple(laid(a, np.random.default_rng(seed)) for a in old) if accumulate else None
            results.append(iop.conv_backward._function(g, x, w, out=out, accumulate=accumulate, device=device,
                                                       **keywords))
        for name, a, b in zip(results[0]._fields, *results):
            assert a.tobytes() == b.tobytes(), f"{name}, seed {seed}: {x_shape} {w_shape} {keywords}"


def results_of(g, x, w, bias, keywords, **more):
    """(output, grad_input, grad_weight, grad_bias)."""
    return (iop.conv._function(x, w, bias, device="cuda", **keywords),
            *iop.conv_backward._function(g, x, w, device="cuda", **keywords, **more))


@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_of_drawn_geometries(dtype, on_emulation):
    """Of numbers that round, or whose products underflow (a third of float32's): they follow neither from the
    layouts nor from how the batch is cut; sums of weights over a batch that is cut stay in the compute type."""
    sums_stay = dtype in ("float32", "float64")
    for seed in range(9000, 9000 + (15 if on_emulation else 200)):
        rng = np.random.default_rng(seed)
        x_shape, w_shape, keywords = draw(rng)
        scale = 10.0 ** rng.uniform(-24, -21) if dtype == "float32" and seed % 3 == 0 else 1

        def numbers(shape, rng=rng, scale=scale):
            return (rng.standard_normal(shape) * scale).astype(np.float32).astype(dtype_of(dtype))
        x, w, bias = numbers(x_shape), numbers(w_shape), numbers(w_shape[:1])
        g = numbers(iop.conv._function(x, w, device="cpu", **keywords).shape)
        want = results_of(g, x, w, bias, keywords)
        cut, pieces, sums = int(rng.integers(0, len(x) + 1)), [], None
        for n, part in enumerate((slice(cut), slice(cut, None))):
            got = results_of(g[part], x[part], w, bias, keywords)
            pieces.append(got[:2])
            if sums_stay:
                sums = iop.conv_backward._function(
                    g[part], x[part], w, device="cuda", accumulate=n > 0, output_mask=(False, True, True),
                    out=(None, *(sums or (None, *got[2:]))[1:]), **keywords)
        halves = [*map(np.concatenate, zip(*pieces)), *(sums[1:] if sums_stay else want[2:])]
        others = results_of(laid(g, rng), laid(x, rng), laid(w, rng), bias, keywords)
        for name, a, b, c in zip(("output", "grad_input", "grad_weight", "grad_bias"), want, others, halves):
            call = f"{name}, seed {seed}: {x_shape} {w_shape} {keywords}"
            assert a.tobytes() == b.tobytes(), f"layout, {call}"
            assert a.tobytes() == c.tobytes(), f"cut at {cut}, {call}"
