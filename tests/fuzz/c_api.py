"""The C functions with garbage: every call returns a status; what was refused has written nothing; what was not, has
given the bits of the functions."""
import ctypes

import numpy as np

import infiniop_cy as iop
from infiniop_cy.capi import infini_root
from infiniop_cy.dtypes import code_of
from infiniop_cy.operators import OPERATORS
from infiniop_cy.testing import DTYPES
from infiniop_cy.testing.conv import make_case, random_geometry

from .convolution import integer
from .memory import GUARD, Placed, numbers, same

P, SIZE = ctypes.c_void_p, ctypes.c_size_t
ODD = (0, 1, 2, 3, 5, 17, 2**31, 2**32 + 1, 2**60, 2**63 - 1, 2**63, 2**64 - 1)
F32 = 13
_library = []


def library():
    if not _library:
        _library.append(ctypes.CDLL(f"{infini_root()}/lib/libinfiniop.so"))
    return _library[0]


def odd(rng, plain):
    return int(rng.choice(5)) if rng.random() < plain else ODD[rng.integers(len(ODD))]


def tensor(rng, shape, dtype=F32, strides=None):
    made = P()
    status = library().infiniopCreateTensorDescriptor(
        ctypes.byref(made), SIZE(len(shape)), (ctypes.c_uint64 * max(1, len(shape)))(*shape),
        None if strides is None else (ctypes.c_uint64 * max(1, len(strides)))(*strides), dtype)
    assert 0 <= status <= 13
    return made if status == 0 else P(0)


def any_tensor(rng):
    shape = [odd(rng, 0.8) for _ in range(int(rng.choice([0, 1, 2, 3, 4, 5, 64, 65])))]
    strides = [odd(rng, 0.6) for _ in shape] if rng.random() < 0.5 else None
    return tensor(rng, shape, int(rng.choice([F32, F32, F32, 12, 14, 19, 0, -1, 99])), strides)


def create_elementwise(rng, handle, tensors):
    """(operator, descriptor), of any operator that takes so many tensors."""
    chosen = [operator for operator in OPERATORS if len(operator.tensors) == len(tensors)]
    operator, made = chosen[rng.integers(len(chosen))], P()
    extra = [ctypes.c_bool(bool(rng.integers(2))) if isinstance(p.default, bool)
             else ctypes.c_float(rng.choice([p.default, -1, np.nan])) for p in operator.parameters if not p.choices]
    status = getattr(library(), f"infiniopCreate{operator.class_name}Descriptor")(
        handle, ctypes.byref(made), *tensors, *extra)
    assert 0 <= status <= 13
    return operator.class_name, made if status == 0 else P(0)


def run_elementwise(rng, handle):
    """A descriptor of one small shape, on placed memory, a pointer of which may be NULL."""
    shape = tuple(int(n) for n in rng.integers(0, 9, int(rng.integers(0, 4))))
    placed = [Placed(rng, numbers(rng, shape, "float32"), output=True)
              for _ in range(int(rng.integers(2, 4)))]
    tensors = [tensor(rng, shape, F32, [s // 4 % 2**64 for s in p.array.strides]) for p in placed]
    name, op = create_elementwise(rng, handle, tensors)
    if op.value:
        data = [P(p.array.ctypes.data if rng.random() < 0.95 else 0) for p in placed]
        status = getattr(library(), f"infiniop{name}")(op, None, SIZE(0), *data, None)
        assert status in (0, 3, 4)
        placed[0].check(written=status == 0)
        for p in placed[1:]:
            p.check()
        destroy = getattr(library(), f"infiniopDestroy{name}Descriptor")
        assert [destroy(op), destroy(op)] == [0, 3]
    for t in tensors:
        library().infiniopDestroyTensorDescriptor(t)


def describe(rng, array):
    return tensor(rng, array.shape, code_of(array.dtype.name), [n // array.itemsize % 2**64 for n in array.strides])


def create_conv(rng, handle):
    """Any numbers in lists of either width, of either direction."""
    axes = int(rng.integers(1, 4))
    tensors = [any_tensor(rng) if rng.random() < 0.2 else tensor(rng, [int(n) for n in rng.integers(0, 5, 2 + axes)])
               for _ in range(3)]
    bias = P(0) if rng.random() < 0.7 else any_tensor(rng)
    entry = np.int32 if rng.random() < 0.5 else np.int64
    lists = [rng.choice([0, 1, 1, 1, 2, 3, -1, 2**31 - 1], 8).astype(entry) for _ in range(3)]
    given = [P(a.ctypes.data if rng.random() < 0.9 else 0) for a in lists]
    made, size, forward = P(), SIZE(0), bool(rng.integers(2))
    name, last = ("Conv", axes if rng.random() < 0.8 else odd(rng, 0.5)) if forward else ("ConvBackward", odd(rng, 0.9))
    status = getattr(library(), f"infiniopCreate{name}Descriptor")(
        handle, ctypes.byref(made), *tensors, bias, *given, SIZE(last))
    assert 0 <= status <= 13
    if status == 0:
        assert getattr(library(), f"infiniopGet{name}WorkspaceSize")(made, ctypes.byref(size)) == 0
        nothing = [None] * (5 if forward else 7)
        assert getattr(library(), f"infiniop{name}")(made, None, SIZE(0), *nothing) in (3, 4, 13)
        other = "ConvBackward" if forward else "Conv"
        assert getattr(library(), f"infiniopDestroy{other}Descriptor")(made) == 3
        assert getattr(library(), f"infiniopDestroy{name}Descriptor")(made) == 0
    for t in (*tensors, bias):
        library().infiniopDestroyTensorDescriptor(t)


def conv_operands(rng, case, dtype, forward):
    """(outputs, inputs, what the outputs should hold): of the forward, the bias is an input, or not there."""
    g, x, w = make_case(case, dtype, rng, integers=False)
    bias = numbers(rng, (case.cout,), dtype) if rng.integers(2) else None
    if not forward:
        grads = iop.conv_backward(g, x, w, **case.keywords, num_threads=1)
        return [np.full_like(a, 7) for a in grads[:2 + (bias is not None)]], (g, x, w), grads
    return [Placed(rng, g, output=True)], (x, w, bias), [iop.conv(x, w, bias, **case.keywords, num_threads=1)]


def run_conv(rng, handle):
    """A convolution of either direction on placed memory, where a pointer may be NULL and the workspace too small."""
    case, dtype = random_geometry(integer(rng), products=(0, 1 << 15), elements=1 << 13), DTYPES[rng.integers(4)]
    if any(before != after for before, after in case.geometry[1]):
        return
    forward, made, size = bool(rng.integers(2)), P(), SIZE(0)
    outs, inputs, expected = conv_operands(rng, case, dtype, forward)
    placed = [Placed(rng, a, output=True) if a is not None else None for a in inputs]
    arrays = [p.array if p else None for p in (*(outs if forward else ()), *placed)]
    tensors = [P(0) if a is None else describe(rng, a) for a in arrays]
    if not forward:
        tensors.append(tensor(rng, (case.cout,), code_of(dtype)) if len(outs) == 3 else P(0))
    stride, pads, dilation, groups = case.geometry
    entry = np.int32 if rng.random() < 0.5 else np.int64
    lists = [np.array(values, entry) for values in ([p[0] for p in pads], stride, dilation)]
    name, last = ("Conv", len(stride)) if forward else ("ConvBackward", groups)
    assert getattr(library(), f"infiniopCreate{name}Descriptor")(
        handle, ctypes.byref(made), *tensors, *(P(a.ctypes.data) for a in lists), SIZE(last)) == 0, repr(case)
    for t in tensors:
        library().infiniopDestroyTensorDescriptor(t)
    assert getattr(library(), f"infiniopGet{name}WorkspaceSize")(made, ctypes.byref(size)) == 0
    room = np.full(size.value + 128, GUARD, np.uint8)
    short = rng.random() < 0.1
    data = [None if a is None or rng.random() < 0.03 else a.ctypes.data
            for a in (arrays if forward else [*outs, *[None] * (3 - len(outs)), *arrays])]
    status = getattr(library(), f"infiniop{name}")(
        made, P(room.ctypes.data + 64), SIZE(size.value - short), *map(P, data), None)
    assert status in ((13,) if short and size.value else (0, 4)), repr(case)
    check_conv(outs, expected, data, status == 0, f"{name} {case!r} {dtype}")
    assert (room[:64] == GUARD).all(), "before the workspace"
    assert (room[64 + size.value:] == GUARD).all(), "past the workspace"
    for p in placed:
        if p:
            p.check()
    assert getattr(library(), f"infiniopDestroy{name}Descriptor")(made) == 0


def check_conv(outs, expected, data, written, what):
    """An output is right, or as it was where it was left out or the call refused."""
    for out, want, address in zip(outs, expected, data):
        if isinstance(out, Placed):
            out.check(written=written)
            out = out.array if written else want
        elif not written or address is None:
            want = np.full_like(out, 7)
        same(out, want, what)


def run(rng):
    handle = P()
    assert library().infiniopCreateHandle(ctypes.byref(handle)) == 0
    kind = rng.integers(4)
    if kind == 0:
        run_elementwise(rng, handle)
    elif kind == 1:
        create_conv(rng, handle)
    elif kind == 2:
        run_conv(rng, handle)
    else:
        tensors = [any_tensor(rng) for _ in range(int(rng.integers(2, 4)))]
        name, op = create_elementwise(rng, handle, tensors)
        if op.value:
            assert getattr(library(), f"infiniopDestroy{name}Descriptor")(op) == 0
        for t in tensors:
            library().infiniopDestroyTensorDescriptor(t)
    assert library().infiniopDestroyHandle(handle) == 0
