"""Device and page-locked memory, copies and fills."""

import math

import numpy as np
from pycuda._context import Owned
from pycuda._library import (
    ANY_CONTIGUOUS,
    INVALID_HANDLE,
    WRITABLE,
    Buffer,
    byref,
    c_size_t,
    c_uint64,
    c_void_p,
    call,
    failure,
    result,
)


class PointerHolderBase:
    def __int__(self):
        return int(self.get_pointer())

    __index__ = __int__


class DeviceAllocation(Owned):
    _valid = False

    def __init__(self, size):
        self._address = result("cuMemAlloc_v2", c_uint64, size)
        self._acquire()
        self._valid = True

    def free(self):
        if not self._valid:
            raise failure("device_allocation::free", INVALID_HANDLE)
        self._clean_up("cuMemFree_v2", self._address)
        self._context, self._valid = None, False

    def __int__(self):
        return self._address

    __index__ = __long__ = __int__

    def __del__(self):
        if self._valid:
            self.free()


class PagelockedHostAllocation(Owned):
    _valid = False

    def __init__(self, size, flags=0):
        self._acquire()
        self._address = result("cuMemHostAlloc", c_void_p, size, flags)
        self._valid = True

    def free(self):
        if not self._valid:
            raise failure("pagelocked_host_allocation::free", INVALID_HANDLE)
        self._clean_up("cuMemFreeHost", self._address)
        self._context, self._valid = None, False

    def __del__(self):
        if self._valid:
            self.free()


def mem_alloc(size):
    return DeviceAllocation(size)


def mem_get_info():
    free, total = c_size_t(), c_size_t()
    call("cuMemGetInfo_v2", byref(free), byref(total))
    return free.value, total.value


def contiguous_strides(shape, itemsize, order):
    strides, step = [], itemsize
    for n in reversed(shape) if order == "C" else shape:
        strides.append(step)
        step *= n
    return tuple(reversed(strides)) if order == "C" else tuple(strides)


def pagelocked_empty(shape, dtype, order="C", mem_flags=0):
    dtype = np.dtype(dtype)
    shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    allocation = PagelockedHostAllocation(math.prod(shape) * dtype.itemsize, mem_flags)
    strides = contiguous_strides(shape, dtype.itemsize, order)
    allocation.__array_interface__ = {
        "version": 3, "shape": shape, "typestr": dtype.str, "strides": strides, "data": (allocation._address, False),
    }  # fmt: skip
    array = np.asarray(allocation)  # its base is the allocation, as with PyCUDA
    return array if array.dtype == dtype else array.view(dtype)


def pagelocked_zeros(shape, dtype, order="C", mem_flags=0):
    array = pagelocked_empty(shape, dtype, order, mem_flags)
    array.fill(0)
    return array


def handle_of(stream):
    return None if stream is None else stream.handle


def memcpy_htod(dest, src):
    with Buffer(src) as (address, size):
        call("cuMemcpyHtoD_v2", int(dest), address, size)


def memcpy_htod_async(dest, src, stream=None):
    with Buffer(src) as (address, size):
        call("cuMemcpyHtoDAsync_v2", int(dest), address, size, handle_of(stream))


def memcpy_dtoh(dest, src):
    with Buffer(dest, ANY_CONTIGUOUS | WRITABLE) as (address, size):
        call("cuMemcpyDtoH_v2", address, int(src), size)


def memcpy_dtoh_async(dest, src, stream=None):
    with Buffer(dest, ANY_CONTIGUOUS | WRITABLE) as (address, size):
        call("cuMemcpyDtoHAsync_v2", address, int(src), size, handle_of(stream))


def memcpy_dtod(dest, src, size):
    call("cuMemcpyDtoD_v2", int(dest), int(src), size)


def memset_d8(dest, data, size):
    call("cuMemsetD8_v2", int(dest), data, size)
