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


def guarded_workspace(size):
    """(guarded bytes, the workspace in their middle)"""
    room = np.full(size + 128, GUARD, np.uint8)
    return room, room[64:64 + size]


def run_conv(rng, handle, dtype):
    """Planned for some threads and run on any number, by arrays or addresses."""
    case = random_geometry(integer(rng), products=(0, 1 << 16), elements=1 << 14)
    if any(before != after for before, after in case.geometry[1]):
        return
    stride, pads, dilation, groups = case.geometry
    lists = [p[0] for p in pads], stride, dilation, groups
    g, x, w = make_case(case, dtype, rng, integers=False)
    forward = bool(rng.integers(2))
    bias = numbers(rng, (case.cout,), dtype) if rng.integers(2) else None
    inputs = [Placed(rng, v, output=True) for v in ((x, w) if forward else (g, x, w))]
    described = [iop.TensorDescriptor.from_array(p.array) for p in inputs]
    bias_described = None if bias is None else iop.TensorDescriptor((case.cout,), dtype)
    if forward:
        outs = [Placed(rng, g, output=True)]
        described.insert(0, iop.TensorDescriptor.from_array(outs[0].array))
        wanted = [iop.conv(x, w, bias, **case.keywords, num_threads=1)]
    else:
        shapes = (*case.shapes[1:], (case.cout,))
        outs = [np.empty(s, dtype_of(dtype)) for s in shapes[:2 + (bias is not None)]]
        wanted = iop.conv_backward(g, x, w, **case.keywords, num_threads=1)
    cls = iop.ConvDescriptor if forward else iop.ConvBackwardDescriptor
    with iop.threads(int(rng.integers(1, 5))), cls(handle, *described, bias_described, *lists) as op:
        room, workspace = guarded_workspace(op.workspace_size)
        arrays = [p.array.ctypes.data if rng.integers(2) and p.array.size else p.array for p in inputs]
        with iop.threads(int(rng.integers(1, 7))):
            if forward:
                op.calculate(workspace, outs[0].array, *arrays, bias)
            else:
                op.calculate(workspace, *outs, *(() if bias is not None else (None,)), *arrays)
        assert (room[:64] == GUARD).all(), "before the workspace"
        assert (room[64 + workspace.size:] == GUARD).all(), "past the workspace"
    for got, want in zip(outs, wanted):
        same(got.array if forward else got, want, f"{case!r} {dtype} {'output' if forward else 'gradients'}")
    if forward:
        outs[0].check(written=True)
    for p in inputs:
        p.check()


def run(rng):
    with iop.Handle("cpu") as handle:
        dtype = DTYPES[rng.integers(len(DTYPES))]
        (run_elementwise if rng.integers(3) else run_conv)(rng, handle, dtype)
