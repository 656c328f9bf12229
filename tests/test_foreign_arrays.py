"""Arrays of other libraries as arguments: read where they are, or refused in words that say what to call. Those of the
frameworks are in bridges/test_bridge_arrays.py."""
import ctypes
import subprocess
import sys

import numpy as np
import pytest

import infiniop_cy as iop
from infiniop_cy.core import _core
from infiniop_cy.testing import DTYPES, LAYOUTS, arrange, random_values, same_bits

CPU, METAL = 1, 8
EXPORTED = []
DLPACK_DTYPES = {"float16": (2, 16), "bfloat16": (4, 16), "float32": (2, 32), "float64": (2, 64), "int32": (0, 32)}


class OnlyDlpack:
    """An array that offers DLPack and nothing else, made from a NumPy array, bfloat16 included."""

    def __init__(self, array, device=CPU, lanes=1):
        self.array, self.device, self.lanes, self.deleted = array, device, lanes, 0

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self):
        array = self.array
        numbers = ctypes.c_int64 * array.ndim
        shape, strides = numbers(*array.shape), numbers(*(step // array.itemsize for step in array.strides))
        kind, bits = DLPACK_DTYPES[array.dtype.name]
        self.managed = Managed(array.ctypes.data, CPU, 0, array.ndim, kind, bits, self.lanes, shape, strides, 0, None,
                               Deleter(self.delete))
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype, capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return capsule(ctypes.addressof(self.managed), b"dltensor", None)

    def delete(self, managed):
        self.deleted += 1


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("kind", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64),
                ("context", ctypes.c_void_p), ("deleter", Deleter)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout != "unaligned"])
def test_dlpack_alone_is_enough(dtype, layout, rng):
    g, x = (arrange(random_values(rng, (3, 4, 5), dtype), layout) for _ in range(2))
    given = OnlyDlpack(g), OnlyDlpack(x)
    assert same_bits(iop.gelu_backward(*given), iop.gelu_backward(g, x))
    assert same_bits(iop.gelu_backward(given[0], x), iop.gelu_backward(g, x))
    assert [array.deleted for array in given] == [2, 1]


def test_convolutions_take_it_too(rng):
    x, w = (random_values(rng, shape, "float32") for shape in ((1, 2, 5), (3, 2, 2)))
    out = iop.conv(OnlyDlpack(x), OnlyDlpack(w))
    assert same_bits(out, iop.conv(x, w))
    for got, expected in zip(iop.conv_backward(*map(OnlyDlpack, (out, x, w))), iop.conv_backward(out, x, w)):
        assert same_bits(got, expected)


def test_nothing_is_copied(rng):
    x = random_values(rng, (3, 4), "bfloat16")
    header = _core.host_input(OnlyDlpack(x.T), "relu", "input")
    assert (header.ctypes.data, header.shape, header.strides) == (x.ctypes.data, x.T.shape, x.T.strides)
    assert not header.flags.writeable


def test_arrays_on_other_devices_are_not_copied_from_there():
    x = OnlyDlpack(np.ones(3, np.float32), METAL)
    with pytest.raises(iop.DeviceTypeNotSupported, match=r"relu: input lies on device 8, expected the host's memory"):
        iop.relu(x)
    image = np.ones((1, 1, 1), np.float32)
    with pytest.raises(iop.DeviceTypeNotSupported, match=r"^conv_backward: weight lies on device 8"):
        iop.conv_backward(image, image, OnlyDlpack(image, METAL))


def test_strides_beyond_64_bits_are_refused():
    class Far(OnlyDlpack):
        def __dlpack__(self):
            capsule = super().__dlpack__()
            self.managed.strides[0] = 1 << 62
            EXPORTED.append(self)  # until its memory is given back, which an exception may put off
            return capsule

    with pytest.raises(TypeError, match="relu: input is a Far that cannot be read where it is"):
        iop.relu(Far(np.ones(3, np.float32)))


def test_vectors_as_elements_are_refused():
    """Two halves are not one float32."""
    with pytest.raises(iop.BadTensorDtype, match="relu: input has dtype float16x2, which NumPy does not know"):
        iop.relu(OnlyDlpack(np.ones(3, np.float16), lanes=2))


def test_other_dtypes_are_refused():
    with pytest.raises(iop.BadTensorDtype, match="relu: input has dtype int32"):
        iop.relu(OnlyDlpack(np.ones(3, np.int32)))


class ReadOnly(OnlyDlpack):
    """What NumPy's own read-only arrays do: DLPack had no word for them before version 1."""

    copied = False

    def __dlpack__(self):
        raise BufferError("readonly")

    def __array__(self, dtype=None, copy=None):
        if copy is False and self.copied:
            raise ValueError("needs a copy")
        return self.array


def test_array_protocol_where_dlpack_fails():
    x = ReadOnly(np.float32([-1, 2]))
    assert iop.relu(x).tolist() == [0, 2]
    x.copied = True
    with pytest.raises(TypeError, match=r"relu: input is a ReadOnly that cannot be read where it is \(readonly\)$"):
        iop.relu(x)


def test_out_is_an_ndarray():
    x = np.ones(3, np.float32)
    with pytest.raises(TypeError, match=r"out is a OnlyDlpack, expected a plain ndarray \(numpy.from_dlpack\(out\)"):
        iop.relu(x, out=OnlyDlpack(x))
    with pytest.raises(TypeError, match=r"out is a list, expected a plain ndarray$"):
        iop.relu(x, out=[1, 2, 3])


def test_bridges_are_imported_only_when_named():
    code = "import sys, infiniop_cy as iop; iop.relu([1.0]); print([m for m in sys.modules if 'bridges' in m])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
