"""torch's tensors, by a stand-in for torch whose current stream, as its own, may be any: nothing else orders a call.

The data is written on that stream when something waits for it, so what runs elsewhere reads NaN.
"""
import sys
import types

import numpy as np
import pytest

import infiniop_cy as iop
from infiniop_cy.backends.cuda_context import current
from infiniop_cy.testing import dtype_of, random_values, same_bits
from infiniop_cy.testing.conv import CONV_CASES, make_case

relu = iop.relu_backward._function
conv = iop.conv_backward._function


class Torch(types.ModuleType):
    """As much of torch as the library asks: tensors, their allocator, the current stream."""

    float16, bfloat16, float32, float64, uint8 = "float16", "bfloat16", "float32", "float64", "uint8"

    def __init__(self, stream):
        super().__init__("torch")
        self.stream, self.allocated = stream, []
        self.cuda = types.SimpleNamespace(current_stream=lambda device: types.SimpleNamespace(
            cuda_stream=0 if self.stream is None else self.stream.handle))

    def tensor(self, array):
        """A tensor whose values are written on the current stream, in their own order of axes."""
        tensor = Tensor(array.shape, array.strides, array.dtype)
        source = array.ravel(order="K").view(np.uint8).copy()
        CACHE.append(source)  # the copy is not done yet
        with current(0) as context:
            context.driver.memcpy_htod_async(tensor.data_ptr(), source, self.stream)
        return tensor

    def empty_strided(self, shape, strides, dtype, device):
        assert device == "cuda:0"
        dtype = dtype_of(dtype)
        return Tensor(shape, [s * dtype.itemsize for s in strides], dtype)

    def empty(self, size, dtype, device):
        assert (dtype, device) == ("uint8", "cuda:0")
        self.allocated.append(size)
        return Tensor((size,), (1,), np.dtype("uint8"))

    def values(self, tensor):
        """What a tensor holds once the current stream, and nothing else, is done."""
        flat = np.empty(int(np.prod(tensor.shape)), tensor.dtype_)
        with current(0) as context:
            context.context.synchronize() if self.stream is None else self.stream.synchronize()
            side = context.driver.Stream(1)
            context.driver.memcpy_dtoh_async(flat.view(np.uint8), tensor.data_ptr(), side)
            side.synchronize()
        return np.lib.stride_tricks.as_strided(flat, tensor.shape, tensor.strides)


CACHE = []  # torch's allocator keeps memory, where to free it would wait for all streams


class Tensor:
    __module__ = "torch"

    def __init__(self, shape, strides, dtype):
        self.shape, self.strides, self.dtype_ = tuple(shape), tuple(strides), dtype
        self.dtype, self.device = f"torch.{dtype.name}", "cuda:0"
        with current(0) as context:
            self.memory = context.driver.mem_alloc(max(1, int(np.prod(shape)) * dtype.itemsize))
        CACHE.append(self.memory)

    def data_ptr(self):
        return int(self.memory)

    def stride(self):
        return tuple(s // self.dtype_.itemsize for s in self.strides)

    def __dlpack_device__(self):
        return 2, 0


@pytest.fixture(params=["default stream", "side stream"])
def torch(request, monkeypatch):
    with current(0) as context:
        module = Torch(context.driver.Stream(1) if request.param == "side stream" else None)
    monkeypatch.setitem(sys.modules, "torch", module)
    yield module
    CACHE.clear()


@pytest.mark.parametrize("kind", ["plain", "subclass"])
def test_a_subclass_is_on_the_current_stream_too(torch, kind, rng):
    """Its type is of the module that defines it; torch's array interface, which it has, too, names no stream."""
    class Mine(Tensor):
        __module__ = "somebody"

        @property
        def __cuda_array_interface__(self):
            return {"typestr": self.dtype_.str, "shape": self.shape, "strides": None, "version": 2,
                    "data": (self.data_ptr(), False)}

    g, x = (random_values(rng, (5,), "float32") for _ in range(2))
    tensors = [torch.tensor(a) for a in (g, x, np.zeros_like(x))]
    for tensor in tensors:
        tensor.__class__ = Mine if kind == "subclass" else Tensor
    relu(tensors[0], tensors[1], out=tensors[2])
    assert same_bits(torch.values(tensors[2]), expected(g, x))


def expected(g, x):
    return np.where(x.astype(float) <= 0, np.zeros_like(g), g)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_functions(torch, dtype, rng):
    """Read by data_ptr() and stride(), since torch exports no bfloat16; results are tensors, strides as the input's."""
    g, x = (random_values(rng, (5, 31), dtype).copy(order=order) for order in "FC")
    result = relu(torch.tensor(g), torch.tensor(x))
    assert type(result) is Tensor
    assert same_bits(torch.values(result), expected(g, x))
    assert result.strides == g.strides


@pytest.mark.parametrize("stream", ["none", "0 where the tensors have another", "the current one"])
def test_descriptors(torch, stream, rng, on_emulation):
    """stream=None is the tensors' own, as for functions; any other is taken as it is said, and then nothing waits for
    the tensors' stream: the emulation has not written them yet, where a GPU may have."""
    g, x = (random_values(rng, (1000,), "float32") for _ in range(2))
    t = iop.TensorDescriptor((1000,), "float32")
    out = torch.tensor(np.full(1000, np.nan, np.float32))
    given = {"none": None, "the current one": torch.stream}.get(stream, 0)
    with iop.Handle("cuda") as handle, iop.ReluBackwardDescriptor(handle, t, t, t) as op:
        op.calculate(None, out, torch.tensor(x), torch.tensor(g), stream=given)
    right = same_bits(torch.values(out), expected(g, x))
    waited = given != 0 or torch.stream is None
    assert right == waited or not (waited or on_emulation)
    with current(0) as context:
        context.context.synchronize()


def test_tensors_of_a_descriptor_on_two_streams(torch, rng):
    """The first names the stream, which waits for the others', and they for it."""
    g, x = (random_values(rng, (1000,), "float32") for _ in range(2))
    t = iop.TensorDescriptor((1000,), "float32")
    with current(0) as context:
        other = context.driver.Stream(1)
    out, first, torch.stream = torch.tensor(g), torch.stream, other
    late = torch.tensor(x)
    late.__cuda_array_interface__ = {"shape": (1000,), "typestr": "<f4", "strides": None, "version": 3,
                                     "data": (late.data_ptr(), False), "stream": other.handle}
    export = types.SimpleNamespace(__cuda_array_interface__=late.__cuda_array_interface__, shape=(1000,))
    torch.stream = first
    with iop.Handle("cuda") as handle, iop.ReluBackwardDescriptor(handle, t, t, t) as op:
        op.calculate(None, out, export, torch.tensor(g))
    torch.stream = other
    assert same_bits(torch.values(out), expected(g, x))


def test_workspaces_are_torchs(torch, rng, emulator):
    """Borrowed from its allocator, in the order of its stream, so that both share one cache of memory."""
    case = CONV_CASES["2d-groups"]
    data = make_case(case, "float32", rng)
    conv(*map(torch.tensor, data), **case.keywords)
    assert len(torch.allocated) == 1
    before = emulator.counts()
    got = conv(*map(torch.tensor, data), **case.keywords)
    assert emulator.counts()["pool_allocations"] == before["pool_allocations"]
    for a, b in zip(got, iop.conv_backward(*data, **case.keywords, device="cpu")):
        np.testing.assert_allclose(torch.values(a), b, rtol=1e-5, atol=1e-5)
