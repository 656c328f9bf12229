"""Convolutions to try conv_backward on, and its float64 reference.

One sum per tap k, over a padded copy P of input; g = grad_output, w = weight, o = output pixel:

    forward      y[n, co, o]                       = sum over ci, k  P[n, ci, o*stride + k*dilation] * w[co, ci, k]
    grad_input   P'[n, ci, o*stride + k*dilation] += sum over co     g[n, co, o] * w[co, ci, k], padding cut off after
    grad_weight  w'[co, ci, k]                     = sum over n, o   g[n, co, o] * P[n, ci, o*stride + k*dilation]
    grad_bias    b'[co]                            = sum over n, o   g[n, co, o]

co and ci count inside one group. The zeros of P are data to grad_weight (0 * inf is NaN); an inf weight never meets
them in grad_input, which has only the terms that exist.
"""
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from infiniop_cy.testing.cases import dtype_of


def _per_axis(value, axes):
    return (value,) * axes if isinstance(value, int) else tuple(value)


def _taps(kernel, out, stride, dilation):
    """(k, the part of P that meets tap k) for every tap."""
    for k in np.ndindex(*kernel):
        yield k, (..., *(slice(i * d, i * d + (o - 1) * s + 1, s) for i, o, s, d in zip(k, out, stride, dilation)))


def _padded(input, padding_pairs):
    """P, and the slices of it that are input."""
    shape = [n + before + after for n, (before, after) in zip(input.shape[2:], padding_pairs)]
    padded = np.zeros((*input.shape[:2], *shape))
    inside = (..., *(slice(before, before + n) for n, (before, _) in zip(input.shape[2:], padding_pairs)))
    padded[inside] = input
    return padded, inside


def _grouped(array, groups):
    """(n, channels, *pixels) as (groups, n, channels of one group, pixels)."""
    n, channels, *pixels = array.shape
    return array.reshape(n, groups, channels // groups, prod(pixels)).swapaxes(0, 1)


def _grouped_weight(weight, groups):
    """(cout, ...) as (groups, 1, cout of one group, ...) in float64."""
    return weight.astype(float).reshape(groups, 1, weight.shape[0] // groups, *weight.shape[1:])


def _ungrouped(array, pixels):
    """The inverse of _grouped."""
    groups, n, channels, _ = array.shape
    return array.swapaxes(0, 1).reshape(n, groups * channels, *pixels)


def reference_conv_forward(input, weight, stride, padding_pairs, dilation, groups):
    """The convolution in float64. stride, dilation: one number per spatial axis; padding_pairs: one pair."""
    padded, _ = _padded(input.astype(float), padding_pairs)
    out = tuple((n - d * (k - 1) - 1) // s + 1
                for n, k, s, d in zip(padded.shape[2:], weight.shape[2:], stride, dilation))
    w = _grouped_weight(weight, groups)
    result = np.zeros((input.shape[0], weight.shape[0], *out))
    for k, part in _taps(weight.shape[2:], out, stride, dilation):
        tap = np.ascontiguousarray(w[(..., *k)])  # what BLAS takes
        result += _ungrouped(tap @ _grouped(padded[part], groups), out)
    return result


def reference_conv_backward(grad_output, input, weight, stride, padding_pairs, dilation, groups):
    """(grad_input, grad_weight, grad_bias) in float64; arguments as for reference_conv_forward."""
    g = grad_output.astype(float)
    padded, inside = _padded(input.astype(float), padding_pairs)
    w = _grouped_weight(weight, groups)
    out = g.shape[2:]
    grad_padded, grad_weight = np.zeros_like(padded), np.zeros_like(w)
    by_group = _grouped(g, groups)
    for k, part in _taps(weight.shape[2:], out, stride, dilation):
        tap = np.ascontiguousarray(w[(..., *k)])
        grad_padded[part] += _ungrouped(tap.swapaxes(2, 3) @ by_group, out)
        per_sample = by_group @ _grouped(padded[part], groups).swapaxes(2, 3)
        grad_weight[(..., *k)] = per_sample.sum(axis=1, keepdims=True)
    return grad_padded[inside], grad_weight.reshape(weight.shape), g.sum(axis=(0, *range(2, g.ndim)))


class ConvData(NamedTuple):
    """The arrays of a case, in the order of conv_backward."""

    grad_output: np.ndarray
    input: np.ndarray
    weight: np.ndarray


@dataclass(frozen=True)
class ConvCase:
    """A convolution. cin, cout: channels of all groups together; stride, padding, dilation: a number or one per
    axis; padding also one (before, after) pair per axis."""

    name: str
    batch: int
    groups: int
    cin: int
    cout: int
    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: int | tuple[int, ...] = 1
    padding: int | tuple[int, ...] | tuple[tuple[int, int], ...] = 0
    dilation: int | tuple[int, ...] = 1

    @property
    def geometry(self):
        """(stride, padding pairs, dilation, groups), as the references take them."""
        axes = len(self.size)
        pairs = tuple((p, p) if isinstance(p, int) else tuple(p) for p in _per_axis(self.padding, axes))
        return _per_axis(self.stride, axes), pairs, _per_axis(self.dilation, axes), self.groups

    @property
    def keywords(self):
        """The geometry as keywords of conv_backward."""
        return dict(zip(("stride", "padding", "dilation", "groups"), self.geometry))

    @property
    def out_size(self):
        stride, pairs, dilation, _ = self.geometry
        return tuple((n + sum(p) - d * (k - 1) - 1) // s + 1
                     for n, k, s, p, d in zip(self.size, self.kernel, stride, pairs, dilation))

    @property
    def shapes(self):
        """(grad_output, input, weight)."""
        return ((self.batch, self.cout, *self.out_size), (self.batch, self.cin, *self.size),
                (self.cout, self.cin // self.groups, *self.kernel))

    @property
    def terms(self):
        """Products, or summands, in one element of (grad_input, grad_weight, grad_bias), at most."""
        pixels = self.batch * prod(self.out_size)
        return self.cout // self.groups * prod(self.kernel), pixels, pixels

    @property
    def flops(self):
        """Of grad_input and of grad_weight, each: a multiplication and an addition per tap, padding included."""
        return 2 * self.batch * self.cout * prod(self.out_size) * (self.cin // self.groups) * prod(self.kernel)

    def __str__(self):
        return self.name


CONV_CASES = {case.name: case for case in (
    ConvCase("1d", 2, 1, 3, 4, (17,), (3,)),
    ConvCase("1d-dilated", 3, 1, 4, 2, (40,), (5,), 1, 4, 2),
    ConvCase("2d", 2, 1, 3, 4, (9, 11), (3, 3), 1, 1),
    ConvCase("2d-stride", 2, 1, 3, 5, (13, 10), (3, 2), (2, 3), (1, 0)),
    ConvCase("2d-1x1", 2, 1, 8, 12, (7, 7), (1, 1)),
    ConvCase("2d-1x1-stride", 2, 1, 5, 3, (7, 8), (1, 1), 2),
    ConvCase("2d-groups", 2, 3, 6, 9, (8, 7), (3, 3), 1, 1),
    ConvCase("2d-depthwise", 2, 8, 8, 16, (10, 9), (3, 3), 1, 1),
    ConvCase("2d-dilated", 1, 2, 4, 4, (15, 14), (3, 3), (3, 2), 2, (2, 3)),
    ConvCase("2d-asymmetric", 2, 1, 3, 2, (8, 9), (3, 4), (2, 1), ((0, 2), (3, 1))),
    ConvCase("2d-one-sided", 2, 1, 2, 3, (5, 6), (2, 3), 1, ((4, 0), (0, 5))),
    ConvCase("2d-padding-over-kernel", 2, 1, 2, 3, (4, 3), (2, 3), (2, 1), (5, 7)),
    ConvCase("2d-stride-over-kernel", 2, 1, 3, 2, (14, 15), (2, 3), (5, 4)),
    ConvCase("2d-stride-over-input", 3, 1, 2, 4, (4, 5), (3, 2), (9, 100), (1, 0)),
    ConvCase("2d-kernel-is-image", 4, 1, 6, 5, (5, 4), (5, 4)),
    ConvCase("3d", 2, 1, 2, 3, (4, 5, 6), (2, 3, 3), 1, 1),
    ConvCase("3d-everything", 2, 2, 4, 6, (7, 6, 9), (3, 2, 3), (2, 1, 3), ((1, 2), (0, 1), (3, 0)), (1, 3, 2)),
    ConvCase("tiny-images", 70, 1, 3, 5, (3, 2), (2, 2), 1, (1, 0)),  # panels span samples
    ConvCase("tiny-images-stride", 41, 2, 4, 4, (3, 3), (2, 2), 2, 1),
    ConvCase("long-image", 2, 1, 2, 3, (1500,), (3,), 2, 1),  # several panels of pixels per sample
    ConvCase("large-image", 2, 1, 3, 2, (31, 29), (3, 3), 1, 1),
    ConvCase("many-channels", 2, 1, 70, 61, (6, 7), (3, 3), 1, 1),  # several tiles of grad_weight each way
    ConvCase("many-columns", 1, 1, 3, 50, (20, 21), (9, 9), 1, 4),
    ConvCase("grouped-tiles", 1, 2, 46, 100, (17, 17), (3, 3), 1, 1),
    # each way of the engine, and its borders
    ConvCase("depthwise-stride", 2, 9, 9, 9, (11, 12), (3, 3), 2, 1),
    ConvCase("depthwise-3d", 2, 8, 8, 8, (4, 5, 6), (3, 3, 1), 1, (1, 1, 0)),
    ConvCase("few-channels", 1, 1, 2, 3, (70, 61), (3, 3)),  # several tiles across
    ConvCase("few-channels-stride", 2, 1, 2, 1, (41, 40), (3, 3), 2, 1),
    ConvCase("depthwise-valid", 2, 18, 18, 18, (9, 8), (3, 3)),
    ConvCase("far-taps", 1, 1, 20, 18, (50, 50), (3, 3), 1, 40, 40),  # im2col
    # taps of an output that share no pixels, with and without a stride
    ConvCase("taps-apart", 2, 2, 14, 36, (12, 41, 29), (3, 3, 2), (1, 3, 2), 0, (2, 17, 20)),
    ConvCase("tall-image", 2, 1, 18, 17, (64, 40), (3, 3), 1, 1),  # several tiles
    ConvCase("channels-over-tasks", 1, 1, 300, 280, (3, 4), (2, 2)),
    ConvCase("few-inputs-stride", 2, 1, 3, 20, (21, 18), (7, 5), 2, (3, 2)),
    ConvCase("wide-3d", 2, 2, 24, 40, (5, 6, 9), (3, 1, 3), (2, 1, 3), (1, 0, 2), (1, 2, 1)),
    ConvCase("deep", 2, 1, 9, 1090, (2, 4), (1, 2), (1, 2)),  # more output channels than are packed at once
    ConvCase("stride-past-taps", 2, 1, 10, 12, (9, 8), (1, 1), 2, 1),  # no tap reaches the first phase
    # enough work for seven threads and more, and several tasks of each gradient
    ConvCase("parallel", 2, 2, 64, 96, (20, 20), (3, 3), 1, 1),
    ConvCase("parallel-stride", 3, 1, 50, 60, (41, 40), (3, 3), 2, 1),
    ConvCase("parallel-tiny-images", 120, 1, 24, 50, (5, 5), (3, 3), 1, 1),
    ConvCase("parallel-long-kernel", 1, 1, 1, 250, (3000,), (2981,)),  # slabs of the image, segments of a line of taps
    ConvCase("parallel-few-outputs", 2, 1, 1, 200, (60, 60), (57, 58)),
    ConvCase("padded-windows", 3, 1, 9, 1, (9, 14), (9, 13), 1, 1),  # 3 x 4 outputs of long lines of taps
    ConvCase("depthwise-multiplied", 2, 9, 9, 27, (7, 8), (3, 2), (1, 2), 1),
    ConvCase("padding-taps", 2, 1, 5, 4, (4, 3), (5, 3), 1, (15, 10), (7, 9)),  # taps at both sides meet only padding
    ConvCase("batch-0", 0, 1, 3, 4, (8, 8), (3, 3), 1, 1),
    ConvCase("no-input-channels", 2, 1, 0, 40, (5, 20), (3, 3), 1, 1),
    ConvCase("no-output-channels", 2, 1, 3, 0, (5, 5), (3, 3), 1, 1),
    ConvCase("no-input-pixels", 2, 1, 3, 4, (0, 5), (3, 3), 1, 2),  # windows over padding alone
    ConvCase("one-pixel", 1, 1, 1, 1, (1,), (1,)),
)}


def _random_shapes(integer, tiny, shrink):
    """A ConvCase of random shapes, the smaller the larger `shrink` is."""
    axes = integer(1, 3)

    def one_of(*ranges):
        return integer(*ranges[integer(0, len(ranges) - 1)])
    kernel, stride, dilation, pairs, size = [], [], [], [], []
    long_kernel = integer(0, 11) == 0  # about as long as the image
    for _ in range(axes):
        k, d = one_of((1, 1), (1, 3), (1, 1), (2, 4 if tiny else 12)), one_of((1, 1), (1, 3), (1, 6), (7, 40))
        if long_kernel and integer(0, 1):
            k, d = one_of((9, 30), (9, (0, 1500, 60, 20)[axes])), one_of((1, 1), (1, 2))
        before, after = (one_of((0, 0), (0, 2), (0, 6)) for _ in range(2))
        if integer(0, 3):  # most networks pad alike on both sides
            after = before
        least = max(1, d * (k - 1) + 1 - before - after)
        kernel.append(k)
        dilation.append(d)
        pairs.append((before, after))
        stride.append(one_of((1, 1), (1, 2), (1, 6), (2, 3)))
        if tiny and integer(0, 40) == 0 and before + after > d * (k - 1):
            size.append(0)  # windows over padding alone
            continue
        size.append(least + one_of((0, 0), (0, 2), (0, 4), (0, 4 if tiny else 1 + 120 // (shrink * axes * axes))))
    groups = one_of((1, 1), (1, 1), (1, 5), (2, 32))
    cin, cout = (one_of((1, 1), (1, 4), (2, 1 + 34 // shrink), (1, 1 + 79 // shrink)) for _ in range(2))
    if groups > 1 and integer(0, 2) == 0:  # groups that fill a vector side by side
        cin = cout = 2 ** integer(1, 4)
    if tiny and integer(0, 40) == 0:
        cin, cout = integer(0, 1), integer(0, 1)
    batch = one_of((1, 1), (1, 3), (2, 6), (0, 1 + 63 // shrink))
    return ConvCase("drawn", batch, groups, groups * cin, groups * cout, tuple(size), tuple(kernel), tuple(stride),
                    tuple(pairs), tuple(dilation))


def random_geometry(integer, products=(0, 1 << 20), elements=1 << 18):
    """A ConvCase of any geometry: images and kernels from 1, strides past kernels, far dilation, empty phases, one
    channel a group more often than others, no channels or pixels at all, batches of 0 to 64.

    integer(low, high): a number from low to high, both included, such as a random generator or hypothesis draws.
    products: how many one gradient has, at least and at most. elements: the most that a tensor has."""
    tiny = products[0] == 0 and integer(0, 1)
    shrink = 4
    for _ in range(4000):
        case = _random_shapes(integer, tiny, shrink // 4)
        largest = max(prod(shape) for shape in case.shapes)
        if case.flops // 2 > products[1] or largest > elements or prod(case.kernel) > 2000:
            shrink += 1
        elif case.flops // 2 >= products[0]:
            return case
        else:
            shrink = max(4, shrink - 1)
    raise AssertionError(f"no geometry of {products} products")


def make_case(case, dtype, rng, integers=True):
    """The case's arrays. integers: from -8 to 8, so that every partial sum is exact in the compute type (a product
    is at most 64, and 2**24 is 262,144 of them) and == holds against the reference rounded once; 16-bit
    results do get rounded. Otherwise normally distributed."""
    def values(shape):
        numbers = rng.integers(-8, 9, shape) if integers else rng.standard_normal(shape)
        return np.asarray(numbers, float).astype(dtype_of(dtype))
    return ConvData(*map(values, case.shapes))
