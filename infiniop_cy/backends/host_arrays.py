"""Arrays of other libraries as NumPy arrays: the same memory where they have some that this processor reads.

    kind                                        read by
    torch, JAX, and whatever exports DLPack     DLPack: also bfloat16; __array__ where that fails and needs no copy
    anything else                               numpy.asarray: __array__, the buffer protocol, numbers and lists
"""
import warnings

import numpy as np

from infiniop_cy.backends.cuda_arrays import library_of, read_capsule, refuse_lazy
from infiniop_cy.core import _core
from infiniop_cy.status import BadTensorDtype, DeviceTypeNotSupported

DLPACK_HOST = (1, 3, 11)  # kDLCPU, kDLCUDAHost, kDLROCMHost
BRIDGES = ("autograd", "jax", "mygrad", "pytensor", "torch")


def _advice(value):
    """Whose function differentiates, if the value's library has a bridge here."""
    library = library_of(value)
    return f"; infiniop_cy.bridges.{library} has functions for it" if library in BRIDGES else ""


def _by_dlpack(value, what):
    address, shape, strides, dtype, owner = read_capsule(value.__dlpack__(), what)
    return _core.device_header(address, shape, strides, dtype, False, owner)


def _in_host_memory(value):
    try:
        return value.__dlpack_device__()[0] in DLPACK_HOST
    except (BufferError, ValueError):  # on a device that DLPack has no number for
        return False


def host_array(value, op, name):
    """A NumPy array of what is none. Raises TypeError for what has no numbers or does not give them away, and
    DeviceTypeNotSupported for what lies elsewhere: copying from there is for the caller to ask for."""
    what = f"{op}: {name}"
    kind, advice = type(value).__name__, _advice(value)
    if not hasattr(type(value), "__dlpack_device__"):
        try:
            array = _core.array_of_numbers(value, op, name)
        except TypeError as error:  # a tracer of JAX
            raise TypeError(f"{what} is a {kind} without values here{advice}") from error
        if (array.dtype == object and (advice or array.ndim == 0)) or isinstance(value, (str, bytes)):
            raise BadTensorDtype(f"{what} is a {kind}, expected an array{advice}")
        return array
    if not _in_host_memory(value):
        raise DeviceTypeNotSupported(f"{what} lies on device {getattr(value, 'device', '')}, expected the host's "
                                     "memory: copy it there (.cpu(), jax.device_get, ...)")
    refuse_lazy(value, what)
    try:
        return _by_dlpack(value, what)
    except (BufferError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, BadTensorDtype):
            raise
        reason = error
    try:
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of __array__ without `copy`
            return np.asarray(value, copy=False)  # what is read-only has no DLPack of before version 1
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{what} is a {kind} that cannot be read where it is ({reason}){advice}") from reason
