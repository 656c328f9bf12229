"""Calls into libcuda.so.1 and the exceptions that PyCUDA makes of its codes."""

import ctypes
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p


class Error(Exception):
    pass


class LogicError(Error):
    pass


class MemoryError(Error):
    pass


class RuntimeError(Error):
    pass


class LaunchError(Error):
    pass


OUT_OF_MEMORY, INVALID_VALUE, INVALID_CONTEXT, INVALID_HANDLE, NOT_READY = 2, 1, 201, 400, 600
CLASSES = {
    OUT_OF_MEMORY: MemoryError,
    100: RuntimeError, 209: RuntimeError, 301: RuntimeError, NOT_READY: RuntimeError,
    701: LaunchError, 702: LaunchError, 703: LaunchError, 719: LaunchError,
    999: Error,
}  # fmt: skip

# p: a host address or a handle, d: a device address, z: a size, i and u: int and unsigned, s: a name
LETTERS = {"p": c_void_p, "d": c_uint64, "z": c_size_t, "i": c_int, "u": c_uint, "s": c_char_p}
SIGNATURES = {
    "cuInit": "u", "cuDeviceGetCount": "p", "cuDeviceGet": "pi", "cuDeviceGetAttribute": "pii",
    "cuDeviceComputeCapability": "ppi", "cuDevicePrimaryCtxRetain": "pi", "cuDevicePrimaryCtxRelease_v2": "i",
    "cuCtxCreate_v2": "pui", "cuCtxDetach": "p", "cuCtxPushCurrent_v2": "p", "cuCtxPopCurrent_v2": "p",
    "cuCtxGetDevice": "p", "cuCtxSynchronize": "", "cuMemAlloc_v2": "pz", "cuMemFree_v2": "d",
    "cuMemHostAlloc": "pzu", "cuMemFreeHost": "p", "cuMemGetInfo_v2": "pp", "cuMemcpyHtoD_v2": "dpz",
    "cuMemcpyDtoH_v2": "pdz", "cuMemcpyDtoD_v2": "ddz", "cuMemcpyHtoDAsync_v2": "dpzp",
    "cuMemcpyDtoHAsync_v2": "pdzp", "cuMemsetD8_v2": "duz", "cuStreamCreate": "pu", "cuStreamDestroy_v2": "p",
    "cuStreamSynchronize": "p", "cuStreamQuery": "p", "cuStreamWaitEvent": "ppu", "cuEventCreate": "pu",
    "cuEventDestroy_v2": "p", "cuEventRecord": "pp", "cuEventSynchronize": "p", "cuEventQuery": "p",
    "cuEventElapsedTime": "ppp", "cuModuleLoadDataEx": "ppupp", "cuModuleUnload": "p", "cuModuleGetFunction": "pps",
    "cuFuncGetAttribute": "pip", "cuFuncSetAttribute": "pii", "cuLaunchKernel": "puuuuuuuppp",
}  # fmt: skip


class Py_buffer(ctypes.Structure):
    _fields_ = [
        ("buf", c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t),
        ("readonly", c_int), ("ndim", c_int), ("format", c_char_p), ("shape", c_void_p), ("strides", c_void_p),
        ("suboffsets", c_void_p), ("internal", c_void_p),
    ]  # fmt: skip


WRITABLE, ANY_CONTIGUOUS = 0x001, 0x098
_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(Py_buffer), c_int]
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.POINTER(Py_buffer)]
_release_buffer.restype = None


class Buffer:
    """The memory of any object with contiguous data, asked for without a format as PyCUDA does."""

    def __init__(self, thing, flags=ANY_CONTIGUOUS):
        self._view = Py_buffer()
        _get_buffer(thing, byref(self._view), flags)

    def __enter__(self):
        return self._view.buf, self._view.len

    def __exit__(self, *exception):
        _release_buffer(byref(self._view))


_driver = ctypes.CDLL("libcuda.so.1")
for _name, _letters in SIGNATURES.items():
    getattr(_driver, _name).argtypes = [LETTERS[letter] for letter in _letters]
_driver.cuGetErrorString.argtypes = [c_int, c_void_p]


def failure(name, code, text=""):
    """The exception for a code, in PyCUDA's words."""
    message = c_char_p()
    _driver.cuGetErrorString(code, byref(message))
    routine = name.partition("_v")[0]
    words = f"{routine} failed: {(message.value or b'unknown error').decode()}"
    return CLASSES.get(code, LogicError)(words + (f" - {text}" if text else ""))


def code_of(name, *arguments):
    return getattr(_driver, name)(*arguments)


def call(name, *arguments):
    code = getattr(_driver, name)(*arguments)
    if code:
        raise failure(name, code)


def result(name, kind, *arguments):
    """What a function writes through its first parameter."""
    value = kind()
    call(name, byref(value), *arguments)
    return value.value


__all__ = ["ANY_CONTIGUOUS", "WRITABLE", "Buffer", "Error", "LaunchError", "LogicError", "MemoryError",
           "RuntimeError", "byref", "c_float", "c_int", "c_size_t", "c_uint", "c_uint64", "c_void_p", "call",
           "code_of", "failure", "result"]  # fmt: skip
