"""Channels side by side, which kernels of one tap read and write where they lie: on random geometries, before a page
that nobody may touch and as views with gaps, the bits of contiguous tensors."""
import ctypes
import mmap
import sys

import numpy as np
import pytest

import infiniop_cy as iop
from infiniop_cy.testing import random_values

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pages are protected by Linux's mprotect")
NAMES = ("grad_input", "grad_weight", "grad_bias", "output")


def at_end_of_page(array):
    """A copy with channels side by side, whose last byte is a page's last before one that cannot be read."""
    values = np.ascontiguousarray(np.moveaxis(array, 1, -1))
    pages = -(-values.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = np.frombuffer(mmap.mmap(-1, pages + mmap.PAGESIZE), np.uint8)
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(memory.ctypes.data + pages), mmap.PAGESIZE, 0) == 0
    copy = memory[pages - values.nbytes:pages].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return np.moveaxis(copy, -1, 1)


def with_gaps(array):
    """A view with channels side by side, of every other pixel of wider rows, between other channels."""
    n, c, h, w = array.shape
    wide = np.full((n, h, 2 * w, c + 5), 7, array.dtype)
    view = np.moveaxis(wide[:, :, ::2, 2:2 + c], -1, 1)
    view[...] = array
    return view


def geometry(rng):
    """(shapes of grad_output, input, weight; keywords) of one tap."""
    groups = int(rng.choice([1, 1, 1, 2, 3]))
    ci, co = int(rng.choice([1, 3, 8, 16, 24, 33, 64])), int(rng.choice([1, 5, 16, 20, 31, 96, 130, 300]))
    n, h, w = int(rng.integers(1, 5)), int(rng.integers(1, 16)), int(rng.integers(1, 34))
    stride, padding = int(rng.choice([1, 1, 2, 3])), int(rng.choice([0, 0, 0, 1]))
    size = [(extent + 2 * padding - 1) // stride + 1 for extent in (h, w)]
    return ((n, co * groups, *size), (n, ci * groups, h, w), (co * groups, ci, 1, 1)), {
        "stride": stride, "padding": padding, "groups": groups}


def results(arrays, bias, place, keywords, threads):
    g, x, w = place(arrays[0]), place(arrays[1]), arrays[2]
    outs = place(np.full_like(arrays[1], 3)), None, None
    grads = iop.conv_backward(g, x, w, out=outs, num_threads=threads, **keywords)
    output = iop.conv(x, w, bias, out=place(np.full_like(arrays[0], 3)), num_threads=threads, **keywords)
    return *grads, output


@pytest.mark.parametrize("seed", range(40))
def test_one_tap(seed):
    rng = np.random.default_rng(seed)
    shapes, keywords = geometry(rng)
    dtype = ("float32", "float32", "float64", "bfloat16", "float16")[seed % 5]
    arrays = [random_values(rng, shape, dtype) for shape in shapes]
    bias = random_values(rng, shapes[2][:1], dtype)
    expected = results(arrays, bias, np.array, keywords, 1)
    for place in (at_end_of_page, with_gaps):
        for name, got, want in zip(NAMES, results(arrays, bias, place, keywords, int(rng.integers(1, 4))), expected):
            assert np.array(got).tobytes() == want.tobytes(), f"{name}, {place.__name__}: {shapes} {keywords} {dtype}"
