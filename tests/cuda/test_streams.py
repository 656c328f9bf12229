"""Streams: every way to name one, order between them, and that nothing waits that need not.

The emulated driver executes nothing until something waits for it, so what is not ordered shows: a result that nobody
waited for is still NaN, and an input that was not waited for is read before it is written.
"""
import ctypes
import types

import numpy as np
import pytest
from device_mirror import Placed, to_host

import infiniop_cy as iop
from infiniop_cy.backends.cuda_arrays import stream_address
from infiniop_cy.backends.cuda_context import current
from infiniop_cy.testing import random_values, same_bits
from infiniop_cy.testing.conv import CONV_CASES, make_case

NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: not ordered with the default stream
N = 1000
relu = iop.relu_backward._function


class Buffer:
    """Device memory, and an export of it that is ready on a stream."""

    def __init__(self, shape, dtype="float32"):
        with current(0) as context:
            self.like = np.empty(shape, dtype)
            self.memory = context.driver.mem_alloc(max(1, self.like.nbytes))
        self.address, self.pinned = int(self.memory), []

    def on(self, stream):
        placed = Placed(self.address, self.like)
        placed.__cuda_array_interface__["stream"] = None if stream is None else stream.handle or 1
        return placed

    def write(self, values, stream):
        """Queue a copy; values are pinned, so that it is asynchronous."""
        with current(0) as context:
            self.pinned.append(context.driver.pagelocked_empty(values.shape, values.dtype))  # to free one would wait
            self.pinned[-1][...] = values
            context.driver.memcpy_htod_async(self.address, self.pinned[-1], stream)

    def read(self, stream=None):
        """What is there once this stream, None for all, is done."""
        with current(0) as context:
            context.context.synchronize() if stream is None else stream.synchronize()
            result = np.empty_like(self.like)
            side = context.driver.Stream(NON_BLOCKING)  # so that the copy itself waits for nothing else
            context.driver.memcpy_dtoh_async(result, self.address, side)
            side.synchronize()
        return result


def new_stream(flags=NON_BLOCKING):
    with current(0) as context:
        return context.driver.Stream(flags)


@pytest.fixture
def data(rng):
    return random_values(rng, (N,), "float32"), random_values(rng, (N,), "float32")


def expected(g, x):
    return np.where(x <= 0, np.float32(0), g)


class AsHandle:
    def __init__(self, address):
        self.handle = address


FORMS = {
    "PyCUDA": lambda s: s, "integer": lambda s: s.handle, "NumPy integer": lambda s: np.uint64(s.handle),
    "CuPy": lambda s: types.SimpleNamespace(ptr=s.handle),
    "torch": lambda s: types.SimpleNamespace(cuda_stream=s.handle),
    "Numba": lambda s: AsHandle(ctypes.c_void_p(s.handle)),
    "cuda.core": lambda s: type("Stream", (), {"__cuda_stream__": lambda self: (0, s.handle)})(),
    "protocol as property": lambda s: types.SimpleNamespace(__cuda_stream__=(0, s.handle)),
}


@pytest.mark.parametrize("form", FORMS)
def test_descriptor_runs_on_the_stream(form, data):
    """Whatever names it: what the stream was given before is done before, and its wait is enough."""
    stream = new_stream()
    g, x, out = (Buffer(N) for _ in range(3))
    t = iop.TensorDescriptor((N,), "float32")
    with iop.Handle("cuda") as handle, iop.ReluBackwardDescriptor(handle, t, t, t) as op:
        for buffer, values in ((g, data[0]), (x, data[1])):
            buffer.write(values, stream)
        op.calculate(None, out.address, x.address, g.address, stream=FORMS[form](stream))
        assert same_bits(out.read(stream), expected(*data))


@pytest.mark.parametrize(("stream", "address"), [
    (None, 0), (0, 0), (1, 1), (2, 2), (types.SimpleNamespace(ptr=0), 0),
    (AsHandle(ctypes.c_void_p(None)), 0)], ids=["None", "0", "legacy", "per thread", "CuPy's null", "Numba's null"])
def test_addresses_of_default_streams(stream, address):
    assert stream_address(stream, "op") == address


@pytest.mark.parametrize(("stream", "error"), [("one", TypeError), (1.5, TypeError), (True, TypeError),
                                               (-1, iop.BadParam), (2**64, iop.BadParam)])
def test_what_is_no_stream(stream, error, data):
    t = iop.TensorDescriptor((N,), "float32")
    out = Buffer(N)
    with iop.Handle("cuda") as handle, iop.ReluBackwardDescriptor(handle, t, t, t) as op, \
            pytest.raises(error, match=r"relu_backward: stream is"):
        op.calculate(None, out.address, out.address, out.address, stream=stream)


def test_nothing_waits(emulator, data):
    """Functions, descriptors and convolutions on device arrays only queue."""
    stream = new_stream()
    g, x, out = (Buffer(N) for _ in range(3))
    case = CONV_CASES["2d-groups"]
    tensors = [Buffer(a.shape) for a in make_case(case, "float32", np.random.default_rng(0))]
    outs = [Buffer(shape) for shape in (*case.shapes[1:], (case.cout,))]
    relu(g.on(stream), x.on(stream), out=out.on(stream))  # builds what is not built
    output, bias = Buffer(case.shapes[0]), Buffer(case.cout)
    iop.conv_backward._function(*(t.on(stream) for t in tensors), **case.keywords,
                                out=tuple(o.on(stream) for o in outs))
    with current(0) as context:
        context.context.synchronize()
    before, others = emulator.counts(), emulator.pending()  # of tests that left something on another device
    t = iop.TensorDescriptor((N,), "float32")
    with iop.Handle("cuda") as handle, iop.ReluBackwardDescriptor(handle, t, t, t) as op:
        for _ in range(3):
            relu(g.on(stream), x.on(stream), out=out.on(stream))
            op.calculate(None, out.address, x.address, g.address, stream)
            iop.conv_backward._function(*(t.on(stream) for t in tensors), **case.keywords,
                                        out=tuple(o.on(stream) for o in outs))
            iop.conv._function(*(t.on(stream) for t in (*tensors[1:], bias)), **case.keywords, out=output.on(stream))
    now = emulator.counts()
    assert now["synchronisations"] == before["synchronisations"]
    assert emulator.pending() - others >= now["launches"] - before["launches"] >= 12
    with current(0):
        stream.synchronize()
    assert emulator.pending() == others


@pytest.mark.parametrize("late", ["grad_output", "input", "out"])
def test_inputs_of_several_streams(late, data):
    """One array is ready on a stream of its own; the call waits for that, and that stream for the call."""
    main, side = new_stream(), new_stream()
    buffers = {name: Buffer(N) for name in ("grad_output", "input", "out")}
    values = dict(zip(buffers, (*data, np.ones(N, np.float32))))
    streams = {name: side if name == late else main for name in buffers}
    for name, buffer in buffers.items():
        buffer.write(values[name], streams[name])
    g, x, out = (buffers[name].on(streams[name]) for name in buffers)
    relu(g, x, out=out, accumulate=True)
    buffers[late].write(np.full(N, 5, np.float32), side) if late != "out" else None  # must come after the call's reads
    wait_for = side if late == "out" else main
    assert same_bits(buffers["out"].read(wait_for), expected(*data) + 1)
    with current(0) as context:
        context.context.synchronize()


def test_the_default_stream_is_torchs(data):
    """No stream named: the legacy default one, ordered with every stream that does not ask to be left out."""
    stream = new_stream(flags=0)
    g, x, out = (Buffer(N) for _ in range(3))
    g.write(data[0], stream)
    x.write(data[1], stream)
    relu(g.on(None), x.on(None), out=out.on(None))
    g.write(np.zeros(N, np.float32), stream)
    assert same_bits(out.read(stream), expected(*data))


def test_results_are_ready_in_the_order_of_the_stream(data):
    """A chain of calls, each reading the one before, without a wait between."""
    from pycuda import gpuarray
    with current(0):
        g, x = map(gpuarray.to_gpu, data)
    for _ in range(5):
        g = iop.gelu_backward._function(g, x)
    want = data[0]
    for _ in range(5):
        want = iop.gelu_backward._function(want, data[1], device="cuda")
    assert same_bits(to_host(g), want)


def test_a_temporary_copy_is_in_order_too(data):
    """Partial overlap is computed on a copy, whose memory goes back only after the kernel."""
    stream = new_stream()
    values = np.concatenate(data)
    both = Buffer(2 * N)
    x = Buffer(N)
    both.write(values, stream)
    x.write(data[1], stream)
    g, out = both.on(stream), both.on(stream)
    for placed, start in ((g, 0), (out, 10)):
        placed.shape = (N,)
        placed.__cuda_array_interface__ |= {"shape": (N,), "strides": (4,), "data": (both.address + 4 * start, False)}
    relu(g, x.on(stream), out=out)
    assert same_bits(both.read(stream)[10:10 + N], expected(*data))


@pytest.mark.parametrize("late", ["input", "weight", "bias", "out"])
def test_conv_of_several_streams(late, rng):
    """The tensors of an output, one of them ready on a stream of its own."""
    case = CONV_CASES["2d-groups"]
    main, side = new_stream(), new_stream()
    _, x, w = make_case(case, "float32", rng)
    data = {"input": x, "weight": w, "bias": rng.integers(-8, 9, case.cout).astype(np.float32)}
    buffers = {name: Buffer(values.shape) for name, values in data.items()} | {"out": Buffer(case.shapes[0])}
    streams = {name: side if name == late else main for name in buffers}
    for name, values in data.items():
        buffers[name].write(values, streams[name])
    iop.conv._function(**{name: buffer.on(streams[name]) for name, buffer in buffers.items()}, **case.keywords)
    assert same_bits(buffers["out"].read(streams["out"]), iop.conv._function(**data, **case.keywords))


@pytest.mark.parametrize("name", ["2d-stride", "tiny-images", "many-channels"])
def test_conv_workspaces_are_in_order(name, rng):
    """Two convolutions in flight on two streams, the workspaces borrowed and given back in their order."""
    case = CONV_CASES[name]
    sets = [make_case(case, "float32", rng) for _ in range(2)]
    streams = [new_stream() for _ in sets]
    outs = []
    for data, stream in zip(sets, streams):
        buffers = [Buffer(a.shape) for a in data]
        for buffer, values in zip(buffers, data):
            buffer.write(values, stream)
        outs.append([Buffer(shape) for shape in (*case.shapes[1:], (case.cout,), case.shapes[0])])
        iop.conv_backward._function(*(b.on(stream) for b in buffers), **case.keywords,
                                    out=tuple(o.on(stream) for o in outs[-1][:3]))
        iop.conv._function(*(b.on(stream) for b in buffers[1:]), **case.keywords, out=outs[-1][3].on(stream))
    for data, stream, got in zip(sets, streams, outs):
        want = *iop.conv_backward._function(*data, **case.keywords), iop.conv._function(*data[1:], **case.keywords)
        assert all(same_bits(g.read(stream), w) for g, w in zip(got, want))
