"""Devices and contexts, with PyCUDA's own stack of contexts per thread."""

import threading
import warnings
from enum import IntEnum

from pycuda._library import INVALID_CONTEXT, byref, c_int, c_void_p, call, code_of, failure, result


class device_attribute(IntEnum):
    MULTIPROCESSOR_COUNT = 16
    COMPUTE_CAPABILITY_MAJOR = 75
    COMPUTE_CAPABILITY_MINOR = 76


def init(flags=0):
    call("cuInit", flags)


class Device:
    def __init__(self, ordinal):
        self._device = result("cuDeviceGet", c_int, ordinal)

    @staticmethod
    def count():
        return result("cuDeviceGetCount", c_int)

    def compute_capability(self):
        major, minor = c_int(), c_int()
        call("cuDeviceComputeCapability", byref(major), byref(minor), self._device)
        return major.value, minor.value

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
