"""Devices and contexts, with PyCUDA's own stack of contexts per thread."""

import ctypes
import threading
import warnings
from enum import IntEnum

from pycuda._library import INVALID_CONTEXT, byref, c_int, c_size_t, c_void_p, call, code_of, failure, result


class device_attribute(IntEnum):
    MAX_THREADS_PER_BLOCK = 1
    MAX_BLOCK_DIM_X = 2
    MAX_BLOCK_DIM_Y = 3
    MAX_BLOCK_DIM_Z = 4
    MAX_GRID_DIM_X = 5
    MAX_GRID_DIM_Y = 6
    MAX_GRID_DIM_Z = 7
    MAX_SHARED_MEMORY_PER_BLOCK = 8
    TOTAL_CONSTANT_MEMORY = 9
    WARP_SIZE = 10
    MAX_PITCH = 11
    MAX_REGISTERS_PER_BLOCK = 12
    CLOCK_RATE = 13
    MULTIPROCESSOR_COUNT = 16
    CONCURRENT_KERNELS = 31
    PCI_BUS_ID = 33
    MEMORY_CLOCK_RATE = 36
    GLOBAL_MEMORY_BUS_WIDTH = 37
    L2_CACHE_SIZE = 38
    MAX_THREADS_PER_MULTIPROCESSOR = 39
    ASYNC_ENGINE_COUNT = 40
    UNIFIED_ADDRESSING = 41
    COMPUTE_CAPABILITY_MAJOR = 75
    COMPUTE_CAPABILITY_MINOR = 76
    STREAM_PRIORITIES_SUPPORTED = 78
    MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81
    MAX_REGISTERS_PER_MULTIPROCESSOR = 82
    MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97


def init(flags=0):
    call("cuInit", flags)


def get_driver_version():
    return result("cuDriverGetVersion", c_int)


def get_version():
    return (13, 0, 0)


class Device:
    def __init__(self, ordinal):
        self._device = result("cuDeviceGet", c_int, ordinal)

    @staticmethod
    def count():
        return result("cuDeviceGetCount", c_int)

    def name(self):
        text = ctypes.create_string_buffer(256)
        call("cuDeviceGetName", text, len(text), self._device)
        return text.value.decode()

    def pci_bus_id(self):
        text = ctypes.create_string_buffer(32)
        call("cuDeviceGetPCIBusId", text, len(text), self._device)
        return text.value.decode()

    def compute_capability(self):
        major, minor = c_int(), c_int()
        call("cuDeviceComputeCapability", byref(major), byref(minor), self._device)
        return major.value, minor.value

    def total_memory(self):
        return result("cuDeviceTotalMem_v2", c_size_t, self._device)

    def get_attribute(self, attribute):
        return result("cuDeviceGetAttribute", c_int, int(attribute), self._device)

    def __getattr__(self, name):
        try:
            return self.get_attribute(device_attribute[name.upper()])
        except KeyError:
            raise AttributeError(name) from None

    def __eq__(self, other):
        return isinstance(other, Device) and self._device == other._device

    def __hash__(self):
        return hash(self._device)

    def retain_primary_context(self):
        return Context(result("cuDevicePrimaryCtxRetain", c_void_p, self._device), self._device)

    def make_context(self, flags=0):
        _leave()
        context = Context(result("cuCtxCreate_v2", c_void_p, flags, self._device))
        _stack().append(context)
        return context


_local = threading.local()


def _stack():
    if not hasattr(_local, "contexts"):
        _local.contexts = []
    return _local.contexts


def _leave():
    if _stack():
        result("cuCtxPopCurrent_v2", c_void_p)


class Context:
    """One context; whoever is on top of a thread's stack is current there."""

    def __init__(self, handle, primary_of=None):
        self.handle, self._primary_of = handle, primary_of
        self._valid, self._thread = True, threading.get_ident()

    def push(self):
        _leave()
        call("cuCtxPushCurrent_v2", self.handle)
        _stack().append(self)

    @staticmethod
    def pop():
        _leave()
        if not _stack():
            raise failure("context::pop", INVALID_CONTEXT, "cannot pop non-current context")
        _stack().pop()
        current = Context.get_current()
        if current is not None:
            call("cuCtxPushCurrent_v2", current.handle)

    @staticmethod
    def get_current():
        stack = _stack()
        while stack and not stack[-1]._valid:
            stack.pop()
        return stack[-1] if stack else None

    @staticmethod
    def get_device():
        return Device(result("cuCtxGetDevice", c_int))

    @staticmethod
    def synchronize():
        call("cuCtxSynchronize")

    def detach(self):
        if not self._valid:
            raise failure("context::detach", INVALID_CONTEXT, "cannot detach from invalid context")
        active = Context.get_current() is self
        if self._primary_of is not None:
            code_of("cuDevicePrimaryCtxRelease_v2", self._primary_of)
        else:
            code_of("cuCtxDetach", self.handle)
        self._valid = False
        if active:
            current = Context.get_current()
            if current is not None:
                call("cuCtxPushCurrent_v2", current.handle)

    def __eq__(self, other):
        return isinstance(other, Context) and self.handle == other.handle

    def __hash__(self):
        return hash(self.handle)

    def __del__(self):
        if self._valid and self._thread == threading.get_ident():
            self.detach()


class Owned:
    """Something that belongs to a context and is freed with that context current, as PyCUDA's objects are."""

    def _acquire(self):
        self._context = Context.get_current()
        if self._context is None:
            raise failure("explicit_context_dependent", INVALID_CONTEXT, "no currently active context?")

    def _clean_up(self, name, handle):
        context = self._context
        if context is None or not context._valid:
            return
        switch = Context.get_current() is not context
        if switch and context._thread != threading.get_ident():
            warnings.warn(f"{type(self).__name__} in out-of-thread context could not be cleaned up", stacklevel=3)
            return
        if switch:
            context.push()
        try:
            if code_of(name, handle):
                warnings.warn("PyCUDA WARNING: a clean-up operation failed (dead context maybe?)", stacklevel=3)
        finally:
            if switch:
                Context.pop()
