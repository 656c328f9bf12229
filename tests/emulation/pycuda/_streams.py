"""Streams and events."""

from enum import IntEnum

from pycuda._context import Owned
from pycuda._library import NOT_READY, byref, c_float, c_void_p, call, code_of, failure, result
from pycuda._memory import handle_of


class event_flags(IntEnum):
    DEFAULT = 0
    BLOCKING_SYNC = 1
    DISABLE_TIMING = 2
    INTERPROCESS = 4


def _done(name, handle):
    code = code_of(name, handle)
    if code and code != NOT_READY:
        raise failure(name, code)
    return not code


class Stream(Owned):
    handle = None

    def __init__(self, flags=0):
        self._acquire()
        self.handle = result("cuStreamCreate", c_void_p, flags)

    def synchronize(self):
        call("cuStreamSynchronize", self.handle)

    def is_done(self):
        return _done("cuStreamQuery", self.handle)

    def wait_for_event(self, event):
        call("cuStreamWaitEvent", self.handle, event.handle, 0)

    def __del__(self):
        if self.handle is not None:
            self._clean_up("cuStreamDestroy_v2", self.handle)


class Event(Owned):
    handle = None

    def __init__(self, flags=0):
        self._acquire()
        self.handle = result("cuEventCreate", c_void_p, int(flags))

    def record(self, stream=None):
        call("cuEventRecord", self.handle, handle_of(stream))
        return self

    def synchronize(self):
        call("cuEventSynchronize", self.handle)
        return self

    def query(self):
        return _done("cuEventQuery", self.handle)

    def time_since(self, start):
        milliseconds = c_float()
        call("cuEventElapsedTime", byref(milliseconds), start.handle, self.handle)
        return milliseconds.value

    def __del__(self):
        if self.handle is not None:
            self._clean_up("cuEventDestroy_v2", self.handle)
