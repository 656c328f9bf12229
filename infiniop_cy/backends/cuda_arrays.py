"""Arrays in a GPU's memory: what each library calls address, strides, dtype and stream, and results of the same kind.

    kind                              read by                                  results
    PyCUDA GPUArray                   attributes                               GPUArray, from the allocator it names
    torch Tensor                      data_ptr(), stride(): also bfloat16      torch.empty_strided
    CuPy, Numba                       __cuda_array_interface__                 cupy.ndarray, numba.cuda.device_array
    anything else that exports it     __cuda_array_interface__ or DLPack       GPUArray
"""
from math import prod
from typing import NamedTuple

import numpy as np

from infiniop_cy.core import _core
from infiniop_cy.dtypes import numpy_dtype
from infiniop_cy.status import BadParam, BadTensorDtype

LEGACY_STREAM = 0  # None, as in CUDA itself
DLPACK_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged


class Described(NamedTuple):
    """A device array, in terms of NumPy; strides in bytes."""

    address: int
    shape: tuple
    strides: tuple
    dtype: np.dtype
    writable: bool
    stream: int | None  # whose work the data is ready after; None where nothing is known
    owner: object       # keeps the memory
    borrowed: bool = False  # the owner must be kept until the work is done, since its library knows of no stream


LIBRARIES = ("pycuda", "torch", "cupy", "numba")


def library_of(value):
    """Top package of a value's type: "pycuda", "torch", "cupy", "numba", ... One of these of a subclass, too, wherever
    it is defined."""
    for kind in type(value).__mro__:
        package = kind.__module__.partition(".")[0]
        if package in LIBRARIES:
            return package
    return type(value).__module__.partition(".")[0]


def refuse_lazy(value, what):
    """Raise TypeError for a torch tensor whose memory has the opposite sign, a view of a conjugate's imaginary part."""
    if library_of(value) == "torch" and getattr(value, "is_neg", bool)():
        raise TypeError(f"{what} is a tensor that is yet to be negated, expected one whose memory has its numbers: "
                        "call resolve_neg() first")


def _has_interface(value):
    # Asking the type first: asking the value would build the interface.
    return hasattr(type(value), "__cuda_array_interface__") or hasattr(value, "__cuda_array_interface__")


def is_device_array(value):
    """Whether a value lies in a GPU's memory."""
    if isinstance(value, np.ndarray):
        return False
    device = getattr(type(value), "__dlpack_device__", None)
    if device is not None:
        try:
            return device(value)[0] in DLPACK_CUDA
        except (BufferError, ValueError):  # on a device that DLPack has no number for
            return False
    return _has_interface(value)


def contiguous_strides(shape, itemsize):
    """C order, in bytes."""
    return tuple(itemsize * prod(shape[d + 1:]) for d in range(len(shape)))


def dtype_called(name, what):
    """The NumPy dtype of a name that another library has."""
    try:
        dtype = numpy_dtype(name)
    except TypeError:
        raise BadTensorDtype(f"{what} has dtype {name}, which NumPy does not know") from None
    if isinstance(dtype, str):
        raise BadTensorDtype(f"{what} has dtype bfloat16, which needs the package ml_dtypes")
    return dtype


def _by_interface(value, what):
    interface = value.__cuda_array_interface__
    name = getattr(getattr(value, "dtype", None), "name", "")
    # NumPy spells bfloat16 as two bytes of anything
    name = "bfloat16" if name == "bfloat16" or interface["typestr"].endswith("V2") else interface["typestr"]
    shape, dtype = tuple(interface["shape"]), dtype_called(name, what)
    if interface.get("mask") is not None:
        raise TypeError(f"{what} is masked, expected a plain array")
    address, read_only = interface["data"]
    strides = interface.get("strides")
    strides = contiguous_strides(shape, dtype.itemsize) if strides is None else tuple(strides)
    stream = interface.get("stream")
    stream = LEGACY_STREAM if stream == 1 else stream
    return Described(address or 0, shape, strides, dtype, not read_only, stream, value)


def _pycuda(value, what):
    address = 0 if value.gpudata is None else int(value.gpudata)
    return Described(address, value.shape, value.strides, value.dtype, True, None, value)


def _torch(value, what):
    import torch
    refuse_lazy(value, what)
    dtype = dtype_called(str(value.dtype).rpartition(".")[2], what)
    strides = tuple(stride * dtype.itemsize for stride in value.stride())
    stream = torch.cuda.current_stream(value.device).cuda_stream
    return Described(value.data_ptr(), tuple(value.shape), strides, dtype, True, stream, value)


def read_capsule(capsule, what):
    """(address, shape, strides in bytes, dtype, owner) of what DLPack hands over."""
    address, shape, strides, name, owner = _core.read_dlpack(capsule)
    dtype = dtype_called(name, what)
    strides = contiguous_strides(shape, dtype.itemsize) if strides is None \
        else tuple(stride * dtype.itemsize for stride in strides)
    return address, shape, strides, dtype, owner


def _dlpack(value, what, stream):
    # 1 is the legacy default stream there, and 0 is not allowed
    address, shape, strides, dtype, owner = read_capsule(value.__dlpack__(stream=stream or 1), what)
    return Described(address, shape, strides, dtype, True, None, owner, True)


def has_stream(value):
    """Whether an array may say on which stream its data is ready. DLPack asks the other way round."""
    return library_of(value) == "torch" or _has_interface(value)


def describe(value, what, stream=LEGACY_STREAM):
    """The Described of any device array. what: for messages; stream: where DLPack is to make the data ready."""
    library = library_of(value)
    if library in ("pycuda", "torch"):
        return (_pycuda if library == "pycuda" else _torch)(value, what)
    if _has_interface(value):
        return _by_interface(value, what)
    return _dlpack(value, what, stream)


def describe_all(op, arrays, stream=None):
    """({name: Described}, stream, other streams) of a call on these arrays, by name.

    The stream is the first that an array names, where none is given; data that the other streams make ready has to be
    waited for. A given one is where the caller says that all data is ready."""
    found = {name: describe(value, f"{op}: {name}") for name, value in arrays.items() if has_stream(value)}
    named = list(dict.fromkeys(d.stream for d in found.values() if d.stream is not None))
    if stream is not None:
        others = []
    else:
        stream, *others = named or [LEGACY_STREAM]
    for name, value in arrays.items():
        if name not in found:
            found[name] = describe(value, f"{op}: {name}", stream)
    return {name: found[name] for name in arrays}, stream, others


def is_current_stream(like, stream):
    """Whether the library of an array would order what it does now on that stream."""
    if library_of(like) == "torch":
        import torch
        return torch.cuda.current_stream(like.device).cuda_stream == stream
    if library_of(like) == "cupy":
        import cupy
        return cupy.cuda.get_current_stream().ptr == stream
    return False


def borrow(like, index, size):
    """(address, owner) of memory from the allocator of torch or CuPy, which may give it to others in the order of its
    current stream as soon as the owner is gone."""
    if library_of(like) == "torch":
        import torch
        memory = torch.empty(size, dtype=torch.uint8, device=like.device)
        return memory.data_ptr(), memory
    import cupy
    with cupy.cuda.Device(index):
        memory = cupy.cuda.alloc(max(1, size))
    return memory.ptr, memory


def memory_order(shape, model):
    """Axes from the outermost to the innermost of an array that lies in memory as `model` does; C order for None."""
    axes = range(len(shape))
    return list(axes) if model is None else sorted(axes, key=lambda d: -abs(model.strides[d]))


def ordered_strides(shape, itemsize, order):
    """Strides, in bytes, of an array without gaps whose axes lie in memory in that order."""
    strides = [0] * len(shape)
    for d in reversed(order):
        strides[d] = itemsize
        itemsize *= max(shape[d], 1)
    return tuple(strides)


def new_array(like, index, shape, dtype, strides):
    """A device array of the kind of `like`; strides in bytes."""
    library = library_of(like)
    if library == "torch":
        import torch
        kind = getattr(torch, dtype.name)
        return torch.empty_strided(shape, [s // dtype.itemsize for s in strides], dtype=kind, device=like.device)
    if library == "cupy" and dtype.name != "bfloat16":
        import cupy
        with cupy.cuda.Device(index):
            memory = cupy.cuda.alloc(max(1, prod(shape) * dtype.itemsize))
            return cupy.ndarray(shape, dtype, memory, strides=strides)
    if library == "numba" and dtype.name != "bfloat16":
        from numba import cuda
        with cuda.gpus[index]:
            return cuda.device_array(shape, dtype, strides=strides)
    from pycuda import driver, gpuarray

    from infiniop_cy.backends.cuda_context import allocator, current
    allocate = like.allocator if library == "pycuda" else driver.mem_alloc
    with current(index):
        # its strides must be None for it to see that it is contiguous
        gaps = None if strides == contiguous_strides(shape, dtype.itemsize) else strides
        return gpuarray.GPUArray(shape, dtype, strides=gaps,
                                 allocator=allocator(index) if allocate is driver.mem_alloc else allocate)


def stream_address(stream, op):
    """The address of a stream: None, an integer, or what PyCUDA, CuPy, torch, Numba or cuda.core call one."""
    if stream is None:
        return LEGACY_STREAM
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        stream = protocol()[1] if callable(protocol) else protocol[1]
    for name in ("handle", "ptr", "cuda_stream"):
        if hasattr(stream, name):
            stream = getattr(stream, name)
            break
    stream = getattr(stream, "value", stream)  # Numba has a ctypes pointer, whose value may be None
    if stream is None:
        return LEGACY_STREAM
    if isinstance(stream, bool) or not hasattr(stream, "__index__"):
        raise TypeError(f"{op}: stream is a {type(stream).__name__}, expected None, an integer or a CUDA stream")
    address = stream.__index__()
    if not 0 <= address < 2**64:
        raise BadParam(f"{op}: stream is {address}, expected an address")
    return address
