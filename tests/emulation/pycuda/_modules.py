"""Modules, their functions and launches."""

import struct
from ctypes import addressof, c_size_t, c_void_p
from enum import IntEnum

import numpy as np
from pycuda._context import Owned
from pycuda._library import INVALID_HANDLE, Buffer, c_int, call, failure, result
from pycuda._memory import handle_of


class function_attribute(IntEnum):
    MAX_THREADS_PER_BLOCK = 0
    SHARED_SIZE_BYTES = 1
    CONST_SIZE_BYTES = 2
    LOCAL_SIZE_BYTES = 3
    NUM_REGS = 4
    PTX_VERSION = 5
    BINARY_VERSION = 6
    MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
    PREFERRED_SHARED_MEMORY_CARVEOUT = 9


LAUNCH_BUFFER, LAUNCH_SIZE = 1, 2


def _sizes(dimensions, what):
    if len(dimensions) > 3:
        raise failure("function::launch_kernel", INVALID_HANDLE, f"too many {what} dimensions in kernel launch")
    return [int(n) for n in dimensions] + [1] * (3 - len(dimensions))


class Function:
    def __init__(self, module, handle):
        self._module, self.handle = module, handle

    def get_attribute(self, attribute):
        return result("cuFuncGetAttribute", c_int, int(attribute), self.handle)

    def set_attribute(self, attribute, value):
        call("cuFuncSetAttribute", self.handle, int(attribute), value)

    def __getattr__(self, name):
        try:
            return self.get_attribute(function_attribute[name.upper()])
        except KeyError:
            raise AttributeError(name) from None

    def prepare(self, arg_types, texrefs=()):
        self.arg_format = ""
        for kind in arg_types:
            if isinstance(kind, type) and np.number in kind.__mro__:
                self.arg_format += np.dtype(kind).char
            elif isinstance(kind, np.dtype):
                self.arg_format += f"{kind.itemsize}s" if kind.char == "V" else kind.char
            elif isinstance(kind, str):
                self.arg_format += kind
            else:
                self.arg_format += "P"
        return self

    def _pack(self, arguments):
        values = [int(a) if hasattr(a, "__int__") and not isinstance(a, (float, np.floating)) else a
                  for a in arguments]  # fmt: skip
        return struct.pack("@" + self.arg_format, *values)

    def _launch_kernel(self, grid, block, arguments, shared, stream):
        with Buffer(arguments) as (address, size):
            length = c_size_t(size)
            extra = (c_void_p * 5)(LAUNCH_BUFFER, address, LAUNCH_SIZE, addressof(length), 0)
            call("cuLaunchKernel", self.handle, *_sizes(grid, "grid"), *_sizes(block, "block"), shared,
                 handle_of(stream), None, extra)  # fmt: skip

    def prepared_call(self, grid, block, *args, shared_size=0):
        self._launch_kernel(grid, block, self._pack(args), shared_size, None)

    def prepared_async_call(self, grid, block, stream, *args, shared_size=0):
        self._launch_kernel(grid, block, self._pack(args), shared_size, stream)

class Module(Owned):
    handle = None

    def __init__(self, image):
        self._acquire()
        with Buffer(image) as (address, _):
            self.handle = result("cuModuleLoadDataEx", c_void_p, address, 0, None, None)

    def get_function(self, name):
        return Function(self, result("cuModuleGetFunction", c_void_p, self.handle, name.encode()))

    def __del__(self):
        if self.handle is not None:
            self._clean_up("cuModuleUnload", self.handle)


def module_from_buffer(buffer, options=(), message_handler=None):
    return Module(buffer)
