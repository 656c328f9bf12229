"""pycuda.gpuarray: arrays on the device as far as they hold data; no arithmetic."""

import math

import numpy as np
import pycuda.driver as drv
from pycuda._memory import contiguous_strides


class _Flags:
    def __init__(self, array):
        self._array = array

    def _is(self, order):
        array = self._array
        whole = contiguous_strides(array.shape, array.dtype.itemsize, order)
        return all(n == 1 or a == b for n, a, b in zip(array.shape, array.strides, whole)) or array.size == 0

    @property
    def c_contiguous(self):
        return self._is("C")

    @property
    def f_contiguous(self):
        return self._is("F")

    @property
    def forc(self):
        return self.c_contiguous or self.f_contiguous


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
        self.size = self.mem_size = math.prod(self.shape)
        self.itemsize = self.dtype.itemsize
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
    def ndim(self):
        return len(self.shape)

    @property
    def flags(self):
        return _Flags(self)

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

    def _extent(self):
        """Bytes from the first element to the end of the last one."""
        return sum((n - 1) * s for n, s in zip(self.shape, self.strides)) + self.itemsize

    def set(self, ary, async_=False, stream=None):
        if ary.size != self.size:
            raise ValueError("ary and self must be the same size")
        if ary.dtype != self.dtype:
            raise ValueError("ary and self must have the same dtype")
        if not self.size:
            return
        if not self.flags.forc or any(s < 0 for s in self.strides):
            raise NotImplementedError("set of an array with gaps")
        source = np.ndarray(self.shape, self.dtype, np.empty(self.nbytes, np.uint8), strides=self.strides)
        if ary.strides == self.strides:
            source = ary
        else:
            source[...] = ary.reshape(self.shape)
        if async_:
            drv.memcpy_htod_async(self.gpudata, source, stream)
        else:
            drv.memcpy_htod(self.gpudata, source)

    def set_async(self, ary, stream=None):
        self.set(ary, True, stream)

    def get(self, ary=None, pagelocked=False, async_=False, stream=None):
        if ary is not None and (ary.size != self.size or ary.dtype != self.dtype):
            raise ValueError("self and ary must be of the same size and dtype")
        if not self.size:
            return np.empty(self.shape, self.dtype) if ary is None else ary
        if any(s < 0 for s in self.strides):
            raise NotImplementedError("get of an array with negative strides")
        # One copy of the whole extent, gaps included.
        raw = (drv.pagelocked_empty if pagelocked else np.empty)(self._extent(), np.uint8)
        target = np.ndarray(self.shape, self.dtype, raw, strides=self.strides)
        direct = ary is not None and ary.strides == self.strides and self.flags.forc
        if async_:
            drv.memcpy_dtoh_async(ary if direct else raw, self.gpudata, stream)
        else:
            drv.memcpy_dtoh(ary if direct else raw, self.gpudata)
        if direct:
            return ary
        if ary is not None:
            ary[...] = target.reshape(ary.shape)
            return ary
        return target if self.flags.forc else target.copy()

    def get_async(self, stream=None, ary=None):
        return self.get(ary, async_=True, stream=stream)

    def __getitem__(self, index):
        """A view of basic slices and integers."""
        index = index if isinstance(index, tuple) else (index,)
        if Ellipsis in index:
            at = index.index(Ellipsis)
            index = index[:at] + (slice(None),) * (self.ndim - len(index) + 1) + index[at + 1 :]
        index += (slice(None),) * (self.ndim - len(index))
        shape, strides, offset = [], [], 0
        for i, n, step in zip(index, self.shape, self.strides):
            if isinstance(i, slice):
                first, stop, stride = i.indices(n)
                shape.append(len(range(first, stop, stride)))
                strides.append(step * stride)
            else:
                first = int(i) + (n if i < 0 else 0)
                if not 0 <= first < n:
                    raise IndexError("subindex in axis out of range")
            offset += first * step
        data = None if self.gpudata is None else int(self.gpudata) + offset
        return GPUArray(shape, self.dtype, self.allocator, self, data, strides)

    def reshape(self, *shape, order="C"):
        shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], (int, np.integer)) else shape
        if -1 in shape:
            known = -math.prod(shape)
            shape = tuple(self.size // known if n == -1 else n for n in shape)
        if not self.flags.c_contiguous or math.prod(shape) != self.size:
            raise ValueError("cannot reshape")
        return GPUArray(shape, self.dtype, self.allocator, self, self.gpudata)

    def fill(self, value, stream=None):
        self.set(np.full(self.shape, value, self.dtype), async_=stream is not None, stream=stream)
        return self

    def __hash__(self):
        raise TypeError("GPUArrays are not hashable.")


empty = GPUArray


def to_gpu(ary, allocator=drv.mem_alloc):
    result = GPUArray(ary.shape, ary.dtype, allocator, strides=np.empty_like(ary).strides)
    result.set(ary)
    return result


def to_gpu_async(ary, allocator=drv.mem_alloc, stream=None):
    result = GPUArray(ary.shape, ary.dtype, allocator, strides=np.empty_like(ary).strides)
    result.set_async(ary, stream)
    return result


def zeros(shape, dtype=np.float64, allocator=drv.mem_alloc, order="C"):
    return GPUArray(shape, dtype, allocator, order=order).fill(0)


def ones(shape, dtype=np.float64, allocator=drv.mem_alloc, order="C"):
    return GPUArray(shape, dtype, allocator, order=order).fill(1)


def empty_like(other, dtype=None, order="K"):
    return GPUArray(other.shape, dtype or other.dtype, other.allocator, order=_order(other, order))


def zeros_like(other, dtype=None, order="K"):
    return empty_like(other, dtype, order).fill(0)


def _order(other, order):
    if order in "KA":
        return "F" if other.flags.f_contiguous and not other.flags.c_contiguous else "C"
    return order
