"""Channels side by side, which some algorithms read and write where they lie: on random geometries, before a page
that nobody may touch and as views with gaps, the bits of contiguous tensors."""
import ctypes
import mmap
import sys

import numpy as np
import pytest
from test_conv_random import TINY_POWERS, make_tiny

import infiniop_cy as iop
from infiniop_cy.testing import random_values

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pages are protected by Linux's mprotect")
NAMES = ("grad_input", "grad_weight", "grad_bias", "output")


def contiguous_at_end_of_page(array):
    """A contiguous copy, whose last byte is a page's last before one that cannot be read."""
    values = np.ascontiguousarray(array)
    pages = -(-values.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = np.frombuffer(mmap.mmap(-1, pages + mmap.PAGESIZE), np.uint8)
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(memory.ctypes.data + pages), mmap.PAGESIZE, 0) == 0
    copy = memory[pages - values.nbytes:pages].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


def at_end_of_page(array):
    """The same, with channels side by side."""
    return np.moveaxis(contiguous_at_end_of_page(np.moveaxis(array, 1, -1)), -1, 1)


def with_gaps(array):
    """A view with channels side by side, of every other pixel of wider rows, between other channels. Where rows are
    odd, there is a pixel between them, and where columns are, a row between images."""
    n, c, h, w = array.shape
    wide = np.full((n, h + h % 2, 2 * (w + w % 2), c + 5), 7, array.dtype)
    view = np.moveaxis(wide[:, :h, :2 * w:2, 2:2 + c], -1, 1)
    view[...] = array
    return view


def geometry(n, ci, co, groups, size, kernel, stride, padding, dilation=1):
    """(shapes of grad_output, input, weight; keywords). There is as much padding as it takes for the kernel to fit."""
    reach = [dilation * (k - 1) + 1 for k in kernel]
    padding = max(padding, *((r - extent + 1) // 2 for extent, r in zip(size, reach)))
    out = [(extent + 2 * padding - r) // stride + 1 for extent, r in zip(size, reach)]
    return ((n, co * groups, *out), (n, ci * groups, *size), (co * groups, ci, *kernel)), {
        "stride": stride, "padding": padding, "dilation": dilation, "groups": groups}


def one_tap(rng):
    groups = int(rng.choice([1, 1, 1, 2, 3]))
    ci, co = int(rng.choice([1, 3, 8, 16, 24, 33, 64, 150])), int(rng.choice([1, 5, 16, 20, 31, 96, 130, 300]))
    size = int(rng.integers(1, 16)), int(rng.integers(1, 34))
    return geometry(int(rng.integers(1, 5)), ci, co, groups, size, (1, 1), int(rng.choice([1, 1, 2, 3])),
                    int(rng.choice([0, 0, 0, 1])))


def planes(rng):
    """One tap without a stride, few channels one way and more the other."""
    few, many = int(rng.integers(1, 70)), int(rng.choice([6, 9, 16, 24, 40, 70, 130, 300]))
    ci, co = (few, many) if rng.integers(3) else (many, few)
    size = int(rng.integers(1, 24)), int(rng.integers(1, 50))
    return geometry(int(rng.integers(1, 5)), ci, co, int(rng.choice([1, 1, 2])), size, (1, 1), 1, 0)


def depthwise(rng):
    """Few taps, most of which meet no padding; with a stride and the same dilation, some pixels meet none. Of many
    channels a task takes some, and 1024 of float32 lie so that pixels share sets of a cache."""
    kernel = ((3, 3), (3, 3), (5, 5), (int(rng.integers(1, 4)), int(rng.integers(1, 4))))[rng.integers(4)]
    groups = int(rng.choice([16, 24, 33, 64, 70, 144, 530, 1024]))
    size = int(rng.integers(7, 40 if groups < 200 else 15)), int(rng.integers(7, 60 if groups < 200 else 15))
    stride, dilation = ((1, 1), (2, 1), (3, 1), (1, 2), (2, 2))[rng.integers(5)]
    return geometry(int(rng.integers(1, 3)), 1, 1, groups, size, kernel, stride, int(rng.integers(0, 3)), dilation)


def many_taps(rng):
    """Depthwise kernels of more taps than have sums of grad_weight in lanes, about as large as the image."""
    kernel = int(rng.integers(13, 34)), int(rng.integers(20, 34))
    size = int(rng.integers(7, 36)), int(rng.integers(7, 36))
    return geometry(int(rng.integers(1, 3)), 1, int(rng.choice([1, 1, 2])), int(rng.choice([9, 16, 33])), size, kernel,
                    int(rng.choice([1, 1, 2])), int(rng.integers(0, 17)))


def channels(rng):
    """Lines of channels under several taps."""
    kernel = int(rng.integers(1, 4)), int(rng.integers(2, 4))
    size = int(rng.integers(3, 16)), int(rng.integers(3, 30))
    return geometry(int(rng.integers(1, 5)), int(rng.choice([8, 16, 24, 33, 64, 90])), int(rng.choice([5, 16, 33, 70])),
                    int(rng.choice([1, 1, 2])), size, kernel, int(rng.choice([1, 1, 2, 3])), int(rng.integers(0, 3)),
                    int(rng.choice([1, 1, 2])) if min(size) > 4 else 1)


def image(rng):
    """Few channels, whose taps stand side by side as channels."""
    kernel = int(rng.integers(1, 8)), int(rng.integers(2, 8))
    size = int(rng.integers(7, 20)), int(rng.integers(7, 60))
    dilation = int(rng.choice([1, 1, 1, 2])) if min(size) > 12 else 1
    return geometry(int(rng.integers(1, 3)), int(rng.integers(1, 9)), int(rng.integers(16, 70)), 1, size, kernel,
                    int(rng.integers(1, 4)), int(rng.integers(0, 5)), dilation)


def few_words(rng):
    """At most four channels of rows that are longer than what is loaded at once, to the last byte of the tensor."""
    size = int(rng.integers(2, 4)), int(rng.integers(33, 140))
    return geometry(int(rng.integers(1, 3)), int(rng.integers(1, 5)), int(rng.integers(16, 40)),
                    int(rng.choice([1, 1, 2, 3])), size, (2, int(rng.integers(1, 4))), int(rng.integers(1, 4)), 0)


def wide(rng):
    """Rows longer than what is staged of them at a time."""
    kernel = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    size = int(rng.integers(3, 9)), int(rng.integers(300, 1400))
    return geometry(int(rng.integers(1, 3)), int(rng.choice([3, 16, 24, 40])), int(rng.choice([5, 16, 40])), 1, size,
                    kernel, int(rng.choice([1, 2, 2, 3])), int(rng.integers(0, 2)))


def groups_in_lanes(rng):
    """Groups of few channels, which stand side by side in vectors."""
    channels = int(rng.choice([2, 4, 8, 16]))
    kernel = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    size = int(rng.integers(5, 24)), int(rng.integers(5, 50))
    return geometry(int(rng.integers(1, 6)), channels, channels, int(rng.choice([4, 9, 12])), size, kernel,
                    int(rng.choice([1, 1, 2, 3])), int(rng.integers(0, 4)))


def groups_in_lines(rng):
    """Groups whose channels fill no cache lines, of which a task takes some."""
    kernel = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    size = int(rng.integers(3, 20)), int(rng.integers(3, 32))
    return geometry(int(rng.integers(1, 6)), int(rng.choice([6, 10, 12, 16, 20, 24])),
                    int(rng.choice([6, 10, 16, 17, 24])), int(rng.choice([8, 9, 18, 30])), size, kernel,
                    int(rng.choice([1, 1, 2])), int(rng.integers(0, 3)))


def edges(rng):
    """Many pixels of which some taps meet padding."""
    kernel, size = rng.choice([1, 3, 3, 5, 7], 2).tolist(), rng.integers(4, 20, 2).tolist()
    return geometry(int(rng.integers(1, 10)), int(rng.choice([16, 40])), int(rng.choice([32, 40, 70])),
                    int(rng.choice([1, 1, 2])), size, kernel, int(rng.choice([1, 1, 2, 3])), int(rng.integers(2, 5)))


def covering(rng):
    """Kernels about as large as the image: outputs of one pixel, or few."""
    size = int(rng.integers(1, 8)), int(rng.integers(1, 8))
    kernel = [max(1, extent - int(rng.choice([0, 0, 0, 1]))) for extent in size]
    return geometry(int(rng.choice([1, 2, 5, 40])), int(rng.choice([1, 3, 16, 40, 130])),
                    int(rng.choice([1, 7, 16, 40, 130])), int(rng.choice([1, 1, 2])), size, kernel,
                    int(rng.choice([1, 1, 2])), int(rng.choice([0, 0, 0, 1])))


def multiplied(rng):
    """Several outputs of each of many channels."""
    kernel = int(rng.integers(1, 6)), int(rng.integers(1, 6))
    size = int(rng.integers(1, 24)), int(rng.integers(1, 60))
    return geometry(int(rng.integers(1, 5)), 1, int(rng.integers(2, 9)), int(rng.choice([8, 13, 39, 70, 150])), size,
                    kernel, int(rng.choice([1, 1, 2, 3])), int(rng.integers(0, 4)), int(rng.choice([1, 1, 2, 6])))


def far(rng):
    """Depthwise, with taps that reach past most of the image."""
    kernel = int(rng.choice([1, 2, 3, 11])), int(rng.integers(2, 8))
    size = int(rng.integers(1, 20)), int(rng.integers(4, 30))
    return geometry(int(rng.integers(1, 4)), 1, 1, int(rng.choice([8, 16, 21, 40])), size, kernel,
                    int(rng.choice([1, 1, 2])), int(rng.integers(0, 9)), int(rng.integers(3, 12)))


def few_channels(rng):
    """Some groups of so few channels that pixels are lanes."""
    kernel = int(rng.integers(1, 4)), int(rng.integers(1, 6))
    size = int(rng.integers(5, 40)), int(rng.integers(16, 90))
    return geometry(int(rng.integers(1, 4)), int(rng.integers(1, 4)), int(rng.integers(1, 4)), int(rng.integers(2, 12)),
                    size, kernel, int(rng.choice([1, 1, 2, 4])), int(rng.integers(0, 3)))


def sound(rng):
    """Few channels under long kernels, as of spectra, whose taps count as channels."""
    kernel = int(rng.integers(1, 3)), int(rng.integers(33, 300))
    size = int(rng.integers(2, 4)), int(rng.integers(300, 1400))
    return geometry(int(rng.integers(1, 4)), int(rng.integers(1, 5)), int(rng.integers(16, 70)), 1, size, kernel,
                    int(rng.choice([1, 2, 40, 160])), int(rng.choice([0, 0, 45])))


def late(rng):
    """Small images of many channels, whose weights are most of what is read."""
    kernel = ((1, 1), (3, 3), (1, 3))[rng.integers(3)]
    size = int(rng.integers(1, 10)), int(rng.integers(5, 9))
    return geometry(int(rng.integers(1, 5)), int(rng.choice([96, 130, 260, 544])), int(rng.choice([96, 224, 300])), 1,
                    size, kernel, int(rng.choice([1, 1, 2])), int(rng.integers(0, 2)))


def large(rng):
    """Images that leave the caches, whose pixels fill no cache lines."""
    size = int(rng.integers(90, 130)), int(rng.integers(90, 130))
    channels = int(rng.choice([20, 24, 40, 72, 88])), int(rng.choice([5, 16, 24, 40, 130]))
    return geometry(1, *channels, 1, size, (1, 1), 1, 0)


def rows_past_caches(rng):
    """Depthwise with a stride, of images that leave the caches by whole rows, wherever these begin."""
    kernel = int(rng.integers(1, 6)), int(rng.integers(1, 6))
    size = int(rng.integers(20, 60)), int(rng.integers(9, 120))
    groups = int(rng.choice([17, 24, 58, 96, 130, 300, 600]))
    stride, dilation = ((2, 1), (2, 1), (3, 1), (4, 1), (2, 2), (5, 1))[rng.integers(6)]
    return geometry(1 + (3 << 19) // (groups * size[0] * size[1]), 1, 1, groups, size, kernel, stride,
                    int(rng.integers(0, 3)), dilation)


def groups_past_caches(rng):
    """Groups that stand side by side in vectors, of images that leave the caches."""
    channels, groups = int(rng.choice([2, 4, 8, 16])), int(rng.choice([3, 6, 9, 13, 20]))
    size = int(rng.integers(20, 50)), int(rng.integers(20, 100))
    return geometry(1 + (1 << 19) // (groups * channels * size[0] * size[1]), channels, channels, groups, size,
                    (int(rng.integers(1, 4)), int(rng.integers(2, 4))), int(rng.choice([1, 2, 2])),
                    int(rng.integers(0, 2)))


def pixels_past_caches(rng):
    """Pixels of so many channels that several tasks may share them, or one writes them past the caches, or sums them
    in several parts."""
    channels = int(rng.choice([520, 672, 1000, 1100])), int(rng.choice([24, 33, 96]))
    channels = channels[::int(rng.choice([1, -1]))]
    return geometry(int(rng.integers(3, 6)), *channels, 1, (int(rng.integers(10, 16)), int(rng.integers(10, 16))),
                    (1, 1), int(rng.choice([1, 1, 2])), 0)


def read_once(rng):
    """Few channels of many pixels, whose gradients may be computed tile by tile together; under some kernels all taps
    but a row, or one, meet only padding."""
    inputs, outputs = sorted(int(n) for n in rng.integers(*((12, 140) if rng.integers(2) else (2, 24)), 2))
    kernel, dilation = int(rng.choice([1, 1, 3])), int(rng.choice([1, 1, 34, 45]))
    return geometry(int(rng.integers(2, 9)), inputs, outputs, 1, (int(rng.integers(28, 40)), int(rng.integers(28, 40))),
                    (kernel, kernel), 1, kernel // 2 * dilation, dilation)


KINDS = (one_tap, planes, depthwise, many_taps, channels, image, few_words, wide, groups_in_lanes, groups_in_lines,
         edges, covering, multiplied, far, few_channels, sound, large, late, rows_past_caches, groups_past_caches,
         pixels_past_caches, read_once)


def same_bits(got, want):
    """Whether all elements are the same, bit for bit; any NaN is as good as another."""
    nan = np.isnan(want)
    return np.array_equal(nan, np.isnan(got)) and \
        np.where(nan, 0, got).astype(want.dtype).tobytes() == np.where(nan, 0, want).astype(want.dtype).tobytes()


def results(arrays, bias, place, keywords, threads):
    g, x, w = (place(array) for array in arrays)
    outs = place(np.full_like(arrays[1], 3)), None, None
    grads = iop.conv_backward(g, x, w, out=outs, num_threads=threads, **keywords)
    output = iop.conv(x, w, bias, out=place(np.full_like(arrays[0], 3)), num_threads=threads, **keywords)
    return *grads, output


def check_bits(kind, seed, dtype=None):
    """Of the gradients and the output of a random geometry of that kind."""
    rng = np.random.default_rng(seed)
    shapes, keywords = kind(rng)
    dtype = dtype or ("float32", "float32", "float64", "bfloat16", "float16")[seed % 5]
    arrays = [random_values(rng, shape, dtype) for shape in shapes]
    bias = random_values(rng, shapes[2][:1], dtype) if seed % 4 else None
    if seed % 3 == 2:
        some = arrays[rng.integers(3)]
        some.flat[rng.integers(some.size, size=3)] = [np.inf, -np.inf, np.nan]
    if seed % 4 == 1 and dtype in TINY_POWERS:
        for array in arrays:
            make_tiny(array, TINY_POWERS[dtype][seed // 4 % 2], rng)
    expected = results(arrays, bias, np.array, keywords, 1)
    for place in (at_end_of_page, with_gaps):
        for name, got, want in zip(NAMES, results(arrays, bias, place, keywords, int(rng.integers(1, 4))), expected):
            assert same_bits(got, want), f"{name}, {place.__name__}: {shapes} {keywords} {dtype}"


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("kind", KINDS)
def test_bits(kind, seed):
    check_bits(kind, seed)


@pytest.mark.parametrize("seed", range(100, 140))
def test_bits_of_products_that_are_saved_as_they_come(seed):
    check_bits(one_tap, seed, "bfloat16")


def test_gradients_that_are_computed_together_are_those_of_each_alone():
    """Whether grad_output is read once or twice, and whatever is found in it on the way."""
    together = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        shapes, keywords = read_once(rng)
        dtype = ("float32", "bfloat16", "float16")[seed % 3]
        g, x, w = (random_values(rng, shape, dtype) for shape in shapes)
        if seed % 2:
            some = (g, x, w)[rng.integers(3)]
            with np.errstate(over="ignore"):
                some.flat[rng.integers(some.size)] = rng.choice([1e-39, 1e-30, 1e30, np.inf, np.nan])
        tensors = [iop.TensorDescriptor.from_array(array) for array in (g, x, w)]
        with iop.Handle() as handle, iop.threads(2):
            op = iop.ConvBackwardDescriptor(handle, *tensors, None, *(
                keywords[name] for name in ("padding", "stride", "dilation", "groups")))
            together += op.plan.facts["together"]
        both = iop.conv_backward(g, x, w, num_threads=2, **keywords)
        for i, mask in enumerate(((True, False, False), (False, True, False))):
            alone = iop.conv_backward(g, x, w, output_mask=mask, num_threads=2, **keywords)[i]
            assert same_bits(both[i], alone), f"{NAMES[i]}: {shapes} {keywords} {dtype} {seed}"
    assert together >= 10


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("pixels", [1, 8, 40])
def test_an_inf_beside_an_overflow_is_the_same_however_weights_lie(pixels, dtype):
    """-inf, then a product that overflows if it is rounded by itself: a sum of fused multiply-adds is -inf, and one to
    which -inf is added at its end is NaN. Weights are packed, or read where they lie."""
    g, x = np.full((1, 2, 1, pixels), -1, dtype), np.ones((1, 72, 1, pixels), dtype)
    g[0, 1] = np.finfo(dtype).max / 2
    w = np.ones((2, 72, 1, 1), dtype)
    w[:, 5, 0, 0] = np.inf, 4
    expected, *others = (iop.conv_backward(g, x, weights, output_mask=(True, False, False))[0]
                         for weights in (w, np.ascontiguousarray(w.T).T, with_gaps(w)))
    assert not np.isfinite(expected[0, 5]).any()
    for got in others:
        assert same_bits(got, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(12))
def test_long_rows_of_weights_are_not_read_past_their_end(seed, dtype):
    """Dot products of panels that are no whole vectors, of rows that are."""
    rng = np.random.default_rng(seed)
    channels, kernel = int(rng.choice([1, 4, 8, 16])), int(rng.integers(100, 700))
    x = random_values(rng, (int(rng.integers(1, 3)), channels, 1, 2 * kernel), dtype)
    w = random_values(rng, (int(rng.integers(1, 4)), channels, 1, kernel), dtype)
    assert same_bits(iop.conv(contiguous_at_end_of_page(x), contiguous_at_end_of_page(w), stride=2, dilation=(1, 2)),
                     iop.conv(x, w, stride=2, dilation=(1, 2)))


@pytest.mark.parametrize("groups", [96, 12])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_all_channels_are_written_wherever_lines_begin(dtype, groups):
    """So many samples that grad_weight's sums of each are not kept, and tasks of few channels."""
    shapes, keywords = geometry(300, 96 // groups, 96 // groups, groups, (1, 1), (4, 4), 1, 3, 2)
    rng = np.random.default_rng(groups)
    arrays = [random_values(rng, shape, dtype) for shape in shapes]
    expected = iop.conv_backward(*arrays, **keywords)
    for first in range(0, 64 // arrays[1].itemsize, 3):
        out = np.full(arrays[1].size + first, np.nan, arrays[1].dtype)[first:].reshape(shapes[1])
        got = iop.conv_backward(*arrays, out=(out, None, None), **keywords)
        for name, a, b in zip(NAMES, got, expected):
            assert same_bits(a, b), f"{name}, {first} elements on"


@pytest.mark.parametrize(("stride", "dtype"), [(1, "float32"), (2, "float32"), (1, "float64")])
def test_weights_of_few_pixels_are_read_where_they_lie(monkeypatch, stride, dtype):
    """With the bits of those packed for many, for inf and NaN, too."""
    monkeypatch.setenv("INFINIOP_CY_CONV", "grad_input:gemm")
    groups, batch, size = 2, 40, (7, 8)
    shapes, keywords = geometry(batch, 150, 130, groups, size, (1, 1), stride, 0)
    rng = np.random.default_rng(stride)
    g, x, w = (random_values(rng, shape, dtype) for shape in shapes)
    w[3, 5], w[200, 140], w[7, 0] = np.inf, np.nan, -np.inf
    grad_input = iop.conv_backward(g, x, w, output_mask=(True, False, False), **keywords)[0]
    assert np.isnan(grad_input).any()
    assert np.isfinite(grad_input).any()
    for n in range(0, batch, 7):
        one = slice(n, n + 1)
        alone = iop.conv_backward(g[one], x[one], w, output_mask=(True, False, False), **keywords)[0]
        assert same_bits(alone, grad_input[one])
    for some, expected in ((batch, False), (1, True)):
        descriptors = [iop.TensorDescriptor((some, *shape[1:]), dtype) for shape in shapes[:2]]
        with iop.Handle("cpu") as handle:
            op = iop.ConvBackwardDescriptor(handle, *descriptors, iop.TensorDescriptor(shapes[2], dtype), None, 0,
                                            stride, 1, groups)
            assert ("weights where they lie" in op.explain()) == expected


def beginning_behind_a_line(array, offset):
    """(an array of that shape with channels side by side, which begins so many bytes behind a cache line; the bytes
    around it)."""
    memory = np.full(array.nbytes + 256, 0x5a, np.uint8)
    first = 64 + (offset - memory.ctypes.data) % 64
    whole = memory[first:first + array.nbytes].view(array.dtype)
    lies = whole.reshape(array.shape[0], *array.shape[2:], array.shape[1])
    return np.moveaxis(lies, -1, 1), (memory[:first], memory[first + array.nbytes:])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "float16"])
@pytest.mark.parametrize(("ci", "co", "groups", "size", "kernel", "stride"), [
    (16, 96, 1, (61, 63), (1, 1), 1), (8, 40, 1, (97, 101), (1, 1), 1), (70, 33, 1, (123, 98), (1, 1), 1),
    (96, 272, 1, (41, 53), (1, 1), 2), (24, 24, 24, (131, 110), (3, 3), 1), (48, 48, 48, (98, 99), (5, 3), 1),
    (40, 40, 40, (131, 135), (3, 3), 2)])
def test_pixels_leave_the_caches_wherever_they_begin(dtype, ci, co, groups, size, kernel, stride):
    """With the bits of small calls' results, sample by sample, and nothing is written around them. One
    megabyte of 16 bits leaves the caches, four if it is a depthwise layer's, of which a sample has less."""
    rng = np.random.default_rng(ci)
    batch = 1 + (1 << (22 if groups > 1 else 20)) // (min(ci, co) * size[0] * size[1] // stride**2 * 2)
    shapes, keywords = geometry(batch, ci // groups, co // groups, groups, size, kernel, stride, kernel[0] // 2)
    arrays = [random_values(rng, shape, dtype) for shape in shapes]
    bias = random_values(rng, (co,), dtype)
    g, x, w = arrays
    expected = [np.concatenate(of_samples) for of_samples in zip(*(
        (iop.conv_backward(g[n:n + 1], x[n:n + 1], w, output_mask=(True, False, False), **keywords)[0],
         iop.conv(x[n:n + 1], w, bias, **keywords)) for n in range(batch)))]
    g, x = (beginning_behind_a_line(array, 0)[0] for array in arrays[:2])
    g[...], x[...] = arrays[:2]
    for offset in (0, arrays[0].itemsize, 48):
        for image, want in zip((x, g), expected):
            out, around = beginning_behind_a_line(image, offset)
            if image is x:
                iop.conv_backward(g, x, w, output_mask=(True, False, False), out=(out, None, None), **keywords)
            else:
                iop.conv(x, w, bias, out=out, **keywords)
            assert same_bits(out, want), f"{'grad_input' if image is x else 'output'}, {offset} bytes behind a line"
            assert all((memory == 0x5a).all() for memory in around)
