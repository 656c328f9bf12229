"""The C API through ctypes, as a client sees it: the same bits as the functions, and every status."""
import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from rotation import each_case
from test_descriptors import CREATE_ERRORS

import infiniop_cy as iop
from infiniop_cy.capi import get_include, infini_root
from infiniop_cy.capi.client import address, c_parameters, spellings
from infiniop_cy.dtypes import CAST_ONLY, code_of
from infiniop_cy.operators import OPERATORS
from infiniop_cy.status import Status
from infiniop_cy.testing import DTYPES, GRADIENTS, Case, arrange, random_values, same_bits
from infiniop_cy.testing.conv import CONV_CASES, make_case

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the C libraries are built on Linux")

P = ctypes.c_void_p
S = Status


@pytest.fixture(scope="module")
def library():
    return ctypes.CDLL(f"{infini_root()}/lib/libinfiniop.so")


@pytest.fixture(scope="module")
def runtime():
    return ctypes.CDLL(f"{infini_root()}/lib/libinfinirt.so")


@pytest.fixture
def handle(library):
    opened = P()
    assert library.infiniopCreateHandle(ctypes.byref(opened)) == S.SUCCESS
    yield opened
    assert library.infiniopDestroyHandle(opened) == S.SUCCESS


def tensor(library, shape, dtype, strides=None):
    """(status, descriptor)"""
    made = P()
    status = library.infiniopCreateTensorDescriptor(
        ctypes.byref(made), ctypes.c_size_t(len(shape)), (ctypes.c_size_t * len(shape))(*shape) if shape else None,
        None if strides is None else (ctypes.c_ssize_t * len(shape))(*strides),
        code_of(dtype) if isinstance(dtype, str) else dtype)
    return status, made


def describe(library, array):
    status, made = tensor(library, array.shape, str(array.dtype), [s // array.itemsize for s in array.strides])
    assert status == S.SUCCESS
    return made


def name_of(operator):
    return spellings(operator.name)[0]


def create(library, handle, case, tensors):
    """(status, operator descriptor) by the C parameters of the case."""
    made, (suffix, given) = P(), c_parameters(case.operator, case.parameters)
    create_ = getattr(library, f"infiniopCreate{name_of(case.operator)}Descriptor{suffix}")
    status = create_(handle, ctypes.byref(made), *tensors, *given)
    return status, made


def calculate(library, case, op, *operands):
    return getattr(library, f"infiniop{case.operator.class_name}")(op, None, ctypes.c_size_t(0), *operands, None)


def as_c_floats(case):
    """The parameters as C calls pass them."""
    complete = {p.name: p.default for p in case.operator.parameters} | case.parameters
    return {name: float(np.float32(value)) for name, value in complete.items() if isinstance(value, float)}


@each_case(dtype=DTYPES, layout=["contiguous", "padded rows", "reversed", "every other"],
           shape=[(), (3, 0), (13, 4), (3, 211, 157)])
def test_elementwise(case, dtype, layout, shape, library, handle, rng):
    inputs = [arrange(a, layout) for a in case.random(rng, shape, dtype)]
    out = arrange(np.zeros_like(np.array(inputs[0])), layout)
    operands = inputs[::-1]  # in the order of descriptors
    tensors = [describe(library, a) for a in (out, *operands)]
    status, op = create(library, handle, case, tensors)
    assert status == S.SUCCESS
    for t in tensors:
        assert library.infiniopDestroyTensorDescriptor(t) == S.SUCCESS
    size = ctypes.c_size_t(99)
    name = case.operator.class_name
    assert getattr(library, f"infiniopGet{name}WorkspaceSize")(op, ctypes.byref(size)) == S.SUCCESS
    assert size.value == 0
    expected = Case(case.operator, case.parameters | as_c_floats(case))(*inputs)
    assert calculate(library, case, op, *map(address, (out, *operands))) == S.SUCCESS
    assert same_bits(np.array(out), expected)
    assert calculate(library, case, op, *map(address, (inputs[0], *operands))) == S.SUCCESS  # in place
    assert same_bits(np.array(inputs[0]), expected)
    assert ctypes.cast(op, ctypes.POINTER(ctypes.c_int))[0:2] == [0, 0]  # device, device_id
    destroy = getattr(library, f"infiniopDestroy{name}Descriptor")
    assert [destroy(op), destroy(op), destroy(None)] == [S.SUCCESS, S.BAD_PARAM, S.NULL_POINTER]
    assert calculate(library, case, op, *map(address, (out, *operands))) == S.BAD_PARAM


@each_case(cases=GRADIENTS)
def test_broadcast_zeros(case, library, handle, rng):
    g, x = random_values(rng, (4,), "float32"), random_values(rng, (5, 1), "float32")
    out = np.zeros((5, 4), np.float32)
    tensors = [tensor(library, (5, 4), "float32", strides)[1] for strides in (None, (1, 0), (0, 1))]
    status, op = create(library, handle, case, tensors)
    assert status == S.SUCCESS
    assert calculate(library, case, op, *map(address, (out, x, g))) == S.SUCCESS
    assert same_bits(out, case(g, x))


@pytest.mark.parametrize("case", GRADIENTS, ids=str)
@pytest.mark.parametrize(("exception", "message", "arguments"), [
    row for row in CREATE_ERRORS if issubclass(row[0], iop.InfiniopError) and row[2][0] is not None],
    ids=lambda value: value if isinstance(value, str) else "")
def test_create_statuses(case, exception, message, arguments, library, handle):
    """The table of the Python descriptors: the same mistakes, the same statuses."""
    if exception is iop.BadTensorDtype and case.operator.promotes and "to match" in message:
        pytest.skip("this operator promotes")
    tensors = [P(0) if t is None else tensor(library, t.shape, t.dtype_name, t.strides)[1] for t in arguments[1:]]
    status, op = create(library, handle, case, tensors)
    assert (status, op.value) == (exception.status, None)


def test_more_statuses(library, handle):
    good = tensor(library, (4,), "float32")[1]
    relu, leaky = (next(c for c in GRADIENTS if c.operator.name == f"{n}_backward") for n in ("relu", "leaky_relu"))
    assert create(library, handle, relu, [tensor(library, (4,), "float64")[1], good, good])[0] == S.BAD_TENSOR_DTYPE
    assert create(library, P(0), relu, [good] * 3)[0] == S.NULL_POINTER
    assert library.infiniopCreateReluBackwardDescriptor(handle, None, good, good, good) == S.NULL_POINTER
    made = P()
    gelu = library.infiniopCreateGeluBackwardDescriptorV2
    assert gelu(handle, ctypes.byref(made), good, good, good, 2) == S.BAD_PARAM
    assert library.infiniopCreateLeakyReluBackwardDescriptor(
        handle, ctypes.byref(made), good, good, good, ctypes.c_float(-0.1), ctypes.c_bool(True)) == S.BAD_PARAM
    status, op = create(library, handle, relu, [good] * 3)
    assert status == S.SUCCESS
    buffer = np.full(12, 7, np.float32)
    ones = np.ones(4, np.float32)
    for wanted, arguments in ((S.NULL_POINTER, (None, ones, ones)), (S.NULL_POINTER, (buffer, None, ones)),
                              (S.NULL_POINTER, (buffer, ones, None)), (S.BAD_PARAM, (buffer, buffer[1:], ones))):
        assert calculate(library, relu, op, *map(address, arguments)) == wanted
    np.testing.assert_array_equal(buffer, 7)
    assert library.infiniopGetReluBackwardWorkspaceSize(op, None) == S.NULL_POINTER
    assert library.infiniopDestroyGeluBackwardDescriptor(op) == S.BAD_PARAM  # another operator's
    assert library.infiniopDestroyTensorDescriptor(op) == S.BAD_PARAM
    assert library.infiniopDestroyReluBackwardDescriptor(op) == S.SUCCESS
    assert library.infiniopDestroyTensorDescriptor(good) == S.SUCCESS
    assert create(library, handle, leaky, [good] * 3)[0] == S.BAD_PARAM  # destroyed
    assert library.infiniopDestroyHandle(None) == S.NULL_POINTER
    assert library.infiniopCreateHandle(None) == S.NULL_POINTER


@pytest.mark.parametrize(("status", "arguments"), [
    (S.BAD_TENSOR_DTYPE, ((3,), 0)), (S.BAD_TENSOR_DTYPE, ((3,), 77)), (S.BAD_TENSOR_SHAPE, ((1,) * 65, "float32")),
    (S.BAD_PARAM, ((2**40, 2**40), "float32")), (S.BAD_TENSOR_SHAPE, ((2**63,), "float32")),
    (S.BAD_TENSOR_STRIDES, ((2,), "float64", (2**61,))), (S.SUCCESS, ((), "float32")),
    (S.SUCCESS, ((2,), "bfloat16", (-1,))), (S.SUCCESS, ((2, 0, 3), "complex128"))], ids=str)
def test_tensor_statuses(status, arguments, library):
    assert tensor(library, *arguments)[0] == status


def test_tensor_null_pointers(library):
    made = P()
    call = library.infiniopCreateTensorDescriptor
    assert call(ctypes.byref(made), ctypes.c_size_t(1), None, None, 13) == S.NULL_POINTER
    assert call(None, ctypes.c_size_t(0), None, None, 13) == S.NULL_POINTER
    assert library.infiniopDestroyTensorDescriptor(None) == S.NULL_POINTER


def conv_descriptor(library, handle, g, x, w, bias, stride, pads, dilation, groups):
    made, axes = P(), x.ndim - 2
    lists = [(ctypes.c_ssize_t * axes)(*values) for values in (pads, stride, dilation)]
    status = library.infiniopCreateConvBackwardDescriptor(
        handle, ctypes.byref(made), describe(library, g), describe(library, x), describe(library, w),
        None if bias is None else describe(library, bias), *lists, ctypes.c_size_t(groups))
    return status, made


SYMMETRIC = {name: case for name, case in CONV_CASES.items() if all(a == b for a, b in case.geometry[1])}


@pytest.mark.parametrize("name", SYMMETRIC)
@pytest.mark.parametrize("dtype", DTYPES)
def test_conv(name, dtype, library, handle, rng):
    case = SYMMETRIC[name]
    g, x, w = make_case(case, dtype, rng)
    stride, pads, dilation, groups = case.geometry
    bias = np.zeros(w.shape[0], w.dtype)
    status, op = conv_descriptor(library, handle, g, x, w, bias, stride, [p[0] for p in pads], dilation, groups)
    assert status == S.SUCCESS
    size = ctypes.c_size_t()
    assert library.infiniopGetConvBackwardWorkspaceSize(op, ctypes.byref(size)) == S.SUCCESS
    workspace = np.full(size.value, 255, np.uint8)
    outs = [np.full(a.shape, 7, a.dtype) for a in (x, w, bias)]
    run = lambda room, outs: library.infiniopConvBackward(  # noqa: E731
        op, address(workspace), ctypes.c_size_t(room), *map(address, (*outs, g, x, w)), None)
    assert run(size.value - 1, outs) == S.INSUFFICIENT_WORKSPACE
    assert all((o.astype(float) == 7).all() for o in outs)
    assert run(size.value, outs) == S.SUCCESS
    expected = iop.conv_backward(g, x, w, **case.keywords)
    assert all(map(same_bits, outs, expected))
    skipped = [np.full(a.shape, 7, a.dtype) for a in (x, w, bias)]
    assert run(size.value, [None, skipped[1], None]) == S.SUCCESS
    assert same_bits(skipped[1], expected[1])
    assert library.infiniopDestroyConvBackwardDescriptor(op) == S.SUCCESS
    assert library.infiniopDestroyConvBackwardDescriptor(op) == S.BAD_PARAM


def test_conv_statuses(library, handle):
    g, x, w = np.ones((1, 2, 4), "f4"), np.ones((1, 2, 4), "f4"), np.ones((2, 2, 1), "f4")
    plain = {"stride": [1], "pads": [0], "dilation": [1], "groups": 1, "bias": None}
    for status, given in ((S.BAD_PARAM, {"stride": [0]}), (S.BAD_PARAM, {"pads": [-1]}),
                          (S.BAD_PARAM, {"dilation": [0]}), (S.BAD_PARAM, {"groups": 0}), (S.BAD_PARAM, {"groups": 3}),
                          (S.BAD_TENSOR_SHAPE, {"pads": [1]}), (S.BAD_TENSOR_SHAPE, {"bias": np.ones(3, "f4")}),
                          (S.BAD_TENSOR_DTYPE, {"bias": np.ones(2)})):
        assert conv_descriptor(library, handle, g, x, w, **(plain | given))[0] == status, given
    status, op = conv_descriptor(library, handle, g, x, w, **plain)
    assert status == S.SUCCESS
    size = ctypes.c_size_t()
    library.infiniopGetConvBackwardWorkspaceSize(op, ctypes.byref(size))
    room = np.zeros(size.value + 64, np.uint8)
    out, bias = np.full_like(x, 7), np.zeros(2, "f4")
    for status, arguments in ((S.NULL_POINTER, (room, out, None, None, g, None, w)),
                              (S.NULL_POINTER, (None, out, None, None, g, x, w)),
                              (S.BAD_PARAM, (room, out, None, bias, g, x, w)),  # created without a bias
                              (S.BAD_PARAM, (room, g, None, None, g, x, w)),    # grad_input is grad_output
                              (S.BAD_PARAM, (room, room, None, None, g, x, w))):
        workspace, *arrays = arguments
        assert library.infiniopConvBackward(op, address(workspace), size, *map(address, arrays), None) == status
    np.testing.assert_array_equal(out, 7)
    made = P()
    assert library.infiniopCreateConvBackwardDescriptor(
        handle, ctypes.byref(made), describe(library, g), describe(library, x), describe(library, w), None, None, None,
        None, ctypes.c_size_t(1)) == S.NULL_POINTER


def forward_descriptor(library, handle, y, x, w, bias, stride=None, pads=None, dilation=None, n=None,
                       kind=ctypes.c_ssize_t):
    made, axes = P(), x.ndim - 2
    lists = [None if values is None else (kind * axes)(*values) for values in (pads, stride, dilation)]
    status = library.infiniopCreateConvDescriptor(
        handle, ctypes.byref(made), *(None if a is None else describe(library, a) for a in (y, x, w, bias)), *lists,
        ctypes.c_size_t(axes if n is None else n))
    return status, made


@pytest.mark.parametrize("name", list(SYMMETRIC)[::2])
@pytest.mark.parametrize("dtype", DTYPES)
def test_forward_conv(name, dtype, library, handle, rng):
    """The groups follow from the shapes; lists of 64 or of 32 bits."""
    case = SYMMETRIC[name]
    y, x, w = make_case(case, dtype, rng)
    stride, pads, dilation, _ = case.geometry
    bias = random_values(rng, (w.shape[0],), dtype)
    out, size = np.full(y.shape, 7, y.dtype), ctypes.c_size_t()
    for kind in (ctypes.c_ssize_t, ctypes.c_int32):
        status, op = forward_descriptor(library, handle, y, x, w, bias, stride, [p[0] for p in pads], dilation,
                                        kind=kind)
        assert status == S.SUCCESS
        assert library.infiniopGetConvWorkspaceSize(op, ctypes.byref(size)) == S.SUCCESS
        workspace = np.full(size.value, 255, np.uint8)
        run = lambda room, op=op, workspace=workspace: library.infiniopConv(  # noqa: E731
            op, address(workspace), ctypes.c_size_t(room), *map(address, (out, x, w, bias)), None)
        out[...] = 7
        assert run(size.value - 1) == S.INSUFFICIENT_WORKSPACE
        assert (out.astype(float) == 7).all()
        assert run(size.value) == S.SUCCESS
        assert same_bits(out, iop.conv(x, w, bias, **case.keywords))
        assert library.infiniopDestroyConvDescriptor(op) == S.SUCCESS
        assert library.infiniopDestroyConvDescriptor(op) == S.BAD_PARAM


def test_forward_conv_statuses(library, handle):
    y, x, w = np.full((1, 2, 4), 7, "f4"), np.ones((1, 2, 4), "f4"), np.ones((2, 2, 1), "f4")
    plain = {"y": y, "x": x, "w": w, "bias": None}
    for status, given in ((S.BAD_PARAM, {"stride": [0]}), (S.BAD_PARAM, {"pads": [-1]}),
                          (S.BAD_PARAM, {"dilation": [0]}), (S.BAD_TENSOR_SHAPE, {"n": 2}),
                          (S.BAD_TENSOR_SHAPE, {"n": 0}), (S.BAD_TENSOR_SHAPE, {"pads": [1]}),
                          (S.BAD_TENSOR_SHAPE, {"w": np.ones((2, 3, 1), "f4")}),
                          (S.BAD_TENSOR_SHAPE, {"bias": np.ones(3, "f4")}), (S.BAD_TENSOR_DTYPE, {"bias": np.ones(2)}),
                          (S.BAD_TENSOR_STRIDES, {"y": np.broadcast_to(y[:, :1], y.shape)}),
                          (S.NULL_POINTER, {"y": None}), (S.NULL_POINTER, {"w": None})):
        assert forward_descriptor(library, handle, **(plain | given))[0] == status, given
    status, op = forward_descriptor(library, handle, **plain)  # lists of NULL: no padding, steps of 1
    assert status == S.SUCCESS
    size = ctypes.c_size_t()
    library.infiniopGetConvWorkspaceSize(op, ctypes.byref(size))
    room = np.zeros(size.value + 64, np.uint8)
    for status, arguments in ((S.NULL_POINTER, (room, y, None, w, None)), (S.NULL_POINTER, (None, y, x, w, None)),
                              (S.NULL_POINTER, (room, None, x, w, None)),
                              (S.BAD_PARAM, (room, y, x, w, np.ones(2, "f4"))),  # created without a bias
                              (S.BAD_PARAM, (room, x, x, w, None)), (S.BAD_PARAM, (room, room, x, w, None))):
        workspace, *arrays = arguments
        assert library.infiniopConv(op, address(workspace), size, *map(address, arrays), None) == status
    np.testing.assert_array_equal(y, 7)
    assert library.infiniopConv(op, address(room), size, *map(address, (y, x, w, None)), None) == S.SUCCESS
    np.testing.assert_array_equal(y, 2)


def test_a_million_descriptors_leak_nothing(library, handle):
    """Resident memory after the first thousand and after the rest."""
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1])
    t = tensor(library, (4, 5), "float32")[1]
    made = P()
    create_, destroy = library.infiniopCreateReluBackwardDescriptor, library.infiniopDestroyReluBackwardDescriptor
    pointer = ctypes.byref(made)

    def turn(n):
        for _ in range(n):
            create_(handle, pointer, t, t, t)
            destroy(made)
    turn(1000)
    before = resident()
    turn(1_000_000)
    assert resident() - before < 100  # pages


def test_threads(library, handle, rng):
    """Calls from several threads; ctypes lets go of the GIL."""
    case = GRADIENTS[0]
    t = tensor(library, (70_000,), "float32")[1]
    _, op = create(library, handle, case, [t] * 3)

    def run(seed):
        local = np.random.default_rng(seed)
        g, x = (random_values(local, 70_000, "float32") for _ in range(2))
        out = np.empty_like(g)
        assert calculate(library, case, op, *map(address, (out, x, g))) == S.SUCCESS
        return same_bits(out, case(g, x))
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(20)))


def test_runtime(library, runtime):
    device, number, counts = ctypes.c_int(9), ctypes.c_int(9), (ctypes.c_int * 16)(*[9] * 16)
    assert runtime.infinirtInit() == S.SUCCESS
    assert runtime.infinirtGetAllDeviceCount(counts) == S.SUCCESS
    assert counts[:9] == [1] + [0] * 8
    assert counts[9] == 9
    assert runtime.infinirtGetDeviceCount(0, ctypes.byref(number)) == S.SUCCESS
    assert number.value == 1
    assert runtime.infinirtGetDeviceCount(99, ctypes.byref(number)) == S.BAD_PARAM
    assert runtime.infinirtSetDevice(1, 0) == S.DEVICE_TYPE_NOT_SUPPORTED
    assert runtime.infinirtSetDevice(0, 1) == S.DEVICE_NOT_FOUND
    assert runtime.infinirtSetDevice(0, 0) == S.SUCCESS
    assert runtime.infinirtGetDevice(ctypes.byref(device), ctypes.byref(number)) == S.SUCCESS
    assert (device.value, number.value) == (0, 0)
    memory, source = P(), np.arange(10.0)
    back = np.zeros(10)
    assert runtime.infinirtMalloc(ctypes.byref(memory), ctypes.c_size_t(80)) == S.SUCCESS
    assert memory.value % 64 == 0
    assert runtime.infinirtMemcpy(memory, address(source), ctypes.c_size_t(80), 1) == S.SUCCESS
    assert runtime.infinirtMemcpy(address(back), memory, ctypes.c_size_t(80), 2) == S.SUCCESS
    np.testing.assert_array_equal(back, source)
    assert runtime.infinirtMemcpy(None, memory, ctypes.c_size_t(80), 2) == S.NULL_POINTER
    assert runtime.infinirtMemcpy(memory, memory, ctypes.c_size_t(0), 7) == S.BAD_PARAM
    assert runtime.infinirtMalloc(None, ctypes.c_size_t(80)) == S.NULL_POINTER
    for size in (2**63, 2**64 - 64, 2**64 - 63, 2**64 - 1):  # which would be rounded up to 0
        assert runtime.infinirtMalloc(ctypes.byref(memory), ctypes.c_size_t(size)) == S.INTERNAL_ERROR
    assert runtime.infinirtFree(memory) == S.SUCCESS
    assert runtime.infinirtFree(None) == S.SUCCESS
    assert runtime.infinirtDeviceSynchronize() == S.SUCCESS


# ---- aclnn

ACL = {"float32": 0, "float16": 1, "int8": 2, "int32": 3, "uint8": 4, "int16": 6, "uint16": 7, "uint32": 8, "int64": 9,
       "uint64": 10, "float64": 11, "bool": 12, "complex64": 16, "complex128": 17, "bfloat16": 27}
NULL, INVALID = 161001, 161002


def acl_tensor(library, array, shape=None):
    library.aclCreateTensor.restype = P
    shape = array.shape if shape is None else shape
    n = len(shape)
    strides = [s // array.itemsize for s in array.strides] if shape == array.shape else None
    return P(library.aclCreateTensor(
        (ctypes.c_int64 * n)(*shape), ctypes.c_uint64(n), ACL[str(array.dtype)],
        strides and (ctypes.c_int64 * n)(*strides), ctypes.c_int64(0), 2, None, ctypes.c_uint64(0), address(array)))


def acl_scalar(library, value, dtype="float32"):
    library.aclCreateScalar.restype = P
    return P(library.aclCreateScalar(address(np.array([value]).astype(
        random_values(np.random.default_rng(0), 1, dtype).dtype if dtype in DTYPES else dtype)), ACL[dtype]))


def acl_leaky(library, g, x, slope, self_is_result, out):
    """Both phases; the status of the first that fails."""
    size, executor = ctypes.c_uint64(9), P()
    status = library.aclnnLeakyReluBackwardGetWorkspaceSize(
        g, x, slope, ctypes.c_bool(self_is_result), out, ctypes.byref(size), ctypes.byref(executor))
    if status:
        return status
    status = library.aclnnLeakyReluBackward(None, size, executor, None)
    assert library.aclnnLeakyReluBackward(None, size, executor, None) == INVALID  # used up
    return status


@pytest.mark.parametrize("g_dtype", DTYPES)
@pytest.mark.parametrize("x_dtype", DTYPES)
@pytest.mark.parametrize("out_dtype", [*DTYPES, *CAST_ONLY])
def test_aclnn_dtypes(g_dtype, x_dtype, out_dtype, library, rng):
    g, x = np.abs(random_values(rng, (3, 1, 5), g_dtype)), random_values(rng, (4, 1), x_dtype)
    out, expected = (arrange(np.zeros((3, 4, 5), random_values(rng, 1, out_dtype).dtype if out_dtype in DTYPES
                                      else out_dtype), layout) for layout in ("padded rows", "contiguous"))
    iop.leaky_relu_backward(g, x, 0.5, out=expected)
    tensors = [acl_tensor(library, a) for a in (g, x, out)]
    assert acl_leaky(library, tensors[0], tensors[1], acl_scalar(library, 0.5), False, tensors[2]) == 0
    assert same_bits(np.array(out), expected)
    assert [library.aclDestroyTensor(t) for t in tensors] == [0, 0, 0]
    assert library.aclDestroyTensor(tensors[0]) == INVALID


@pytest.mark.parametrize("dtype", [*DTYPES, "int8", "int16", "int32", "int64", "uint8", "bool"])
def test_aclnn_slopes(dtype, library):
    g, x, out = np.float32([2, 3]), np.float32([-1, 1]), np.zeros(2, np.float32)
    slope = acl_scalar(library, 1, dtype)
    assert acl_leaky(library, *(acl_tensor(library, a) for a in (g, x)), slope, True, acl_tensor(library, out)) == 0
    np.testing.assert_array_equal(out, g)
    assert [library.aclDestroyScalar(slope), library.aclDestroyScalar(slope)] == [0, INVALID]


def test_aclnn_statuses(library):
    a, out = np.ones((2, 3), np.float32), np.full((2, 3), 7, np.float32)
    g, x, o, slope = (acl_tensor(library, a), acl_tensor(library, a.copy()), acl_tensor(library, out),
                      acl_scalar(library, 0.1))
    run = lambda **given: acl_leaky(library, *({"g": g, "x": x, "slope": slope, "self_is_result": False,  # noqa: E731
                                                "out": o} | given).values())
    nine = np.ones((1,) * 9, np.float32)
    for wanted, given in (
            (NULL, {"g": None}), (NULL, {"x": None}), (NULL, {"slope": None}), (NULL, {"out": None}),
            (INVALID, {"g": acl_tensor(library, nine)}), (INVALID, {"out": acl_tensor(library, nine)}),
            (INVALID, {"g": acl_tensor(library, a.astype(np.int32))}),
            (INVALID, {"x": acl_tensor(library, np.ones((2, 4), np.float32))}),
            (INVALID, {"out": acl_tensor(library, np.ones((3, 2), np.float32))}),
            (INVALID, {"slope": acl_scalar(library, -0.1), "self_is_result": True}),
            (INVALID, {"slope": o}), (INVALID, {"g": slope})):
        assert run(**given) == wanted, given
    np.testing.assert_array_equal(out, 7)
    assert run() == 0
    assert library.aclnnLeakyReluBackward(None, ctypes.c_uint64(0), None, None) == NULL
    empty = np.ones((0, 3), np.float32)
    assert run(g=acl_tensor(library, empty), x=acl_tensor(library, empty), out=acl_tensor(library, empty)) == 0


def test_aclnn_executor_that_is_not_run(library):
    a = acl_tensor(library, np.ones(3, np.float32))
    size, executor = ctypes.c_uint64(9), P()
    assert library.aclnnLeakyReluBackwardGetWorkspaceSize(
        a, a, acl_scalar(library, 0.1), ctypes.c_bool(False), a, ctypes.byref(size), ctypes.byref(executor)) == 0
    destroy = library.aclDestroyAclOpExecutor
    assert [destroy(executor), destroy(executor), destroy(None), destroy(a)] == [0, INVALID, NULL, INVALID]
    assert library.aclnnLeakyReluBackward(None, size, executor, None) == INVALID


@pytest.mark.parametrize("dtype", [2, 0, 17], ids=["int8", "float32", "complex128"])
@pytest.mark.parametrize("offset", [-2**63, 2**63 - 1, -2**62, -2**47])
def test_aclnn_offsets_beyond_all_addresses(dtype, offset, library):
    """They are refused, not added to a pointer."""
    library.aclCreateTensor.restype = P
    one = (ctypes.c_int64 * 1)(1)
    assert library.aclCreateTensor(one, ctypes.c_uint64(1), dtype, None, ctypes.c_int64(offset), 2, None,
                                   ctypes.c_uint64(0), address(np.ones(2))) is None


def test_no_such_instruction_set():
    """Without kernels no C call crashes: a handle and a scalar, which all others need, are refused."""
    code = f"""
import ctypes
library = ctypes.CDLL({infini_root() + "/lib/libinfiniop.so"!r})
P = ctypes.c_void_p
library.aclCreateScalar.restype = library.aclCreateTensor.restype = P
handle, executor, one, data = P(), P(), (ctypes.c_int64 * 1)(1), (ctypes.c_double * 1)(1)
assert library.infiniopCreateHandle(ctypes.byref(handle)) == {S.DEVICE_ARCHITECTURE_NOT_SUPPORTED:d}
t = P(library.aclCreateTensor(one, ctypes.c_uint64(1), 0, None, ctypes.c_int64(0), 2, None, ctypes.c_uint64(0), data))
for dtype in range(-1, 30):
    assert library.aclCreateScalar(data, dtype) is None
assert library.aclnnLeakyReluBackwardGetWorkspaceSize(t, t, t, True, t, one, ctypes.byref(executor)) == {INVALID}
assert library.aclDestroyTensor(t) == 0
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, env=os.environ | {"INFINIOP_CY_ISA": "none such"})
    assert done.returncode == 0


@pytest.mark.parametrize("number", ["many", "0", "2.5"])
def test_threads_that_the_environment_misspells(number):
    """A handle is refused, and so is aclnn's first phase; an empty setting is none."""
    code = f"""
import ctypes, os
library = ctypes.CDLL({infini_root() + "/lib/libinfiniop.so"!r})
P = ctypes.c_void_p
library.aclCreateScalar.restype = library.aclCreateTensor.restype = P
handle, executor, one, data = P(), P(), (ctypes.c_int64 * 1)(1), (ctypes.c_float * 1)(1)
t = P(library.aclCreateTensor(one, ctypes.c_uint64(1), 0, None, ctypes.c_int64(0), 2, None, ctypes.c_uint64(0), data))
slope = P(library.aclCreateScalar(data, 0))
phase = lambda: library.aclnnLeakyReluBackwardGetWorkspaceSize(t, t, slope, False, t, one, ctypes.byref(executor))
assert library.infiniopCreateHandle(ctypes.byref(handle)) == {S.BAD_PARAM:d}
assert phase() == {INVALID}
ctypes.CDLL(None).setenv(b"INFINIOP_CY_NUM_THREADS", b"", 1)
assert library.infiniopCreateHandle(ctypes.byref(handle)) == 0
assert phase() == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"INFINIOP_CY_NUM_THREADS": number})


# ---- headers, symbols, prototypes

def headers():
    return sorted(pathlib.Path(get_include()).rglob("*.h"))


def prototypes():
    text = "".join(path.read_text() for path in headers())
    return set(re.findall(r"__C __export [^;(]*?\b(\w+)\(", text))


def test_prototypes_are_the_symbols():
    """What the headers declare is what the two libraries export."""
    if shutil.which("nm") is None:
        pytest.skip("nm is not installed")
    exported = set()
    for name in ("libinfiniop.so", "libinfinirt.so"):
        listing = subprocess.run(["nm", "-D", "--defined-only", f"{infini_root()}/lib/{name}"], capture_output=True,
                                 text=True, check=True).stdout
        exported |= {line.split()[-1] for line in listing.splitlines()}
        undefined = subprocess.run(["nm", "-D", "--undefined-only", f"{infini_root()}/lib/{name}"], capture_output=True,
                                   text=True, check=True).stdout
        assert " Py" not in undefined
        assert " _Py" not in undefined
    assert exported == prototypes()
    for name in [*(operator.class_name for operator in OPERATORS), "ConvBackward"]:
        assert {f"infiniopCreate{name}Descriptor", f"infiniopGet{name}WorkspaceSize", f"infiniop{name}",
                f"infiniopDestroy{name}Descriptor"} <= exported


@pytest.mark.parametrize(("compiler", "language", "standard"), [("cc", "c", "c99"), ("c++", "c++", "c++11")])
def test_headers_compile(compiler, language, standard, tmp_path):
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    source = tmp_path / "all.txt"
    source.write_text("".join(f'#include "{path.relative_to(get_include())}"\n' for path in headers()))
    subprocess.run([compiler, f"-std={standard}", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", "-I",
                    get_include(), "-x", language, str(source)], check=True)


def test_a_client_without_python(tmp_path):
    """The flow of the seeds in C++, linked against the two libraries alone."""
    if shutil.which("c++") is None:
        pytest.skip("no C++ compiler")
    program = tmp_path / "client"
    root = infini_root()
    source = pathlib.Path(__file__).parent / "capi/client.cpp"
    subprocess.run(["c++", "-std=c++11", "-I", f"{root}/include", str(source), f"-L{root}/lib", "-linfiniop",
                    "-linfinirt", f"-Wl,-rpath,{root}/lib", "-o", str(program)], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, check=True)
    assert done.stdout == "0 0 3\n2 3 4 5\n"


def test_pxd_serves_other_cython_code(tmp_path):
    """A Cython module that plans and runs relu without a Python object, built against the installed package."""
    pytest.importorskip("Cython")
    pytest.importorskip("setuptools")
    if shutil.which("c++") is None:
        pytest.skip("no C++ compiler")
    root = infini_root()
    (tmp_path / "client.pyx").write_text("""
from infiniop_cy.capi.infiniop cimport *

def relu(float[::1] grad_input, float[::1] input, float[::1] grad_output):
    cdef infiniopHandle_t handle
    cdef infiniopTensorDescriptor_t t
    cdef infiniopReluBackwardDescriptor_t op
    cdef size_t n = input.shape[0]
    cdef int status
    with nogil:
        status = infiniopCreateHandle(&handle) or infiniopCreateTensorDescriptor(&t, 1, &n, NULL, INFINI_DTYPE_F32) \\
            or infiniopCreateReluBackwardDescriptor(handle, &op, t, t, t) \\
            or infiniopReluBackward(op, NULL, 0, &grad_input[0], &input[0], &grad_output[0], NULL)
    return status
""")
    (tmp_path / "setup.py").write_text(f"""
from setuptools import Extension, setup
from Cython.Build import cythonize
setup(name="client", ext_modules=cythonize([Extension("client", ["client.pyx"], language="c++",
      include_dirs=[{get_include()!r}], library_dirs=["{root}/lib"], libraries=["infiniop"],
      runtime_library_dirs=["{root}/lib"])], include_path=[{str(pathlib.Path(root).parent.parent)!r}]))
""")
    built = subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=tmp_path, check=False,
                           capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    code = ("import client, numpy as np; out = np.zeros(2, 'f4');"
            "print(client.relu(out, np.float32([-1, 1]), np.float32([5, 6])), out)")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "0 [0. 6.]\n"


def test_loads_without_the_package():
    """Plain ctypes.CDLL in a process that never imports infiniop_cy."""
    code = f"""
import ctypes, sys
library = ctypes.CDLL({infini_root() + "/lib/libinfiniop.so"!r})
handle = ctypes.c_void_p()
assert library.infiniopCreateHandle(ctypes.byref(handle)) == 0 and handle.value
assert "infiniop_cy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_infini_root_command():
    command = [sys.executable, "-m", "infiniop_cy", "infini-root"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    root = pathlib.Path(done.stdout.strip())
    assert (root / "lib/libinfiniop.so").exists()
    assert (root / "lib/libinfinirt.so").exists()
    assert (root / "include/infiniop.h").exists()
