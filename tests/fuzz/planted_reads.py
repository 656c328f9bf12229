"""A C call that is told of one element too many, and a result that nobody wrote: valgrind notices, or it is not
watching."""
import ctypes

import numpy as np

from fuzz.c_api import SIZE, P, library, tensor

if __name__ == "__main__":
    handle, op = P(), P()
    library().infiniopCreateHandle(ctypes.byref(handle))
    t = tensor(None, [1001])
    library().infiniopCreateReluBackwardDescriptor(handle, ctypes.byref(op), t, t, t)
    libc = ctypes.CDLL(None)
    libc.malloc.restype = P
    short = P(libc.malloc(ctypes.c_size_t(4000)))
    out = np.empty(1001, np.float32)
    library().infiniopReluBackward(op, None, SIZE(0), P(out.ctypes.data), short, P(np.ones_like(out).ctypes.data), None)
    print((np.empty(1000, np.float32) == 3).any())
