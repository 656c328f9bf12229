"""Dtypes: the four storage types, and what leaky_relu_backward's `out` may be besides."""
import numpy as np

# name: (infiniDtype_t, compute type)
STORAGE = {
    "float16": (12, "float32"),
    "bfloat16": (19, "float32"),
    "float32": (13, "float32"),
    "float64": (14, "float64"),
}

# name: infiniDtype_t, for results that are cast after computing
CAST_ONLY = {
    "bool": 2, "int8": 3, "int16": 4, "int32": 5, "int64": 6, "uint8": 7, "uint16": 8, "uint32": 9, "uint64": 10,
    "complex64": 17, "complex128": 18,
}

_CODES = {name: code for name, (code, _) in STORAGE.items()} | CAST_ONLY


def code_of(name):
    """infiniDtype_t of a dtype name; 0 (INFINI_DTYPE_INVALID) for any other."""
    return _CODES.get(name, 0)


def name_of(dtype):
    """The name of anything NumPy takes for a dtype, and of "bfloat16" also where NumPy does not know it."""
    if isinstance(dtype, str) and dtype in _CODES:
        return dtype
    return np.dtype(dtype).newbyteorder("=").name


def is_native(dtype):
    """Whether the numbers of anything NumPy takes for a dtype have this machine's byte order."""
    return (isinstance(dtype, str) and dtype in _CODES) or np.dtype(dtype).isnative


def numpy_dtype(name):
    """The NumPy dtype of a name; the name itself for bfloat16 without ml_dtypes."""
    if name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        return name
    return np.dtype(ml_dtypes.bfloat16)
