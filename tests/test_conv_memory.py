"""The scratch of the CPU's convolutions: how much it is, and that nothing depends on what it held."""
from itertools import product
from math import prod

import numpy as np
import pytest

import infiniop_cy as iop
from infiniop_cy.core._core import build_info
from infiniop_cy.testing import DTYPES, dtype_of, same_bits
from infiniop_cy.testing.conv import ConvCase, make_case, reference_conv_backward

ISA = build_info()["isa"]


def fill_free_memory():
    """Leave memory whose every number is NaN to who allocates next, as far as that can be done: malloc takes blocks of
    such sizes from the heap after it has freed some."""
    for _ in range(4):
        np.full(1 << 23, 255, np.uint8)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("size", "kernel", "padding"), [
    ((50, 26), (1, 1), ((0, 2), (0, 0))), ((1359,), (1,), ((0, 3),)), ((50, 26), (1, 1), ((2, 0), (0, 1))),
    ((40, 30), (3, 3), ((0, 2), (1, 0))), ((7, 7), (3, 3), ((1, 1), (1, 1))),
], ids=str)
def test_what_memory_held_before_does_not_matter(size, kernel, padding, dtype, rng):
    """Tiles inside of the image are packed in another way than those that padding goes into."""
    case = ConvCase("poisoned", 1, 1, 128, 128, size, kernel, padding=padding)
    data = make_case(case, dtype, rng)
    expected = [exact.astype(dtype_of(dtype)) for exact in reference_conv_backward(*data, *case.geometry)]
    for threads, mask in product((1, 2), ((True, False, False), (False, True, False), (True, True, True))):
        fill_free_memory()
        gradients = iop.conv_backward(*data, **case.keywords, num_threads=threads, output_mask=mask)
        for got, exact in zip(gradients, expected):
            assert got is None or same_bits(got, exact)


LARGE = [(batch, groups, cin, cout, (size,) * axes, (kernel,) * axes, stride, dilation)
         for batch, groups, cin, cout in ((1, 1, 1, 1), (256, 1, 512, 2048), (8, 1024, 1024, 1024), (1, 1, 3, 64),
                                          (1, 1, 64, 3))
         for axes, size in ((1, 100_000), (2, 200), (2, 7), (3, 40))
         for kernel, stride, dilation in ((1, 1, 1), (3, 1, 1), (7, 2, 1), (3, 1, 50), (3, 64, 3), (25, 1, 1))
         if size > (kernel - 1) * dilation]


def check_workspace(case, dtype, strides, threads):
    """4 MB a thread (8 in float64) and the weights once, columns rounded up to 64 bytes, however large it is. To AMX a
    float32 is 6 bytes, and channels of a group are rounded up to 32 each way. Forward, rows and columns of the weights
    change roles."""
    item = 8 if dtype == "float64" else 4
    steps, pads, dilations, groups = case.geometry
    numbers = [first for first, _ in pads], steps, dilations, groups
    cin, cout = case.cin // groups, case.cout // groups
    with iop.Handle() as handle, iop.threads(threads):
        tensors = [iop.TensorDescriptor(shape, dtype, strides(shape)) for shape in case.shapes]
        for operator, rows, columns in ((iop.ConvBackwardDescriptor, cout, cin), (iop.ConvDescriptor, cin, cout)):
            op = operator(handle, *tensors, None, *numbers)
            row = columns * item + 64
            if ISA == "amx" and dtype != "float64":
                rows, row = -(-rows // 32) * 32, -(-columns // 32) * 32 * (6 if dtype == "float32" else item)
            weights = groups * rows * prod(case.kernel) * row
            assert op.workspace_size <= weights + threads * (item << 20) + 1024, (case, threads, op.explain())


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_workspace_is_bounded(dtype):
    for batch, groups, cin, cout, size, kernel, stride, dilation in LARGE:
        case = ConvCase("large", batch, groups, cin, cout, size, kernel, stride, 0, dilation)
        check_workspace(case, dtype, lambda shape: None, 3)


# One channel to a group, in the lanes, whose weights take as much room as the image.
LARGE_KERNELS = [ConvCase("large", batch, groups, groups, outputs * groups, (size, size), (kernel, kernel), stride, 5)
                 for batch, groups, outputs, size, kernel, stride in (
                     (1, 48, 1, 109, 101, 1), (8, 512, 1, 130, 110, 1), (1, 64, 8, 80, 60, 1), (2, 1024, 1, 56, 31, 2))]


@pytest.mark.parametrize("case", LARGE_KERNELS, ids=str)
def test_workspace_of_large_kernels_is_bounded(case):
    for dtype, strides in product(("bfloat16", "float64"), (lambda shape: None, channels_innermost)):
        check_workspace(case, dtype, strides, 16)


def channels_innermost(shape):
    """Strides, in elements, of a tensor whose channels lie side by side."""
    return (prod(shape[1:]), 1, *(shape[1] * prod(shape[d + 1:]) for d in range(2, len(shape))))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("strides", [lambda shape: None, channels_innermost], ids=["contiguous", "channels last"])
def test_workspace_of_drawn_layers_is_bounded(dtype, strides):
    """Of layers as networks have, by planning alone: halos and gaps take room, too."""
    rng = np.random.default_rng(3)
    for _ in range(400):
        axes, groups = rng.choice([1, 2, 2, 3]), rng.choice([1, 1, 1, 2, 8])
        cin, cout = rng.choice([8, 16, 24, 64, 80, 128, 256, 320, 512, 1024], 2) // (4 if groups > 1 else 1)
        kernel, dilation, stride = rng.choice([1, 3, 3, 5, 7]), rng.choice([1, 1, 2, 3]), rng.choice([1, 1, 2])
        size = rng.choice({1: [50, 200, 1000, 4000], 2: [7, 8, 14, 20, 28, 56, 112], 3: [8, 20, 32]}[int(axes)])
        numbers = [int(n) for n in (rng.choice([1, 2, 4, 8, 32, 64]), groups, groups * cin, groups * cout)]
        steps = int(stride), int(kernel // 2 * dilation), int(dilation)
        case = ConvCase("drawn", *numbers, (int(size),) * axes, (int(kernel),) * axes, *steps)
        check_workspace(case, dtype, strides, int(rng.choice([2, 3, 8, 32])))
