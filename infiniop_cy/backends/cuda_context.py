"""PyCUDA's view of a device: its primary context, and the way of NumPy arrays there and back."""
import threading

import numpy as np

from infiniop_cy.core import _core

CHUNK = 4 << 20       # bytes of a staging buffer; larger ones take as long to fill as they save
STAGED_FROM = 1 << 20  # bytes; below, the driver's own buffer does as well

_local = threading.local()
_allocators: dict = {}  # by device


class ThreadContext:
    """The primary context of one device, as PyCUDA has it, in this thread, and what it keeps for copies."""

    def __init__(self, index):
        import pycuda.driver as driver
        self.driver = driver
        driver.init()
        self.context = driver.Device(index).retain_primary_context()
        self._stream = None
        self._buffers = None

    def __enter__(self):
        self.context.push()
        return self

    def __exit__(self, *exc_info):
        self.context.pop()

    @property
    def stream(self):
        """The stream of calls on NumPy arrays. It waits for the default stream and is waited for by it."""
        if self._stream is None:
            with self:
                self._stream = self.driver.Stream()
        return self._stream

    def _chunks(self, array):
        """(staging buffer, event, part of the bytes) in turn, over a contiguous array."""
        if self._buffers is None:
            self._buffers = [(self.driver.pagelocked_empty(CHUNK, np.uint8), self.driver.Event()) for _ in range(2)]
        flat = array.reshape(-1).view(np.uint8)
        for number, start in enumerate(range(0, flat.size, CHUNK)):
            part = flat[start:start + CHUNK]
            buffer, event = self._buffers[number % 2]
            yield buffer[:part.size], event, start, part

    def upload(self, address, array):
        """Copy a C-contiguous array to the device, in the order of the stream, which may read it as late as that."""
        with self:
            if array.nbytes < STAGED_FROM:
                if array.nbytes:
                    self.driver.memcpy_htod_async(address, array, self.stream)
                return
            for buffer, event, start, part in self._chunks(array):
                event.synchronize()  # the copy that last used this buffer
                np.copyto(buffer, part)
                self.driver.memcpy_htod_async(address + start, buffer, self.stream)
                event.record(self.stream)

    def synchronize(self):
        with self:
            self.stream.synchronize()

    def download(self, array, address):
        """Copy to a C-contiguous array; it is there on return."""
        with self:
            if array.nbytes < STAGED_FROM:
                if array.nbytes:
                    self.driver.memcpy_dtoh_async(array, address, self.stream)
                self.stream.synchronize()
                return
            waiting = []
            for buffer, event, start, part in self._chunks(array):
                event.synchronize()
                self.driver.memcpy_dtoh_async(buffer, address + start, self.stream)
                event.record(self.stream)
                waiting.append((buffer, event, part))
                if len(waiting) == 2:
                    self._finish(waiting.pop(0))
            for copied in waiting:
                self._finish(copied)

    @staticmethod
    def _finish(copied):
        buffer, event, part = copied
        event.synchronize()
        np.copyto(part, buffer)


def allocator(index):
    """What gives a GPUArray memory of a device, as driver.mem_alloc does, that any thread may free."""
    if index not in _allocators:
        _allocators[index] = _new_allocator(index)
    return _allocators[index]


def _new_allocator(index):
    from pycuda.driver import PointerHolderBase
    kind = type("Memory", (PointerHolderBase,), {"get_pointer": lambda self: self.memory.address})

    def allocate(size):
        held = kind()
        held.memory = _core.DeviceMemory(index, size, "result")
        return held
    return allocate


def current(index):
    """The ThreadContext of a device; `with` makes it current."""
    contexts = _local.__dict__.setdefault("contexts", {})
    if index not in contexts:
        contexts[index] = ThreadContext(index)
    return contexts[index]
