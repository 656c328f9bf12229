"""pycuda.gpuarray: arrays on the device as far as they hold data; no arithmetic, no views."""

import math

import numpy as np
import pycuda.driver as drv
from pycuda._memory import contiguous_strides


class GPUArray:
    __array_priority__ = 100

    def __init__(
        self, shape, dtype, allocator=drv.mem_alloc, base=None, gpudata=None, strides=None, order="C"
    ):  # fmt: skip
        if order not in ("C", "F"):
            raise ValueError(f"invalid order: {order}")
        self.dtype = np.dtype(dtype)
        shape = (shape,) if isinstance(shape, (int, np.integer)) else shape
        self.shape = tuple(int(n) for n in shape)
        self.ndim, self.itemsize = len(self.shape), self.dtype.itemsize
        self.size = self.mem_size = math.prod(self.shape)
        self.nbytes = self.itemsize * self.size
        strides = contiguous_strides(self.shape, self.itemsize, order) if strides is None else strides
        self.strides = tuple(int(n) for n in strides)
        self.allocator, self.base = allocator, base
        if gpudata is None:
            if base is not None:
                raise AssertionError
            gpudata = allocator(self.nbytes) if self.size else None
        self.gpudata = gpudata

    @property
    def ptr(self):
        return self.gpudata.__int__()

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": self.shape,
            "strides": self.strides,
            "data": (0 if self.gpudata is None else int(self.gpudata), False),
            "typestr": self.dtype.str,
            "stream": None,
            "version": 3,
        }

    def __len__(self):
        return self.shape[0] if self.shape else 0

    def set(self, ary):
        if ary.size != self.size or ary.dtype != self.dtype:
            raise ValueError("ary and self must have the same size and dtype")
        if ary.strides != self.strides:
            raise NotImplementedError("set from an array with other strides")
        if self.size:
            drv.memcpy_htod(self.gpudata, ary)

    def get(self):
        """Of an array in C order."""
        result = np.empty(self.shape, self.dtype)
        if result.strides != self.strides:
            raise NotImplementedError("get of an array in another order")
        if self.size:
            drv.memcpy_dtoh(result, self.gpudata)
        return result

    def __hash__(self):
        raise TypeError("GPUArrays are not hashable.")


empty = GPUArray


def to_gpu(ary, allocator=drv.mem_alloc):
    result = GPUArray(ary.shape, ary.dtype, allocator, strides=np.empty_like(ary).strides)
    result.set(ary)
    return result
