"""Where the arrays of one call lie, for the core, which sees only NumPy headers over device memory.

A space turns inputs and outputs into such headers, makes new results, and gives the caller what it asked for. The core
checks and plans on headers as on any array (core/python/functions.pxi). A space is a context manager: leaving it gives
back the memory that the call borrowed.
"""
import numpy as np

from infiniop_cy.backends import cuda_arrays
from infiniop_cy.backends.cuda_context import current
from infiniop_cy.core import _core
from infiniop_cy.dtypes import code_of
from infiniop_cy.status import BadParam, NullPointer


class OrderedCall:
    """A call among streams: its own waits for the others, and at the end they wait for it, since what comes next there
    may overwrite inputs and read results. Tensors of DLPack, whose libraries know nothing of our stream, are held."""

    def __init__(self, index, op, stream, others=(), described=()):
        self.call = _core.DeviceCall(index, stream)
        self._op, self._others = op, others
        for other in others:
            self.call.follow(other, op)
        for d in described:
            if d.borrowed:
                self.call.hold(d.owner)

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.call.close()
        for other in self._others:
            self.call.lead(other, self._op)


class DeviceSpace:
    """Arrays in the GPU's memory. All work goes to the stream of the first that names one; nothing waits for it."""

    def __init__(self, index, op, arrays):
        """index: of the device, None for where the arrays are; arrays: by name, None for those that are missing."""
        present = {name: value for name, value in arrays.items() if value is not None and not _core.is_weak(value)}
        self._like, self._op = next(iter(present.values())), op
        found, self.stream, others = cuda_arrays.describe_all(op, present)
        self.index = self._device_of(index, op, found)
        self._ordered = OrderedCall(self.index, op, self.stream, others, found.values())
        self._described = {id(value): found[name] for name, value in present.items()}
        self._values = {}    # id of an output's header: the header, and the caller's array
        self._borrowed = []  # from the allocator of the arrays' library

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self._borrowed.clear()
        self._ordered.__exit__(*exc_info)

    def borrow(self, size, op):
        """The address of so many bytes, for the time of the call: from torch or CuPy where the call runs on their
        current stream, so that there is one cache of memory."""
        if not cuda_arrays.is_current_stream(self._like, self.stream):
            return self._ordered.call.borrow(size, op)
        address, owner = cuda_arrays.borrow(self._like, self.index, size)
        self._borrowed.append(owner)
        return address

    @staticmethod
    def _device_of(index, op, found):
        where = {name: _core.device_of(d.address) for name, d in found.items() if d.address}
        devices = {device for device in where.values() if device >= 0}
        if len(devices | ({index} - {None})) > 1:
            places = ", ".join(f"{name} on cuda:{device}" for name, device in where.items())
            asked = "" if index is None else f", asked for cuda:{index}"
            raise BadParam(f"{op}: arrays on different devices: {places}{asked}")
        return index if index is not None else next(iter(devices), 0)

    def _header(self, value, op, name):
        d = self._described.get(id(value))
        if d is None:  # a number, where none is broadcast
            raise TypeError(f"{op}: {name} is {value!r}, expected an array on a GPU")
        header = _core.device_header(d.address, d.shape, d.strides, d.dtype, d.writable, d.owner)
        if not header.flags.aligned or not header.dtype.isnative:
            problem = "byte-swapped" if header.flags.aligned else "not aligned"
            raise BadParam(f"{op}: {name} is {problem}, expected an aligned, native array on a GPU")
        return header

    def input(self, value, op, name):
        if value is None:
            raise NullPointer(f"{op}: {name} is None")
        return self._header(value, op, name)

    def number(self, array, op):
        """Where the device reads a Python number."""
        return self._ordered.call.number(array, op)

    def output(self, value, op, name, accumulate):
        header = self._header(value, op, name)
        if not header.flags.writeable:
            raise BadParam(f"{op}: {name} is read-only, expected a writable array")
        self._values[id(header)] = header, value
        return header

    def new(self, shape, dtype, model):
        strides = cuda_arrays.ordered_strides(shape, dtype.itemsize, cuda_arrays.memory_order(shape, model))
        value = cuda_arrays.new_array(self._like, self.index, shape, dtype, strides)
        self._described[id(value)] = cuda_arrays.describe(value, "result", self.stream)
        return self.output(value, self._op, "result", False)

    def copy(self, header, op):
        return self._ordered.call.copy(header, op)

    def result(self, header):
        return self._values[id(header)][1]


class HostSpace:
    """NumPy arrays, copied to the device and back. Each has memory of its own there, so none overlap."""

    def __init__(self, index, op, arrays):
        self._context = current(index)
        self.index, self.stream = index, self._context.stream.handle
        self._call = _core.DeviceCall(index, self.stream)
        self._values = {}    # id of an output's header: the header, the caller's array, the order of its axes
        self._outputs = {}   # by name
        self._uploaded = []  # what the device may not have read yet

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self._call.close()
        if self._uploaded:  # no result was waited for
            self._context.synchronize()

    def borrow(self, size, op):
        """The address of so many bytes, for the time of the call."""
        return self._call.borrow(size, op)

    def _upload(self, header, array):
        self._uploaded.append(array)
        self._context.upload(header.ctypes.data, array)

    def _device_header(self, shape, strides, dtype, size, op):
        return _core.device_header(self.borrow(size, op), shape, strides, dtype, True, self)

    def number(self, array, op):
        """Where the device reads a Python number."""
        return self._on_device(array, op)

    def input(self, value, op, name):
        return self._on_device(_core.host_input(value, op, name), op)

    def _on_device(self, array, op):
        if not code_of(array.dtype.name):
            return array  # the core refuses its dtype
        # one element stands for a broadcast axis
        part = array[tuple(slice(0, 1) if step == 0 else slice(None) for step in array.strides)]
        order = cuda_arrays.memory_order(part.shape, part)
        strides = cuda_arrays.ordered_strides(part.shape, part.itemsize, order)
        strides = tuple(0 if step == 0 else new for step, new in zip(array.strides, strides))
        header = self._device_header(array.shape, strides, array.dtype, part.nbytes, op)
        self._upload(header, np.ascontiguousarray(part.transpose(order)))
        return header

    def output(self, value, op, name, accumulate):
        array = _core.host_output(value, op, name, self._outputs)
        self._outputs[name] = array
        return self._output(array, op, accumulate)

    def _output(self, array, op, accumulate):
        order = cuda_arrays.memory_order(array.shape, array)
        strides = cuda_arrays.ordered_strides(array.shape, array.itemsize, order)
        header = self._device_header(array.shape, strides, array.dtype, array.nbytes, op)
        if accumulate:
            self._upload(header, np.ascontiguousarray(array.transpose(order)))
        self._values[id(header)] = header, array, order
        return header

    def new(self, shape, dtype, model):
        order = cuda_arrays.memory_order(shape, model)
        array = np.empty([shape[d] for d in order], dtype).transpose(np.argsort(order))
        return self._output(array, "", False)

    def result(self, header):
        _, array, order = self._values[id(header)]
        in_memory = array.transpose(order)
        if in_memory.flags.c_contiguous:
            self._context.download(in_memory, header.ctypes.data)
        else:
            copy = np.empty(in_memory.shape, array.dtype)
            self._context.download(copy, header.ctypes.data)
            in_memory[...] = copy
        self._uploaded.clear()  # the stream is behind all of them
        return array
