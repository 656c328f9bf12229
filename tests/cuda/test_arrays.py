"""Arrays of every library that has some on a GPU, and what comes back."""
import ctypes
import sys
import types

import numpy as np
import pytest
from device_mirror import Mirrored, Placed, to_host

import infiniop_cy as iop
from infiniop_cy.backends.cuda_context import current
from infiniop_cy.core import _core
from infiniop_cy.testing import CASES, DTYPES, arrange, dtype_of, random_values, same_bits
from infiniop_cy.testing.conv import CONV_CASES, make_case

relu = iop.relu_backward._function  # without the mirror
G = np.float32([1, 2, 3])


def on_gpu(array, index=0):
    """A GPUArray with the values, in C order."""
    from pycuda import gpuarray
    with current(index):
        return gpuarray.to_gpu(np.ascontiguousarray(array))


@pytest.fixture
def data(rng):
    return random_values(rng, (5, 31), "float32"), random_values(rng, (5, 31), "float32")


def test_gpuarrays_in_and_out(data):
    g, x = map(on_gpu, data)
    result = relu(g, x)
    assert type(result) is type(g)
    assert same_bits(to_host(result), np.where(data[1] <= 0, np.float32(0), data[0]))
    out = on_gpu(np.zeros_like(data[0]))
    assert relu(g, x, out=out) is out
    assert same_bits(to_host(out), to_host(result))
    assert relu(g, x, device="cuda").dtype == np.float32
    assert relu(g, x, device="auto").dtype == np.float32


def test_numbers_go_where_the_array_is(data):
    x = on_gpu(data[1])
    result = relu(2, x)
    assert type(result) is type(x)
    assert same_bits(to_host(result), np.where(data[1] <= 0, np.float32(0), np.float32(2)))
    with pytest.raises(TypeError, match=r"relu_backward: out is 1\.0, expected an array on a GPU"):
        relu(2.0, x, out=1.0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gpuarrays_of_every_dtype(dtype, rng):
    """bfloat16 too, whose interface says only that it has two bytes."""
    g, x = (random_values(rng, (77,), dtype) for _ in range(2))
    result = relu(on_gpu(g), on_gpu(x))
    assert result.dtype == dtype_of(dtype)
    assert same_bits(to_host(result), np.where(x.astype(float) <= 0, np.zeros_like(g), g))


def test_results_come_from_the_allocator_of_the_inputs(data):
    from pycuda import driver, gpuarray
    sizes = []

    def allocate(size):
        sizes.append(size)
        return driver.mem_alloc(size)
    with current(0):
        g, x = (gpuarray.GPUArray(a.shape, a.dtype, allocator=allocate) for a in data)
        g.set(data[0])
        x.set(data[1])
    relu(g, x)
    assert sizes == [data[0].nbytes] * 3


def test_objects_with_the_interface_alone(data):
    """Their results are GPUArrays; read-only ones are inputs and not outputs."""
    here = Mirrored(data)
    try:
        g, x = map(here.place, data)
        assert type(relu(g, x)).__name__ == "GPUArray"
        g.__cuda_array_interface__["data"] = (g.__cuda_array_interface__["data"][0], True)
        relu(g, x)
        with pytest.raises(iop.BadParam, match="out is read-only"):
            relu(x, x, out=g)
    finally:
        here.free()


FREED = []


class Dlpack:
    """A device tensor that speaks DLPack alone."""

    def __init__(self, array, address, name):
        self.array, self.address, self.name, self.streams = array, address, name, []

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, stream=None):
        self.streams.append(stream)

        class Tensor(ctypes.Structure):
            _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32),
                        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                        ("offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]
        a = self.array
        shape = (ctypes.c_int64 * a.ndim)(*a.shape)
        strides = (ctypes.c_int64 * a.ndim)(*(s // a.itemsize for s in a.strides))
        freed = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: FREED.append(self.name))
        code = 4 if a.dtype.name == "bfloat16" else 2
        tensor = Tensor(self.address - 16, (2, 0), a.ndim, code, 8 * a.itemsize, 1, shape, strides, 16, None,
                        ctypes.cast(freed, ctypes.c_void_p))
        self.kept = shape, strides, freed, tensor
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(tensor), b"dltensor", None)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "every other", "reversed"])
def test_dlpack(dtype, layout, rng):
    g, x = (arrange(random_values(rng, (4, 9), dtype), layout) for _ in range(2))
    here = Mirrored((g, x))
    FREED.clear()
    try:
        tensors = [Dlpack(a, here.address(a), name) for a, name in ((g, "g"), (x, "x"))]
        result = relu(*tensors)
        assert same_bits(to_host(result), np.where(x.astype(float) <= 0, np.zeros_like(g), g))
        assert [t.streams for t in tensors] == [[1], [1]]  # the legacy default stream
        _core.release_held(wait=True)
        assert sorted(FREED) == ["g", "x"]
    finally:
        here.free()


def test_a_dlpack_tensor_is_held_until_its_kernel_has_run(data, emulator):
    """Its library may give the memory to somebody else as soon as the owner is gone."""
    from pycuda import driver
    here = Mirrored(data)
    FREED.clear()
    with current(0) as context:
        stream = context.driver.Stream(1)  # not ordered with the default stream
    g, x = here.place(data[0]), Dlpack(data[1], here.address(data[1]), "x")
    g.__cuda_array_interface__["stream"] = stream.handle
    out = on_gpu(np.zeros_like(data[0]))
    t = iop.TensorDescriptor.from_array(data[0])
    with iop.Handle("cuda") as handle, iop.ReluBackwardDescriptor(handle, t, t, t) as op:
        for call in (lambda: relu(g, x), lambda: op.calculate(None, out, x, g),
                     lambda: op.calculate(None, out, x, g, stream)):
            call()
            assert x.streams.pop() == stream.handle
            assert FREED == []
            with current(0):
                stream.synchronize()
            relu(on_gpu(G), on_gpu(G))  # any later call gives back what is done
            assert FREED == ["x"]
            FREED.clear()
    assert driver.Context.get_current() is None
    here.free()


def test_a_used_capsule_is_refused():
    from infiniop_cy.core._core import read_dlpack
    with pytest.raises(TypeError, match="not a DLPack tensor"):
        read_dlpack(object())


def fake_module(monkeypatch, name, **contents):
    module = types.ModuleType(name)
    vars(module).update(contents)
    monkeypatch.setitem(sys.modules, name, module)
    return module


def test_cupy_arrays(monkeypatch, data):
    """Results are CuPy's own, on the stream that their interface names."""
    made = []

    class Array(Placed):
        __module__ = "cupy"

    class Device:
        def __init__(self, index):
            assert index == 0

        def __enter__(self):
            return self

        def __exit__(self, *exc_info):
            pass

    def ndarray(shape, dtype, memory, strides):
        assert memory == np.prod(shape) * np.dtype(dtype).itemsize
        here = Mirrored((np.full(shape, 7, dtype),))
        made.append(here)
        host = np.lib.stride_tricks.as_strided(np.zeros(shape, dtype), shape, strides)
        here.memories[0].host = host
        return Array(here.memories[0].address, host)
    fake_module(monkeypatch, "cupy", ndarray=ndarray,
                cuda=types.SimpleNamespace(Device=Device, alloc=lambda size: size))
    here = Mirrored(data)
    g, x = (Array(here.address(a), a) for a in data)
    result = relu(g, x)
    assert type(result) is Array
    now = np.empty_like(data[0])
    with current(0) as context:
        context.driver.memcpy_dtoh(now, result.__cuda_array_interface__["data"][0])
    assert same_bits(now, np.where(data[1] <= 0, np.float32(0), data[0]))
    for memory in (here, *made):
        memory.free()


# ---- what is refused

def test_mixing_is_an_error_not_a_copy(data):
    g, x = data
    there = on_gpu(x)
    for arrays in ((g, there), (there, x)):
        with pytest.raises(iop.BadParam, match=r"arrays on different devices: grad_output on \w+, input on \w+"):
            relu(*arrays)
        with pytest.raises(iop.BadParam, match="different devices"):
            relu(*arrays, device="cuda")
    with pytest.raises(iop.BadParam, match="out on cpu"):
        relu(there, there, out=g)
    with pytest.raises(iop.BadParam, match="device is 'cpu', but the arrays are on a GPU"):
        relu(there, there, device="cpu")


def test_masked_unaligned_and_swapped(data):
    here = Mirrored(data)
    try:
        g, x = map(here.place, data)
        interface = g.__cuda_array_interface__
        g.__cuda_array_interface__ = interface | {"mask": x}
        with pytest.raises(TypeError, match="grad_output is masked"):
            relu(g, x)
        g.__cuda_array_interface__ = interface | {"data": (interface["data"][0] + 1, False)}
        with pytest.raises(iop.BadParam, match="grad_output is not aligned"):
            relu(g, x)
        g.dtype = None
        g.__cuda_array_interface__ = interface | {"typestr": ">f4"}
        with pytest.raises(iop.BadParam, match="grad_output is byte-swapped"):
            relu(g, x)
    finally:
        here.free()


def test_descriptors_take_only_their_device(data):
    t = iop.TensorDescriptor.from_array(data[0])
    with iop.Handle("cuda") as handle, iop.ReluBackwardDescriptor(handle, t, t, t) as op:
        g, x = map(on_gpu, data)
        out = on_gpu(np.zeros_like(data[0]))
        op.calculate(None, out, x, g)
        assert same_bits(to_host(out), np.where(data[1] <= 0, np.float32(0), data[0]))
        with pytest.raises(iop.BadParam, match="input is in the host's memory"):
            op.calculate(None, out, data[1], g)
        with pytest.raises(TypeError, match="input is a list"):
            op.calculate(None, out, [1.0], g)
        with pytest.raises(iop.BadParam, match="grad_input is at an address that is no multiple of its 4 bytes"):
            op.calculate(None, int(out.gpudata) + 2, x, g)
        transposed = np.zeros((31, 5), np.float32).T
        here = Mirrored((transposed,))
        with pytest.raises(iop.BadTensorStrides, match="input has strides"):
            op.calculate(None, out, here.place(transposed), g)
        here.free()


def test_conv_on_gpuarrays(rng):
    case = CONV_CASES["2d-stride"]
    data = make_case(case, "float32", rng)
    bias = rng.standard_normal(case.cout).astype(np.float32)
    got = (*iop.conv_backward._function(*map(on_gpu, data), **case.keywords),
           iop.conv._function(*map(on_gpu, (*data[1:], bias)), **case.keywords))
    expected = (*iop.conv_backward._function(*data, **case.keywords), iop.conv(*data[1:], bias, **case.keywords))
    assert all(type(a).__name__ == "GPUArray" and same_bits(to_host(a), b) for a, b in zip(got, expected))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_host_and_device_arrays_agree(case, rng):
    """Both ways of calling give the same bits."""
    inputs = case.random(rng, (3, 111), "float32")
    function = getattr(iop, case.operator.name)._function
    there = function(*map(on_gpu, inputs), **case.parameters)
    assert same_bits(function(*inputs, device="cuda", **case.parameters), to_host(there))
