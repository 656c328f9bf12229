"""Descriptors: created once, run on several placements by address, they give the bits of the function."""
import numpy as np

import infiniop_cy as iop
from infiniop_cy.descriptors import DESCRIPTORS
from infiniop_cy.testing import CASES, DTYPES, dtype_of
from infiniop_cy.testing.conv import make_case, random_geometry

from .convolution import integer
from .elementwise import shape_of
from .memory import GUARD, Placed, numbers, same

CLASS_OF = {cls.operator: cls for cls in DESCRIPTORS.values()}


def run_elementwise(rng, handle, dtype):
    case, shape = CASES[rng.integers(len(CASES))], shape_of(rng)
    values = [numbers(rng, shape, dtype) for _ in range(1 + case.count)]
    placed = [Placed(rng, v, output=True) for v in values]
    expected = case(*values[:0:-1], num_threads=1)
    tensors = [iop.TensorDescriptor.from_array(p.array) for p in placed]
    with CLASS_OF[case.operator.name](handle, *tensors, **case.parameters) as op:
        arguments = [p.array.ctypes.data if rng.integers(2) and p.array.size else p.array for p in placed]
        op.calculate(None, *arguments)
    same(placed[0].array, expected, f"{case} {dtype} {shape}")
    placed[0].check(written=True)
    for p in placed[1:]:
        p.check()


def run_conv(rng, handle, dtype):
    case = random_geometry(integer(rng), products=(0, 1 << 16), elements=1 << 14)
    if any(before != after for before, after in case.geometry[1]):
        return
    stride, pads, dilation, groups = case.geometry
    data = make_case(case, dtype, rng, integers=False)
    placed = [Placed(rng, v, output=True) for v in data]
    tensors = [iop.TensorDescriptor.from_array(p.array) for p in placed]
    bias = iop.TensorDescriptor((case.cout,), dtype)
    outs = [np.empty(s, dtype_of(dtype)) for s in (*case.shapes[1:], (case.cout,))]
    with iop.threads(int(rng.integers(1, 4))), iop.ConvBackwardDescriptor(
            handle, *tensors, bias, [p[0] for p in pads], stride, dilation, groups) as op:
        room = np.full(op.workspace_size + 128, GUARD, np.uint8)
        op.calculate(room[64:64 + op.workspace_size], *outs, *(p.array for p in placed))
        assert (room[:64] == GUARD).all(), "before the workspace"
        assert (room[64 + op.workspace_size:] == GUARD).all(), "past the workspace"
    for got, want in zip(outs, iop.conv_backward(*data, **case.keywords, num_threads=1)):
        same(got, want, f"{case!r} {dtype}")
    for p in placed:
        p.check()


def run(rng):
    with iop.Handle("cpu") as handle:
        dtype = DTYPES[rng.integers(len(DTYPES))]
        (run_elementwise if rng.integers(3) else run_conv)(rng, handle, dtype)
