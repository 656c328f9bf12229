"""Random convolutions of the sizes that networks and benchmarks have, by family: what random_geometry's small ones do
not reach, such as large images of few channels, far taps of large images, and many channels.

The families are in the style of benchdnn's lists: kernels as large as the image, far dilation, strides past the kernel,
patches, groups, tiny and big images, in one to three dimensions.
"""
from math import prod

import numpy as np

from infiniop_cy.testing.conv import ConvCase

MAX_PRODUCTS = 1 << 29   # of one gradient, those with padding included
MAX_ELEMENTS = 1 << 23   # of one tensor
OWN_WORST = 16.0         # products times this is the most that a slow algorithm of ours would do, about


class Draw:
    """Random numbers of one seed."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def between(self, low, high):
        """low to high, both included, small ones as often as large ones."""
        return round(low * (high / low) ** self.rng.random()) if low < high else low

    def one_of(self, *values):
        return values[int(self.rng.integers(len(values)))]

    def each(self, axes, function):
        """A tuple; half of the time all axes are alike."""
        if self.one_of(True, False):
            return (function(),) * axes
        return tuple(function() for _ in range(axes))

    def size(self, axes, scale=1):
        longest = {1: 4096, 2: 96, 3: 24}[axes] * scale
        return self.each(axes, lambda: self.between(4, longest))

    def channels(self):
        return self.one_of(self.between(1, 32), self.between(16, 256), 2 ** self.between(3, 9), 3)


def _same(kernel, dilation):
    return tuple(d * (k - 1) // 2 for k, d in zip(kernel, dilation))


def plain(draw, axes):
    """Layers of networks."""
    kernel = draw.each(axes, lambda: draw.one_of(1, 3, 3, 3, 5, 7, 2))
    return draw.size(axes), kernel, draw.each(axes, lambda: draw.one_of(1, 1, 2)), \
        draw.one_of(_same(kernel, (1,) * axes), (0,) * axes), (1,) * axes


def large_kernel(draw, axes):
    """Kernels of a good part of the image, up to all of it and its padding."""
    size = draw.size(axes)
    kernel = tuple(max(1, int(n * draw.one_of(0.3, 0.5, 0.9, 1))) for n in size)
    return size, kernel, draw.each(axes, lambda: draw.one_of(1, 1, 2)), \
        draw.one_of(_same(kernel, (1,) * axes), (0,) * axes, tuple(k // 4 for k in kernel)), (1,) * axes


def few(draw, axes):
    """One output pixel, or a few."""
    size = draw.size(axes)
    kernel = tuple(max(1, n - draw.one_of(0, 0, 1, 3)) for n in size)
    return size, kernel, (1,) * axes, draw.each(axes, lambda: draw.one_of(0, 0, 1)), (1,) * axes


def far(draw, axes):
    """Taps far apart, padded to keep the size, or not."""
    kernel = draw.each(axes, lambda: draw.one_of(2, 3, 3, 5))
    dilation = draw.each(axes, lambda: draw.between(2, 40 if axes < 3 else 12))
    span = tuple(d * (k - 1) for k, d in zip(kernel, dilation))
    padding = draw.one_of(tuple((s + 1) // 2 for s in span), (0,) * axes)
    size = tuple(max(n, s + 1 - 2 * p) for n, s, p in zip(draw.size(axes), span, padding))
    return size, kernel, draw.each(axes, lambda: draw.one_of(1, 1, 1, 2)), padding, dilation


def patches(draw, axes):
    """Strides of the kernel's size, or past it."""
    kernel = draw.each(axes, lambda: draw.one_of(1, 2, 4, 8, 16, 3))
    stride = tuple(k + draw.one_of(0, 0, 0, 1, 2) for k in kernel)
    return tuple(k * draw.between(1, max(1, n // k)) for n, k in zip(draw.size(axes, 3), kernel)), kernel, stride, \
        (0,) * axes, (1,) * axes


def tiny(draw, axes):
    """Images of some pixels."""
    size = draw.each(axes, lambda: draw.one_of(1, 1, 2, 3, 4, 7))
    kernel = tuple(draw.one_of(1, 1, min(3, n), n) for n in size)
    return size, kernel, (1,) * axes, draw.one_of((0,) * axes, _same(kernel, (1,) * axes)), (1,) * axes


def big(draw, axes):
    """Images of many pixels."""
    kernel = draw.each(axes, lambda: draw.one_of(1, 3, 3, 7))
    return tuple(n * 3 for n in draw.size(axes, 2)), kernel, draw.each(axes, lambda: draw.one_of(1, 1, 2, 4)), \
        draw.one_of(_same(kernel, (1,) * axes), (0,) * axes), (1,) * axes


FAMILIES = {f.__name__: f for f in (plain, large_kernel, few, far, patches, tiny, big)}


def family_geometry(seed, families=tuple(FAMILIES), products=MAX_PRODUCTS, elements=MAX_ELEMENTS):
    """The ConvCase of a seed, of one of these families: small enough, and of work that takes longer than a call.

    products: how many one gradient has at most. elements: the most that a tensor has."""
    draw = Draw(seed)
    for _ in range(10000):
        name = draw.one_of(*families)
        axes = draw.one_of(1, 2, 2, 2, 3)
        size, kernel, stride, padding, dilation = FAMILIES[name](draw, axes)
        groups = draw.one_of(1, 1, 1, draw.between(2, 64))
        cin, cout = draw.channels(), draw.channels()
        if groups > 1:
            cin, cout = draw.one_of((1, 1), (1, draw.between(1, 4)), (draw.between(1, 32), draw.between(1, 32)))
        batch = draw.one_of(1, 2, draw.between(1, 64))
        case = ConvCase(name, batch, groups, groups * cin, groups * cout, size, kernel, stride, padding, dilation)
        if min(case.out_size) < 1 or max(map(prod, case.shapes)) > elements:
            continue
        if (1 << 16) <= sum(map(prod, case.shapes)) and case.flops // 2 <= products \
                and batch * prod(size) * prod(kernel) * cin * cout * groups <= OWN_WORST * products:
            return case
    raise AssertionError("no geometry")
