"""The C functions with garbage: every call returns a status; what was refused has written nothing."""
import ctypes

import numpy as np

from infiniop_cy.capi import infini_root
from infiniop_cy.operators import OPERATORS

from .memory import Placed, numbers

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


def create_conv(rng, handle):
    """Any numbers in lists of either width."""
    axes = int(rng.integers(1, 4))
    tensors = [any_tensor(rng) if rng.random() < 0.2 else tensor(rng, [int(n) for n in rng.integers(0, 5, 2 + axes)])
               for _ in range(3)]
    bias = P(0) if rng.random() < 0.7 else any_tensor(rng)
    entry = np.int32 if rng.random() < 0.5 else np.int64
    lists = [rng.choice([0, 1, 1, 1, 2, 3, -1, 2**31 - 1], 8).astype(entry) for _ in range(3)]
    made, size = P(), SIZE(0)
    status = library().infiniopCreateConvBackwardDescriptor(
        handle, ctypes.byref(made), *tensors, bias, *(P(a.ctypes.data) for a in lists), SIZE(odd(rng, 0.9)))
    assert 0 <= status <= 13
    if status == 0:
        assert library().infiniopGetConvBackwardWorkspaceSize(made, ctypes.byref(size)) == 0
        assert library().infiniopConvBackward(made, None, SIZE(0), *[None] * 7) in (3, 4, 13)
        assert library().infiniopDestroyConvBackwardDescriptor(made) == 0
    for t in (*tensors, bias):
        library().infiniopDestroyTensorDescriptor(t)


def run(rng):
    handle = P()
    assert library().infiniopCreateHandle(ctypes.byref(handle)) == 0
    kind = rng.integers(3)
    if kind == 0:
        run_elementwise(rng, handle)
    elif kind == 1:
        create_conv(rng, handle)
    else:
        tensors = [any_tensor(rng) for _ in range(int(rng.integers(2, 4)))]
        name, op = create_elementwise(rng, handle, tensors)
        if op.value:
            assert getattr(library(), f"infiniopDestroy{name}Descriptor")(op) == 0
        for t in tensors:
            library().infiniopDestroyTensorDescriptor(t)
    assert library().infiniopDestroyHandle(handle) == 0
