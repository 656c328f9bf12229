"""The memory that the command shares with a candidate's process: tensors between bytes that nobody may write to."""
import mmap
import os
import tempfile

import numpy as np
from numpy.lib.array_utils import byte_bounds

from infiniop_cy.check.calls import Placed

MARGIN = 4096  # bytes around each tensor: a write past the end by a vector, or by a row of most test shapes
CANARY = 0xA5
PAGE = mmap.PAGESIZE


def _up(offset, to):
    return -(-offset // to) * to


class Arena:
    """Tensors of one call at a time. A context manager; the memory goes at its end."""

    def __init__(self, size):
        # A file without a name: it is passed on as a descriptor, and gone when the last process that has it ends.
        self.file = os.memfd_create("infiniop-cy") if hasattr(os, "memfd_create") else _nameless_file()
        os.ftruncate(self.file, size)
        self.bytes = attach(self.file)
        self.clear()

    def clear(self):
        """No tensors; what is placed from now on lies between canaries."""
        self.end = MARGIN
        self.names = []  # (first byte, last byte + 1, name)
        self.bytes[:MARGIN] = CANARY

    def place(self, name, array, odd=False, edge=None):
        """Copy an array with its strides, gaps and broadcast axes. odd: one element past an aligned address. edge: at
        the "start" or the "end" of pages of its own, with an empty one on either side."""
        low, high = byte_bounds(array) if array.size else (0, 0)
        size = high - low
        if edge:
            start = _up(self.end, PAGE) + PAGE + (-size % PAGE if edge == "end" else 0)
        else:
            start = _up(self.end, 64) + (array.itemsize if odd else 0)
        stop = start + size
        end = _up(stop, PAGE) + PAGE if edge else stop + MARGIN
        if end > self.bytes.size:
            raise MemoryError(f"the tensors of one call need more than {self.bytes.size} bytes")
        self.bytes[self.end:end] = CANARY
        first = start + (array.ctypes.data - low if array.size else 0)
        placed = Placed(first, array.shape, array.strides, array.dtype.name)
        if array.size:
            view = placed.view(self.bytes.data)
            index = tuple(slice(None, 1) if stride == 0 else slice(None) for stride in array.strides)
            view[(*index, ...)] = array[(*index, ...)]
        self.end = end
        self.names.append((start, stop, name))
        return placed

    def walls(self):
        """The empty pages around tensors that were placed at an edge, as guards of a Call."""
        return tuple((first, PAGE, False) for start, stop, _ in self.names
                     for first in (start // PAGE * PAGE - PAGE, _up(stop, PAGE)))

    def input_pages(self):
        """The pages of the inputs that were placed at an edge, as guards that may be read."""
        return tuple((start, _up(stop - start, PAGE), True) for start, stop, name in self.names
                     if name.startswith("input:") and start < stop)

    def read(self, placed):
        """A copy of a tensor's values."""
        return placed.view(self.bytes.data).copy(order="C")

    def snapshot(self):
        return self.bytes[:self.end].copy()

    def damage(self, before, outputs):
        """Where bytes differ from the snapshot outside `outputs`: (property, sentence) pairs. Consumes the outputs."""
        for placed in outputs:
            placed.view(self.bytes.data)[...] = placed.view(before.data)
        now = self.bytes[:self.end]
        if np.array_equal(now, before):
            return []
        found, changed = {}, now != before
        for start, stop, name in self.names:
            if changed[start:stop].any():
                changed[start:stop] = False
                if name.startswith("input:"):
                    found.setdefault("inputs unchanged", f"{name[6:]} was changed")
                else:
                    found.setdefault("no writes outside", f"a gap between the elements of {name} was written to")
        if changed.any():
            at = int(np.argmax(changed))
            start, stop, name = min(self.names, key=lambda item: min(abs(item[0] - at), abs(item[1] - 1 - at)))
            where = f"{at - stop + 1} bytes past the end" if at >= stop else f"{start - at} bytes before the start"
            found.setdefault("no writes outside", f"written to {where} of {name.removeprefix('input:')}")
        return list(found.items())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.file)


def attach(file):
    """The bytes of an arena's file."""
    return np.frombuffer(mmap.mmap(file, os.fstat(file).st_size), np.uint8)


def _nameless_file():
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
