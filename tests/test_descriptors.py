"""The descriptor flow: handle, tensor descriptors, operator descriptor, workspace, calculate, destroy."""
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from device_mirror import calculate, open_handle
from rotation import each_case

import infiniop_cy as iop
from infiniop_cy.descriptors import DESCRIPTORS
from infiniop_cy.testing import DTYPES, GRADIENTS, LAYOUTS, SHAPES, arrange, dtype_of, random_values, same_bits

CLASS_OF = {cls.operator: cls for cls in DESCRIPTORS.values()}


@pytest.fixture
def handle():
    with open_handle() as opened:
        yield opened


def describe(*arrays):
    return [iop.TensorDescriptor.from_array(a) for a in arrays]


@each_case(dtype=DTYPES, layout=LAYOUTS, shape=["0-d", "empty", "4-d", "parallel"])
def test_equals_the_function(case, dtype, layout, shape, handle, rng):
    inputs = [arrange(a, layout) for a in case.random(rng, SHAPES[shape], dtype)]
    out = arrange(np.zeros_like(np.array(inputs[0])), layout)
    operands = inputs[::-1]  # in the order of descriptors
    tensors = describe(out, *operands)
    op = CLASS_OF[case.operator.name](handle, *tensors, **case.parameters)
    del tensors
    workspace = iop.empty_workspace(handle, op.workspace_size)
    calculate(op, workspace, out, *operands)
    assert same_bits(np.array(out), case(*inputs))
    out[...] = 0
    calculate(op, workspace, out, *operands, addresses=True)  # addresses, like C's void *
    assert same_bits(np.array(out), case(*inputs))
    calculate(op, None, inputs[0], *operands)  # in place
    assert same_bits(np.array(inputs[0]), np.array(out))
    op.destroy()


@each_case(cases=GRADIENTS)
def test_broadcast_by_strides(case, handle, rng):
    g, x = random_values(rng, (4,), "float32"), random_values(rng, (5, 1), "float32")
    out = np.zeros((5, 4), np.float32)
    tensors = (iop.TensorDescriptor((5, 4), "float32"), iop.TensorDescriptor((5, 4), "float32", (1, 0)),
               iop.TensorDescriptor((5, 4), "float32", (0, 1)))
    with CLASS_OF[case.operator.name](handle, *tensors, **case.parameters) as op:
        calculate(op, None, out, x, g)  # the memory that the descriptors address
    assert same_bits(out, case(g, x))


@each_case(shape=[(0, 3), (2, 0, 3), (0,)])
def test_no_elements(case, shape, handle):
    """NumPy gives arrays without elements stride 0, or any other: it says nothing about them."""
    a = np.zeros(shape, np.float32)
    for t in (iop.TensorDescriptor(shape, "float32"), iop.TensorDescriptor.from_array(a),
              iop.TensorDescriptor(shape, "float32", (7,) * len(shape))):
        with CLASS_OF[case.operator.name](handle, *[t] * (1 + case.count), **case.parameters) as op:
            for array in (a, np.lib.stride_tricks.as_strided(a, strides=(0,) * len(shape))):
                calculate(op, None, array.copy(), *(a, array)[:case.count])


def test_convolution_of_no_samples(handle):
    g, x, w = np.zeros((0, 4, 6, 6), np.float32), np.zeros((0, 3, 8, 8), np.float32), np.ones((4, 3, 3, 3), np.float32)
    bias = np.ones(4, np.float32)
    tensors = [iop.TensorDescriptor(a.shape, "float32") for a in (g, x, w, bias)]
    outs = [np.ones_like(a) for a in (x, w, bias)]
    with iop.ConvBackwardDescriptor(handle, *tensors, 0, 1, 1, 1) as op:
        calculate(op, iop.empty_workspace(handle, op.workspace_size), *outs, g, x, w)
    assert not any(out.any() for out in outs)


def test_one_descriptor_from_many_threads(handle, rng):
    t = iop.TensorDescriptor((300, 201), "float32")
    op = iop.GeluBackwardDescriptor(handle, t, t, t)

    def run(seed):
        local = np.random.default_rng(seed)
        g, x = (random_values(local, (300, 201), "float32") for _ in range(2))
        out = np.empty_like(g)
        calculate(op, None, out, x, g)
        return same_bits(out, iop.gelu_backward(g, x))
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run, range(40)))


def test_tensor_descriptor():
    t = iop.TensorDescriptor((2, 3), np.float16)
    assert (t.shape, t.strides, t.ndim, t.dtype, t.dtype_name) == ((2, 3), (3, 1), 2, np.float16, "float16")
    assert t == iop.TensorDescriptor([2, 3], "float16", strides=[3, 1])
    assert t != iop.TensorDescriptor((2, 3), "float16", strides=(1, 2))
    assert hash(t) == hash(iop.TensorDescriptor((2, 3), "float16"))
    assert iop.TensorDescriptor((), "float32").strides == ()
    assert iop.TensorDescriptor((4,), "bfloat16").dtype == dtype_of("bfloat16")
    assert iop.TensorDescriptor.from_array(np.zeros((4, 6))[::-1, ::2]).strides == (-6, 2)
    assert eval(repr(t), {"TensorDescriptor": iop.TensorDescriptor}) == t
    assert iop.TensorDescriptor((1,), np.dtype(np.float32).str).dtype == np.float32  # that of this machine
    with pytest.raises(AttributeError):
        t.shape = (1,)


@pytest.mark.parametrize(("shape", "strides"), [((2, 2), (2**60, 2**59)), ((2, 2, 2), (2**59, -2**60, 1)),
                                                ((0, 3), (-2**61, 1))])
def test_strides_near_the_end_of_64_bits(shape, strides, handle):
    """That fit, though a stride times a length does not: undefined in C, which -fsanitize=undefined tells."""
    far = iop.TensorDescriptor(shape, "float32", strides)
    near = iop.TensorDescriptor(shape, "float32")
    for operands in ((far, far, far), (near, far, near), (near, near, far)):
        with iop.ReluBackwardDescriptor(handle, *operands) as op:
            assert op.workspace_size == 0


def test_descriptor_of_an_array_and_not_of_a_copy():
    """What is not aligned is described as it lies, and computed on where it is."""
    raw, out = np.zeros(64, np.uint8), np.zeros(4, np.float32)
    gaps = raw[1:33].view(np.float32)[::2]
    gaps[:] = -1, 2, -3, 4
    t = iop.TensorDescriptor.from_array(gaps)
    assert t.strides == (2,)
    with iop.Handle("cpu") as handle, iop.ReluDescriptor(handle, iop.TensorDescriptor.from_array(out), t) as op:
        op.calculate(None, out, gaps)
        assert out.tolist() == [0, 2, 0, 4]
        op.calculate(None, out, gaps.ctypes.data)
        assert out.tolist() == [0, 2, 0, 4]


@pytest.mark.parametrize(("exception", "message", "array"), [
    (iop.BadTensorStrides, r"strides of \(5,\) bytes, expected multiples of 4",
     np.zeros(3, [("a", "i1"), ("b", "<f4")])["b"]),
    (iop.BadTensorDtype, "native byte order", np.zeros(3, np.dtype(np.float32).newbyteorder())),
    (iop.BadTensorDtype, "dtype dtype\\('V'\\)", np.zeros(3, "V0")),
    (iop.BadTensorDtype, "M8", np.zeros(3, "M8[s]")),
    (TypeError, "array is a MaskedArray, expected a plain ndarray", np.ma.zeros(3)),
], ids=["packed", "swapped", "no bytes", "times", "masked"])
def test_arrays_that_are_not_described(exception, message, array):
    with pytest.raises(exception, match=message):
        iop.TensorDescriptor.from_array(array)


def test_bias_of_any_strides_and_address_0_for_none(rng):
    """A bias is read, wherever its numbers lie; nothing is left out by None or by the address 0, as NULL in C."""
    g, x, w = (np.ones(shape, np.float32) for shape in ((1, 3, 4), (1, 2, 5), (3, 2, 2)))
    t, one = describe(g, x, w), iop.TensorDescriptor((3,), "float32", (0,))
    bias, output = np.zeros(3, np.float32), np.zeros_like(g)
    with iop.Handle("cpu") as handle:
        with iop.ConvBackwardDescriptor(handle, *t, one, 0, 1, 1, 1) as op:
            op.calculate(iop.empty_workspace(handle, op.workspace_size), None, None, bias, g, x, w)
            assert bias.tolist() == [4, 4, 4]
        with iop.ConvBackwardDescriptor(handle, *t, None, 0, 1, 1, 1) as op:
            workspace = iop.empty_workspace(handle, op.workspace_size)
            gradient = np.zeros_like(w)
            op.calculate(workspace, 0, gradient, np.int64(0), g, x, w)
            assert gradient.tolist() == np.full(w.shape, 4).tolist()
            with pytest.raises(iop.BadParam, match="grad_bias is given, but the descriptor was created without"):
                op.calculate(workspace, 0, gradient, bias, g, x, w)
        with iop.ConvDescriptor(handle, *t, None, 0, 1, 1, 1) as op:
            op.calculate(iop.empty_workspace(handle, op.workspace_size), output, x, w, 0)
            assert output.tolist() == np.full(g.shape, 4).tolist()


@pytest.mark.parametrize(("exception", "message", "arguments"), [
    (iop.BadTensorShape, "length -1 on axis 1", ((2, -1), "float32")),
    (iop.BadTensorShape, "expected a sequence of integers", ((1.5,), "float32")),
    (iop.BadTensorShape, "65 dimensions, expected at most 64", ((1,) * 65, "float32")),
    (iop.BadParam, "do not fit in 63 bits", ((2**40, 2**40), "float32")),
    (iop.BadParam, "do not fit in 63 bits", ((4, 2), "float32", (2**60, 1))),
    (iop.BadTensorShape, "64-bit", ((2**64,), "float32")),
    (iop.BadTensorStrides, "2 strides, expected 1", ((2,), "float32", (1, 1))),
    (iop.BadTensorStrides, "does not fit", ((2,), "float64", (2**62,))),
    (iop.BadTensorDtype, "unknown dtype", ((2,), "datetime64[s]")),
    (iop.BadTensorDtype, "dtype dtype.* expected numbers in native byte order",
     ((2,), np.dtype(np.float32).newbyteorder())),
    (iop.BadTensorDtype, "expected numbers in native byte order", ((2,), np.dtype(np.float64).newbyteorder().str)),
    (TypeError, "no such dtype", ((2,), "no such dtype")),
], ids=lambda value: value if isinstance(value, str) else "")
def test_tensor_descriptor_errors(exception, message, arguments):
    with pytest.raises(exception, match=message):
        iop.TensorDescriptor(*arguments)


T = iop.TensorDescriptor
CREATE_ERRORS = [
    (iop.NullPointer, "handle is None", (None, T((3,), "float32"), T((3,), "float32"), T((3,), "float32"))),
    (iop.NullPointer, "descriptor of input is None", ("cpu", T((3,), "float32"), None, T((3,), "float32"))),
    (iop.BadTensorShape, r"input has shape \(4,\), expected \(3,\) to match grad_input",
     ("cpu", T((3,), "float32"), T((4,), "float32"), T((3,), "float32"))),
    (iop.BadTensorShape, "grad_output has shape",
     ("cpu", T((3,), "float32"), T((3,), "float32"), T((1, 3), "float32"))),
    (iop.BadTensorDtype, "input has dtype float64, expected float32 to match grad_output",
     ("cpu", T((3,), "float32"), T((3,), "float64"), T((3,), "float32"))),
    (iop.BadTensorDtype, "grad_output has dtype int32", ("cpu", *[T((3,), "int32")] * 3)),
    (iop.BadTensorStrides, "grad_input has stride 0 on axis 0", ("cpu", T((3,), "float32", (0,)),
                                                                T((3,), "float32"), T((3,), "float32"))),
    (iop.BadTensorStrides, "grad_input overlaps itself", ("cpu", T((3, 3), "float32", (1, 2)),
                                                         T((3, 3), "float32"), T((3, 3), "float32"))),
    (TypeError, "expected a TensorDescriptor", ("cpu", (3,), T((3,), "float32"), T((3,), "float32"))),
    (TypeError, "expected a Handle", (1, T((3,), "float32"), T((3,), "float32"), T((3,), "float32"))),
]


@pytest.mark.parametrize(("exception", "message", "arguments"), CREATE_ERRORS, ids=[r[1] for r in CREATE_ERRORS])
def test_create_errors(exception, message, arguments, handle):
    first, *tensors = arguments
    with pytest.raises(exception, match=message):
        iop.ReluBackwardDescriptor(handle if first == "cpu" else first, *tensors)


def test_parameter_errors(handle):
    t = T((3,), "float32")
    with pytest.raises(iop.BadParam, match="at least 0 with self_is_result"):
        iop.LeakyReluBackwardDescriptor(handle, t, t, t, negative_slope=-1, self_is_result=True)
    with pytest.raises(iop.BadParam, match="approximate is 'x'"):
        iop.GeluBackwardDescriptor(handle, t, t, t, approximate="x")
    with pytest.raises(TypeError, match="unexpected keyword"):
        iop.ReluBackwardDescriptor(handle, t, t, t, alpha=1)


class OneInteger:
    """As an array of another library with one element is: an index, but no address."""

    shape = ()

    def __index__(self):
        return 1


def test_calculate_errors(handle):
    """Each leaves the output as it was."""
    t = T((8,), "float32")
    buffer = np.full(20, 7, np.float32)
    out, ones = buffer[:8], np.ones(8, np.float32)
    op = iop.ReluBackwardDescriptor(handle, t, t, t)
    read_only = np.frombuffer(bytes(32), np.float32)
    for exception, message, arguments in (
            (iop.NullPointer, "input is None or 0", (out, None, ones)),
            (iop.NullPointer, "grad_input is None or 0", (0, ones, ones)),
            (iop.BadParam, "input overlaps grad_input without being the same", (out, buffer[1:9], ones)),
            (iop.BadParam, "grad_output overlaps", (out, ones, buffer[4:12])),
            (iop.BadParam, "read-only", (read_only, ones, ones)),
            (iop.BadTensorDtype, "grad_output has dtype float64", (out, ones, np.ones(8))),
            (iop.BadTensorShape, "reaches beyond its memory", (out, ones[:4], ones)),
            (iop.BadTensorStrides, "input has strides", (out, np.ones(16, np.float32)[::2], ones)),
            (iop.BadTensorStrides, "memory without gaps", (np.full((8, 2), 7, np.float32)[:, :1], ones, ones)),
            (iop.BadTensorStrides, "memory without gaps", (out, np.ones((8, 2), np.float32)[:, :1], ones)),
            (iop.BadTensorStrides, "memory without gaps", (out, np.broadcast_to(ones, (2, 8)), ones)),
            (iop.BadTensorStrides, "input has strides", (out, np.ones(16, np.uint32)[::2], ones)),
            (iop.BadTensorDtype, "dtype >f4", (out, ones.astype(">f4"), ones)),
            (iop.BadTensorDtype, "dtype int32", (out, np.arange(8, dtype=np.int32), ones)),
            (iop.BadTensorDtype, "dtype bfloat16", (out, np.ones(16, dtype_of("bfloat16")), ones)),
            (iop.BadTensorDtype, "dtype object", (out, np.full(8, None), ones)),
            (iop.BadTensorDtype, "input has dtype", (out, np.zeros(8, "f4,f4"), ones)),
            (iop.BadParam, "input is -1, expected an address", (out, -1, ones)),
            (iop.BadParam, "expected an address", (out, ones, 2**64)),
            (TypeError, "expected an array or an address", (out, "data", ones)),
            (TypeError, "input is a bool", (out, True, ones)),
            (TypeError, "input is a OneInteger", (out, OneInteger(), ones))):
        with pytest.raises(exception, match=message):
            calculate(op, None, *arguments)
        np.testing.assert_array_equal(buffer, 7)
    halves = T((8,), "float16")
    with iop.ReluBackwardDescriptor(handle, halves, halves, halves) as op16:
        wide, wrong = np.ones(8, np.float16), np.ones(8, dtype_of("bfloat16"))
        for arguments in (wrong, wide, wide), (wide, wrong, wide), (wide, wide, wrong):
            with pytest.raises(iop.BadTensorDtype, match="dtype bfloat16"):
                calculate(op16, None, *arguments)
        for dtype in np.uint16, np.int16, np.uint8:  # as bits, which have no dtype
            result = np.zeros(8, np.float16)
            calculate(op16, None, result.view(dtype), wide.view(dtype), wide)
            np.testing.assert_array_equal(result, 1)
    interleaved = np.zeros(16, np.float32)  # every other element: no byte in common
    with iop.ReluBackwardDescriptor(handle, *[T((8,), "float32", (2,))] * 2, t) as strided:
        calculate(strided, None, interleaved[::2], interleaved[1::2], ones)
    op.destroy()
    op.destroy()
    with pytest.raises(iop.NullPointer, match="used after destroy"):
        op.calculate(None, out, ones, ones)
    with pytest.raises(iop.NullPointer, match="used after destroy"):
        op.workspace_size  # noqa: B018


def test_arrays_that_only_hosts_have(handle, on_gpu):
    """Masked ones are refused; unnamed bytes are bits of any dtype, but bfloat16 on a GPU."""
    if on_gpu:
        pytest.skip("arrays that the tests put there have no mask")
    half, wide, result = T((3,), "float16"), np.ones(3, np.float16), np.zeros(3, np.float16)
    with iop.ReluBackwardDescriptor(handle, half, half, half) as op:
        op.calculate(None, result.view("V2"), wide.view("V2"), wide)
    np.testing.assert_array_equal(result, 1)
    t, ones = T((3,), "float32"), np.ones(3, np.float32)
    with iop.ReluBackwardDescriptor(handle, t, t, t) as op, pytest.raises(TypeError, match="input is a MaskedArray"):
        op.calculate(None, ones.copy(), np.ma.masked_array(ones), ones)


def test_handle():
    assert iop.available_devices()[0] == "cpu"
    for name in iop.available_devices():
        iop.Handle(name).destroy()
    assert (iop.Handle("cpu", 0).device, iop.Handle("auto").device_id) == ("cpu", 0)
    with pytest.raises(iop.DeviceNotFound):
        iop.Handle("cpu", 1)
    with pytest.raises(iop.DeviceNotFound):
        iop.Handle("cpu", -1)
    with pytest.raises(iop.DeviceTypeNotSupported):
        iop.Handle("npu")
    closed = iop.Handle("cpu")
    closed.destroy()
    t = T((3,), "float32")
    with pytest.raises(iop.DeviceNotInitialized, match="after destroy"):
        iop.ReluBackwardDescriptor(closed, t, t, t)


def test_empty_workspace(handle):
    assert iop.empty_workspace(handle, 0) is None
    workspace = iop.empty_workspace(handle, 1000)
    assert workspace.nbytes == 1000
    assert (workspace.ctypes.data if hasattr(workspace, "ctypes") else int(workspace.gpudata)) % 64 == 0
    with pytest.raises(iop.BadParam):
        iop.empty_workspace(handle, -1)


def test_a_descriptor_outlives_its_handle(rng):
    t = T((5,), "float32")
    handle = open_handle()
    op = iop.ReluBackwardDescriptor(handle, t, t, t)
    handle.destroy()
    g, x = (random_values(rng, (5,), "float32") for _ in range(2))
    out = np.empty_like(g)
    calculate(op, None, out, x, g)
    assert same_bits(out, iop.relu_backward(g, x))


@pytest.mark.parametrize(("exception", "given"), [
    (iop.BadParam, {"groups": 1.5}), (iop.BadParam, {"groups": None}), (iop.BadParam, {"pads": 1.5}),
    (iop.BadParam, {"strides": (1, 1)}), (iop.NullPointer, {"dilations": None}), (iop.BadParam, {"strides": 0}),
    (iop.NullPointer, {"weight": None}), (iop.BadTensorShape, {"bias": T((5,), "float32")})], ids=str)
def test_conv_create_errors(exception, given, handle):
    arguments = {"grad_output": T((1, 2, 3), "float32"), "input": T((1, 2, 3), "float32"),
                 "weight": T((2, 2, 1), "float32"), "bias": None, "pads": 0, "strides": 1, "dilations": 1, "groups": 1}
    iop.ConvBackwardDescriptor(handle, **arguments).destroy()
    with pytest.raises(exception, match="conv_backward: "):
        iop.ConvBackwardDescriptor(handle, **(arguments | given))


def test_a_large_output_at_an_odd_address(rng):
    """Plain addresses need not be multiples of the itemsize, not even where the output is streamed."""
    n = 600_000
    storage = np.zeros(4 * n + 1, np.uint8)
    g, x = rng.normal(size=(2, n)).astype(np.float32)
    tensor = iop.TensorDescriptor((n,), "float32")
    with iop.Handle("cpu") as handle, iop.ReluBackwardDescriptor(handle, tensor, tensor, tensor) as op:
        op.calculate(None, storage.ctypes.data + 1, x.ctypes.data, g.ctypes.data)
    assert storage[1:].tobytes() == iop.relu_backward(g, x).tobytes()
