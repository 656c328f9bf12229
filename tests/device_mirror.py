"""Calls on NumPy arrays, made on a GPU: every test of the CPU is one of the GPU.

A mirrored function puts the memory behind its arrays on the device, calls the original on the same views of it, and
copies all of that memory back: what was written between elements, or to inputs, shows. Arrays that no device array can
stand for (byte-swapped, subclasses, lists) go with device="cuda", which is the other way to call.
"""
import ctypes
import warnings

import numpy as np
from numpy.lib.array_utils import byte_bounds

import infiniop_cy as iop
from infiniop_cy.backends.cuda_context import current
from infiniop_cy.core._core import is_weak

ALIGNMENT = 256  # of device memory; host addresses keep their remainder
DEVICE = "cpu"   # that the tests run on; conftest.py sets it


class Placed:
    """A view of device memory, as any library may export one."""

    def __init__(self, address, like):
        self.host, self.dtype, self.shape = like, like.dtype, like.shape
        with warnings.catch_warnings():  # of asking whether a broadcast array may be written
            warnings.simplefilter("ignore", FutureWarning)
            read_only = not like.flags.writeable
        self.__cuda_array_interface__ = {
            "shape": like.shape, "typestr": like.dtype.str, "strides": like.strides, "version": 3,
            "data": (address, read_only), "stream": None}


class Memory:
    """A piece of the host's memory, and its copy on the device."""

    def __init__(self, low, high, index=0):
        import pycuda.driver as driver
        self.low, self.high, self.driver, self.context = low, high, driver, current(index)
        with self.context:
            self.allocation = driver.mem_alloc(max(1, low % ALIGNMENT + high - low))
            self.address = int(self.allocation) + low % ALIGNMENT
            if high > low:
                driver.memcpy_htod(self.address, self._bytes())

    def _bytes(self):
        return np.ctypeslib.as_array((ctypes.c_uint8 * (self.high - self.low)).from_address(self.low))

    def fetch(self, written):
        """Copy back; memory that may not be written must come back unchanged."""
        if self.high == self.low:
            return
        with self.context:
            now = np.empty(self.high - self.low, np.uint8)
            self.driver.memcpy_dtoh(now, self.address)
            if written:
                self._bytes()[...] = now
            else:
                assert now.tobytes() == self._bytes().tobytes(), "read-only memory was written"

    def free(self):
        with self.context:
            self.allocation.free()


def root_of(array):
    """The outermost array whose memory this is a view of."""
    base = array
    while getattr(base, "base", None) is not None:
        base = base.base
        if isinstance(base, np.ndarray):
            array = base
    return array


class Mirrored:
    """NumPy arrays with counterparts on the device, overlapping as they do."""

    def __init__(self, arrays, index=0):
        spans = sorted((*byte_bounds(root_of(a)), root_of(a).flags.writeable) for a in arrays)
        merged = []
        for low, high, written in spans:
            if merged and low < merged[-1][1]:
                merged[-1][1] = max(high, merged[-1][1])
                merged[-1][2] |= written
            else:
                merged.append([low, high, written])
        self.written = [written for *_, written in merged]
        self.memories = [Memory(low, high, index) for low, high, _ in merged]

    def address(self, array):
        start = array.ctypes.data
        for memory in self.memories:
            if memory.low <= start <= memory.high and (start < memory.high or array.size == 0):
                return memory.address + start - memory.low
        return 0

    def place(self, array):
        return Placed(self.address(array), array)

    def fetch(self):
        for memory, written in zip(self.memories, self.written):
            memory.fetch(written)

    def free(self):
        for memory in self.memories:
            memory.free()


def to_host(value, index=0):
    """A NumPy array with the values, and the strides, of a device array; a placed one's own array."""
    if value is None or isinstance(value, np.ndarray):
        return value
    if isinstance(value, Placed):
        return value.host
    order = sorted(range(value.ndim), key=lambda d: -abs(value.strides[d]))
    flat = np.empty([value.shape[d] for d in order], value.dtype)
    if flat.size:
        with current(index) as context:
            context.driver.memcpy_dtoh(flat, int(value.gpudata))
    return flat.transpose(np.argsort(order))


def is_plain(array):
    return type(array) is np.ndarray and array.flags.aligned and array.dtype.isnative and not array.dtype.hasobject


class MirroredFunction:
    """An operator, called on the device whatever it is given."""

    def __init__(self, function):
        self._function = function
        self.__doc__ = function.__doc__

    def __getattr__(self, name):
        return getattr(self._function, name)

    def __call__(self, *args, **keywords):
        out = keywords.get("out")
        outs = out if isinstance(out, tuple) else (out,)
        candidates = [a for a in (*args, *(keywords.get(n) for n in ("grad_output", "input", "weight", "bias")), *outs)
                      if a is not None and not isinstance(a, str) and not is_weak(a)]
        if "device" in keywords or not candidates or not all(map(is_plain, candidates)):
            return self._function(*args, **{"device": "cuda"} | keywords)
        mirrored = Mirrored(candidates)
        placed = {id(a): mirrored.place(a) for a in candidates}
        there = lambda value: placed.get(id(value), value)  # noqa: E731
        if out is not None:
            keywords["out"] = tuple(map(there, out)) if isinstance(out, tuple) else there(out)
        try:
            result = self._function(*map(there, args), **{name: there(v) for name, v in keywords.items()})
            return type(result)(*map(to_host, result)) if isinstance(result, tuple) else to_host(result)
        finally:
            mirrored.fetch()
            mirrored.free()


def open_handle():
    """A Handle of the device that the tests run on."""
    return iop.Handle(DEVICE)


def calculate(op, *values, addresses=False, stream=None):
    """op.calculate on NumPy arrays, or on their addresses, where the tests run. Other values go as they are."""
    arrays = [v for v in values if isinstance(v, np.ndarray)]
    if DEVICE == "cpu":
        return op.calculate(*(v.ctypes.data if addresses and isinstance(v, np.ndarray) else v for v in values))
    mirrored = Mirrored(arrays)
    to_device = mirrored.address if addresses else mirrored.place
    try:
        op.calculate(*(to_device(v) if isinstance(v, np.ndarray) else v for v in values), stream=stream)
    finally:
        mirrored.fetch()
        mirrored.free()
