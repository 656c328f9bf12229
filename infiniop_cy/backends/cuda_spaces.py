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


class Space:
    """What both kinds have: a device, a stream, borrowed memory."""

    def __init__(self, index, stream):
        self.index, self.stream = index, stream
        self._call = _core.DeviceCall(index, stream)
        self._values = {}  # id of an output's header: the caller's array

    def borrow(self, size, op):
        """The address of so many bytes, for the time of the call."""
        return self._call.borrow(size, op)

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self._call.close()


class DeviceSpace(Space):
    """Arrays in the GPU's memory. All work goes to the stream of the first that names one; nothing waits for it."""

    def __init__(self, index, op, arrays):
        """index: of the device, None for where the arrays are; arrays: by name, None for those that are missing."""
        present = {name: value for name, value in arrays.items() if value is not None}
        self._like = next(iter(present.values()))
        found = {name: cuda_arrays.describe(value, f"{op}: {name}") for name, value in present.items()
                 if cuda_arrays.has_stream(value)}
        streams = list(dict.fromkeys(d.stream for d in found.values() if d.stream is not None))
        stream = streams[0] if streams else cuda_arrays.LEGACY_STREAM
        for name, value in present.items():
            if name not in found:
                found[name] = cuda_arrays.describe(value, f"{op}: {name}", stream)
        super().__init__(self._device_of(index, op, found), stream)
        self._described = {id(value): found[name] for name, value in present.items()}
        self._others = streams[1:]
        for other in self._others:
            self._call.follow(other, op)
        self._op = op

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
        d = self._described[id(value)]
        header = _core.device_header(d.address, d.shape, d.strides, d.dtype, d.writable, d.owner)
        if not header.flags.aligned or not header.dtype.isnative:
            problem = "byte-swapped" if header.flags.aligned else "not aligned"
            raise BadParam(f"{op}: {name} is {problem}, expected an aligned, native array on a GPU")
        return header

    def input(self, value, op, name):
        if value is None:
            raise NullPointer(f"{op}: {name} is None")
        return self._header(value, op, name)

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
        return self._call.copy(header, op)

    def result(self, header):
        return self._values[id(header)][1]

    def __exit__(self, *exc_info):
        super().__exit__(*exc_info)
        for other in self._others:  # what comes next there may overwrite inputs and read results
            self._call.lead(other, self._op)


class HostSpace(Space):
    """NumPy arrays, copied to the device and back. Each has memory of its own there, so none overlap."""

    def __init__(self, index, op, arrays):
        self._context = current(index)
        super().__init__(index, self._context.stream.handle)
        self._outputs = {}  # by name

    def _device_header(self, shape, strides, dtype, size, op):
        return _core.device_header(self.borrow(size, op), shape, strides, dtype, True, self)

    def input(self, value, op, name):
        array = _core.host_input(value, op, name)
        if not code_of(array.dtype.name):
            return array  # the core refuses its dtype
        # one element stands for a broadcast axis
        part = array[tuple(slice(0, 1) if step == 0 else slice(None) for step in array.strides)]
        order = cuda_arrays.memory_order(part.shape, part)
        strides = cuda_arrays.ordered_strides(part.shape, part.itemsize, order)
        strides = tuple(0 if step == 0 else new for step, new in zip(array.strides, strides))
        header = self._device_header(array.shape, strides, array.dtype, part.nbytes, op)
        self._context.upload(header.ctypes.data, np.ascontiguousarray(part.transpose(order)))
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
            self._context.upload(header.ctypes.data, np.ascontiguousarray(array.transpose(order)))
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
        return array
