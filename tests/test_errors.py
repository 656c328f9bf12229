"""Every rule in status.py: the exception, its status, its message, and that no output changed."""
import inspect
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import infiniop_cy as iop
from infiniop_cy.operators import OPERATORS
from infiniop_cy.status import EXCEPTIONS, MESSAGES, Status

F = np.float32


def ones(*shape, dtype=F):
    return np.ones(shape, dtype)


def out_of(*shape, dtype=F):
    return np.full(shape, 7, dtype)


def overlapping_rows():
    return np.lib.stride_tricks.as_strided(out_of(10), (3, 4), (8, 4))


# (id, exception, message, operator, args, keywords); every array in keywords["out"] must keep its bytes.
def conv(**given):
    arguments = {"grad_output": ones(2, 4, 6, 6), "input": ones(2, 3, 8, 8), "weight": ones(4, 3, 3, 3)} | given
    return [arguments.pop(name) for name in ("grad_output", "input", "weight")], arguments


ELEMENTWISE = [
    ("grad_output None", iop.NullPointer, "grad_output is None", [None, ones(3)], {}),
    ("input None", iop.NullPointer, "input is None", [ones(3), None], {}),
    ("shapes", iop.BadTensorShape, r"input has shape \(3, 4\), expected \(3, 5\) to match grad_output",
     [ones(3, 5), ones(3, 4)], {}),
    ("out shape", iop.BadTensorShape, r"out has shape \(3,\), expected \(2, 3\)", [ones(2, 3), ones(3)],
     {"out": out_of(3)}),
    ("out larger", iop.BadTensorShape, r"out has shape \(2, 3\), expected \(3,\)", [ones(3), ones(3)],
     {"out": out_of(2, 3)}),
    ("out with a leading 1", iop.BadTensorShape, r"out has shape \(1, 3\)", [ones(3), ones(3)], {"out": out_of(1, 3)}),
    ("ints", iop.BadTensorDtype, "grad_output has dtype int64, expected float16, bfloat16, float32 or float64",
     [ones(3, dtype=np.int64), ones(3)], {}),
    ("bools", iop.BadTensorDtype, "input has dtype bool", [ones(3), ones(3, dtype=bool)], {}),
    ("complex", iop.BadTensorDtype, "input has dtype complex64", [ones(3), ones(3, dtype=np.complex64)], {}),
    ("long double", iop.BadTensorDtype, "grad_output has dtype",
     [ones(3, dtype=np.longdouble), ones(3, dtype=np.longdouble)], {}),
    ("objects", iop.BadTensorDtype, "input has dtype object", [ones(3), np.array([None] * 3)], {}),
    ("strings", iop.BadTensorDtype, "input has dtype", [ones(3), np.array(["a"] * 3)], {}),
    ("stride 0 out", iop.BadTensorStrides, "out has stride 0 on axis 0 of length 3", [ones(3), ones(3)],
     {"out": np.lib.stride_tricks.as_strided(out_of(1), (3,), (0,))}),
    ("self-overlapping out", iop.BadTensorStrides, "out overlaps itself", [ones(3, 4), ones(3, 4)],
     {"out": overlapping_rows()}),
    ("read-only out", iop.BadParam, "out is read-only", [ones(3), ones(3)], {"out": np.frombuffer(bytes(12), F)}),
    ("byte-swapped out", iop.BadParam, "out is byte-swapped", [ones(3), ones(3)],
     {"out": out_of(3, dtype=np.dtype(F).newbyteorder())}),
    ("unaligned out", iop.BadParam, "out is not aligned", [ones(3), ones(3)],
     {"out": np.zeros(13, np.uint8)[1:].view(F)}),
    ("accumulate without out", iop.BadParam, "accumulate=True without out", [ones(3), ones(3)], {"accumulate": True}),
    ("unknown device", iop.DeviceTypeNotSupported, "unknown device 'tpu'", [ones(3), ones(3)], {"device": "tpu"}),
    ("no such CPU", iop.DeviceNotFound, "'cpu:1' does not exist", [ones(3), ones(3)], {"device": "cpu:1"}),
    ("device no string", iop.BadParam, "device is 0", [ones(3), ones(3)], {"device": 0}),
    ("no threads", iop.BadParam, "num_threads is 0, expected a positive integer", [ones(3), ones(3)],
     {"num_threads": 0}),
    ("fractional threads", iop.BadParam, "num_threads is 1.5", [ones(3), ones(3)], {"num_threads": 1.5}),
    ("masked array", TypeError, "input is a MaskedArray", [ones(3), np.ma.masked_array(ones(3))], {}),
    ("matrix", TypeError, "grad_output is a matrix", [ones(2, 2).view(np.matrix), ones(2, 2)], {}),
    ("masked out", TypeError, "out is a MaskedArray", [ones(3), ones(3)], {"out": np.ma.masked_array(out_of(3))}),
    ("out no array", TypeError, "out is a list", [ones(3), ones(3)], {"out": [0, 0, 0]}),
    ("unknown keyword", TypeError, "unexpected keyword argument 'slope'", [ones(3), ones(3)], {"slope": 1}),
]

# What somebody new writes, and the sentence that should be enough to mend it. Calls: (id, exception, message, operator,
# args, keywords).
MISTAKES = [
    # a forgotten argument, or one too many
    ("one argument of two", TypeError, r"relu_backward\(\) missing required argument 'input'; it is called as "
     r"relu_backward\(grad_output, input\): the gradient of the result first", "relu_backward", [ones(3)], {}),
    ("none of two", TypeError, r"gelu_backward\(\) missing required argument 'grad_output'", "gelu_backward", [], {}),
    ("none of one", TypeError, r"silu\(\) missing required argument 'input'; it is called as silu\(input\)$", "silu",
     [], {}),
    ("only by keyword", TypeError, r"tanh_backward\(\) missing required argument 'grad_output'", "tanh_backward", [],
     {"input": ones(3)}),
    ("only out", TypeError, r"elu\(\) missing required argument 'input'", "elu", [], {"out": out_of(3)}),
    # numbers that are not floating
    ("list of integers", iop.BadTensorDtype, r"relu: input has dtype int64, expected float16, bfloat16, float32 or "
     r"float64; np.asarray\(input, np.float32\) is one", "relu", [[-1, 0, 1]], {}),
    ("lists of integers", iop.BadTensorDtype, r"grad_output has dtype int64.*; np.asarray\(grad_output, np.float32\)",
     "gelu_backward", [[1, 1], [0, 2]], {}),
    ("image of bytes", iop.BadTensorDtype, r"conv: input has dtype uint8.*; np.asarray\(input, np.float32\) is one",
     "conv", [ones(1, 3, 8, 8, dtype=np.uint8), ones(4, 3, 3, 3)], {}),
    ("an integer", iop.BadTensorDtype, r"sigmoid: input has dtype int64.*; np.asarray\(input, np.float32\) is one",
     "sigmoid", [2], {}),
    ("flags", iop.BadTensorDtype, r"silu_backward: input has dtype bool.*; np.asarray\(input, np.float32\) is one",
     "silu_backward", [ones(3), ones(3) > 0], {}),
    ("a list beside float32", iop.BadTensorDtype, r"input has dtype float32, expected float64 to match grad_output; "
     r"float64 is NumPy's default: np.asarray\(grad_output, input.dtype\) has that of input$", "gelu_backward",
     [[1.0, 1.0, 1.0], ones(3)], {}),
    ("float32 beside a list", iop.BadTensorDtype, r"input has dtype float64, expected float32.*: "
     r"np.asarray\(input, grad_output.dtype\) has that of grad_output$", "relu_backward",
     [ones(3), [1.0, 2.0, 3.0]], {}),
    ("a weight without a dtype", iop.BadTensorDtype, r"; float64 is NumPy's default: np.asarray\(weight, input.dtype\)",
     "conv", [ones(1, 3, 8, 8), np.ones((4, 3, 3, 3))], {}),
    ("lists of several lengths", iop.BadTensorShape, "gelu: input is no array: .*inhomogeneous", "gelu",
     [[[1.0], [1.0, 2.0]]], {}),
    # what is no array at all
    ("a generator", iop.BadTensorDtype, "relu: input is a generator, expected an array$", "relu", [(i for i in ())],
     {}),
    ("a set", iop.BadTensorDtype, "tanh_backward: input is a set, expected an array$", "tanh_backward",
     [ones(3), {1.0}], {}),
    ("a file's name", iop.BadTensorDtype, "softplus: input is a str, expected an array$", "softplus", ["x.npy"], {}),
    ("a dict of arrays", iop.BadTensorDtype, "elu: input is a dict, expected an array$", "elu", [{"x": ones(3)}], {}),
    ("a function", iop.BadTensorDtype, "mish: input is a builtin_function_or_method, expected an array", "mish", [abs],
     {}),
    # keywords, as other libraries have them or nearly right
    ("inplace", TypeError, r"relu\(\) got an unexpected keyword argument 'inplace'; out=input writes to input itself",
     "relu", [ones(3)], {"inplace": True}),
    ("output", TypeError, "unexpected keyword argument 'output'. Did you mean 'out'?", "silu", [ones(3)],
     {"output": out_of(3)}),
    ("approx", TypeError, "unexpected keyword argument 'approx'. Did you mean 'approximate'?", "gelu", [ones(3)],
     {"approx": "tanh"}),
    ("slope", TypeError, "argument 'slope'. Did you mean 'negative_slope'?", "leaky_relu_backward",
     [ones(3), ones(3)], {"slope": 0.2}),
    ("by place", TypeError, r"gelu\(\) takes 1 positional argument but 2 were given; approximate, out, device and "
     "num_threads go by keyword", "gelu", [ones(3), "tanh"], {}),
    # parameters
    ("slope in words", iop.BadParam, "negative_slope is '0.1', expected a number", "leaky_relu", [ones(3), "0.1"], {}),
    ("slope per channel", iop.BadParam, r"negative_slope is float32\(3,\), expected a number", "leaky_relu",
     [ones(3), ones(3)], {}),
    ("accumulate into", iop.BadParam, r"accumulate is float32\(3,\), expected True or False; the array to add to is "
     "given as out=", "relu_backward", [ones(3), ones(3)], {"accumulate": out_of(3)}),
    ("a flag in words", iop.BadParam, "self_is_result is 'no', expected True or False", "leaky_relu_backward",
     [ones(3), ones(3)], {"self_is_result": "no"}),
    ("an approximation as a flag", iop.BadParam, "approximate is True, expected 'none' or 'tanh'", "gelu", [ones(3)],
     {"approximate": True}),
    ("mask of names", iop.BadParam, r"conv_backward: output_mask\[0\] is 'input', expected True or False",
     "conv_backward", conv()[0], {"output_mask": ("input", "weight", "bias")}),
]

# The same of convolutions: (id, message, what is given).
CONV_MISTAKES = [
    ("input channels-last", r"is input channels-last \(NHWC\)\? np.moveaxis\(input, -1, 1\) would fit$",
     {"input": ones(2, 8, 8, 3)}),
    ("all channels-last", r"are input and grad_output channels-last \(NHWC\)\? np.moveaxis\(input, -1, 1\), "
     r"np.moveaxis\(grad_output, -1, 1\) would fit",
     {"input": ones(2, 8, 8, 3), "grad_output": ones(2, 6, 6, 4)}),
    ("weight of TensorFlow",
     r"is weight laid out as \(\*kernel, in, out\)\? np.transpose\(weight, \(3, 2, 0, 1\)\) would fit",
     {"weight": ones(5, 5, 3, 4), "grad_output": ones(2, 4, 4, 4)}),
    ("padding forgotten", "look at padding, stride and dilation: padding=1 would fit",
     {"grad_output": ones(2, 4, 8, 8)}),
    ("stride forgotten", "look at padding, stride and dilation: stride=2 would fit",
     {"grad_output": ones(2, 4, 3, 3)}),
    ("dilation forgotten", "look at padding, stride and dilation: dilation=2 would fit",
     {"grad_output": ones(2, 4, 4, 4)}),
    ("no such grad_output", "look at padding, stride and dilation, or at grad_output",
     {"grad_output": ones(2, 4, 40, 3)}),
    ("groups forgotten", "groups=3 would fit", {"weight": ones(6, 1, 3, 3), "grad_output": ones(2, 6, 6, 6)}),
    ("one image", r"is input one image without a batch\? input\[np.newaxis\] is a batch of one",
     {"input": ones(3, 8, 8), "grad_output": ones(4, 6, 6)}),
    ("exchanged", "are grad_output and input in each other's place?",
     {"input": ones(2, 4, 6, 6), "grad_output": ones(2, 3, 8, 8)}),
]


def of_input(row):
    """A mistake in a call on (grad_output, input) as one on (input,); None where it is about grad_output."""
    name, exception, message, args, keywords = row
    if "grad_output" in message or "accumulate" in keywords:
        return None
    if name.startswith("out ") and "shape" in message:  # nothing broadcasts
        args = [None, np.broadcast_to(args[1], np.broadcast(*args).shape)]
    return name, exception, message, args[1:], keywords


FORWARD = [*filter(None, map(of_input, ELEMENTWISE)),
           ("ints", iop.BadTensorDtype, "input has dtype int64, expected float16, bfloat16, float32 or float64",
            [ones(3, dtype=np.int64)], {}),
           ("accumulate", TypeError, "unexpected keyword argument 'accumulate'", [ones(3)],
            {"accumulate": True, "out": out_of(3)}),
           ("two arrays", TypeError, "positional arguments? but 5 were given", [ones(3)] * 5, {})]

SPECIFIC = [
    ("relu forward's out dtype", iop.BadTensorDtype, "relu: out has dtype float64, expected float32 to match input",
     "relu", [ones(3)], {"out": out_of(3, dtype=np.float64)}),
    ("relu forward's out shape", iop.BadTensorShape,
     r"relu: out has shape \(3,\), expected \(2, 3\), that of input", "relu", [ones(2, 3)], {"out": out_of(3)}),
    ("relu dtypes", iop.BadTensorDtype, "relu_backward: input has dtype float64, expected float32 to match grad_output",
     "relu_backward", [ones(3), ones(3, dtype=np.float64)], {}),
    ("relu out dtype", iop.BadTensorDtype, "out has dtype float64, expected float32", "relu_backward",
     [ones(3), ones(3)], {"out": out_of(3, dtype=np.float64)}),
    ("slope with self_is_result", iop.BadParam,
     "leaky_relu_backward: negative_slope is -0.1, expected at least 0 with self_is_result=True", "leaky_relu_backward",
     [ones(3), ones(3), -0.1], {"self_is_result": True, "out": out_of(3)}),
    ("slope no number", iop.BadParam, "negative_slope is 'steep', expected a number", "leaky_relu_backward",
     [ones(3), ones(3), "steep"], {}),
    ("slope beyond float64", iop.BadParam, "negative_slope is an integer beyond float64", "leaky_relu",
     [ones(3), -10**5000], {"out": out_of(3)}),
    ("leaky out dtype", iop.BadTensorDtype, "out has dtype datetime64.*, expected float16, bfloat16, float32, float64, "
     "an integer dtype, bool, complex64 or complex128$", "leaky_relu_backward", [ones(3), ones(3)],
     {"out": np.zeros(3, "datetime64[s]")}),
    ("too many positional", TypeError, "takes 3 positional arguments but 4 were given", "leaky_relu_backward",
     [ones(3), ones(3), 0.1, 0.2], {}),
    ("celu alpha", iop.BadParam, "celu: alpha is 0.0, expected above 0", "celu", [ones(3), 0], {"out": out_of(3)}),
    ("celu_backward alpha", iop.BadParam, "celu_backward: alpha is -1.0, expected above 0", "celu_backward",
     [ones(3), ones(3), -1], {"out": out_of(3)}),
    ("hardtanh bounds", iop.BadParam, "hardtanh: min_val is 2.0, expected at most max_val, 1.0", "hardtanh",
     [ones(3)], {"min_val": 2, "out": out_of(3)}),
    ("unknown approximate", iop.BadParam, "approximate is 'erf', expected 'none' or 'tanh'", "gelu_backward",
     [ones(3), ones(3)], {"approximate": "erf", "out": out_of(3)}),
]

CONV = [
    ("grad_output None", iop.NullPointer, "grad_output is None", {"grad_output": None}),
    ("input None", iop.NullPointer, "input is None", {"input": None}),
    ("weight None", iop.NullPointer, "weight is None", {"weight": None}),
    ("dtypes", iop.BadTensorDtype, "weight has dtype float64, expected float32 to match grad_output",
     {"weight": ones(4, 3, 3, 3, dtype=np.float64)}),
    ("int input", iop.BadTensorDtype, "input has dtype int64, expected float16",
     {"input": ones(2, 3, 8, 8, dtype=int)}),
    ("int grad_output", iop.BadTensorDtype, "grad_output has dtype int64",
     {"grad_output": ones(2, 4, 6, 6, dtype=int)}),
    ("weight ndim", iop.BadTensorShape, "weight has 2 dimensions", {"weight": ones(4, 3)}),
    ("6-d", iop.BadTensorShape, "weight has 6 dimensions, expected 3 to 5",
     {"weight": ones(4, 3, 1, 1, 1, 1), "input": ones(2, 3, 1, 1, 1, 1), "grad_output": ones(2, 4, 1, 1, 1, 1)}),
    ("input ndim", iop.BadTensorShape,
     "grad_output has 4 dimensions, expected 3 to match input", {"input": ones(2, 3, 8)}),
    ("grad_output ndim", iop.BadTensorShape, "grad_output has 3 dimensions, expected 4",
     {"grad_output": ones(2, 4, 6)}),
    ("batch", iop.BadTensorShape, "grad_output has length 3 on axis 0, expected 2 to match input",
     {"grad_output": ones(3, 4, 6, 6)}),
    ("out channels", iop.BadTensorShape, "grad_output has length 5 on axis 1, expected 4 to match weight",
     {"grad_output": ones(2, 5, 6, 6)}),
    ("in channels", iop.BadTensorShape, "weight has length 2 on axis 1, expected 3 to match input",
     {"weight": ones(4, 2, 3, 3)}),
    ("pixels", iop.BadTensorShape, "grad_output has length 7 on axis 3, expected 6 to match input",
     {"grad_output": ones(2, 4, 6, 7)}),
    ("kernel too large", iop.BadTensorShape, "weight spans 9 on axis 2, dilation included, expected at most 8",
     {"weight": ones(4, 3, 9, 9)}),
    ("dilated kernel too large", iop.BadTensorShape, "weight spans 9 on axis 2", {"dilation": 4}),
    ("empty kernel", iop.BadTensorShape, "weight has length 0 on axis 2, expected at least 1",
     {"weight": ones(4, 3, 0, 3)}),
    ("stride 0", iop.BadParam, "stride is 0 on axis 0, expected at least 1", {"stride": 0}),
    ("stride negative", iop.BadParam, "stride is -1 on axis 1", {"stride": (1, -1)}),
    ("dilation 0", iop.BadParam, "dilation is 0 on axis 0", {"dilation": 0}),
    ("padding negative", iop.BadParam, "padding is -1 on axis 1", {"padding": ((0, 0), (0, -1))}),
    ("groups 0", iop.BadParam, "groups is 0, expected at least 1", {"groups": 0}),
    ("groups do not divide input", iop.BadParam, "groups is 2, expected a divisor of the 3 channels on axis 1 of input",
     {"groups": 2}),
    ("groups do not divide weight", iop.BadParam,
     "groups is 3, expected a divisor of the 4 channels on axis 0 of weight",
     {"groups": 3, "weight": ones(4, 1, 3, 3)}),
    ("groups no integer", iop.BadParam, "groups is 1.5, expected an integer", {"groups": 1.5}),
    ("stride length", iop.BadParam, "expected an integer or 2 of them", {"stride": (1, 1, 1)}),
    ("stride no integer", iop.BadParam, "stride is 1.5", {"stride": 1.5}),
    ("padding word", iop.BadParam, "padding is 'full', expected 'same', 'valid' or integers", {"padding": "full"}),
    ("padding same far", iop.BadParam, "padding is ", {"padding": "same", "dilation": 2**62}),
    ("padding same strided", iop.BadParam, "padding 'same' with stride", {"padding": "same", "stride": 2}),
    ("padding length", iop.BadParam, "padding is", {"padding": (1,)}),
    ("padding triple", iop.BadParam, "padding is", {"padding": ((1, 1, 1), (1, 1, 1))}),
    ("huge stride", iop.BadParam, "expected 64-bit integers", {"stride": 2**70}),
    ("huge padding", iop.BadParam, "do not fit in 63 bits", {"padding": 2**62}),
    ("huge dilation", iop.BadParam, "do not fit in 63 bits", {"dilation": 2**62}),
    ("mask length", iop.BadParam, r"output_mask is \(True, True\), expected 3 flags", {"output_mask": (True, True)}),
    ("mask no tuple", iop.BadParam, "output_mask is 5, expected 3", {"output_mask": 5}),
    ("one out", iop.BadParam, r"out is float32\(2, 3, 8, 8\), expected 3 arrays", {"out": out_of(2, 3, 8, 8)}),
    ("out length", iop.BadParam, "out is .*, expected 3 arrays", {"out": (out_of(1),)}),
    ("out masked away", iop.BadParam, r"out\[0\] is given, but output_mask leaves grad_input out",
     {"output_mask": (False, True, True), "out": (out_of(2, 3, 8, 8), None, None)}),
    ("grad_input shape", iop.BadTensorShape, r"grad_input has shape \(2, 3, 8, 9\), expected \(2, 3, 8, 8\)",
     {"out": (out_of(2, 3, 8, 9), None, None)}),
    ("grad_weight shape", iop.BadTensorShape, "grad_weight has shape", {"out": (None, out_of(4, 3, 3), None)}),
    ("grad_bias shape", iop.BadTensorShape, "grad_bias has shape", {"out": (None, None, out_of(3))}),
    ("grad_weight dtype", iop.BadTensorDtype, "grad_weight has dtype float64, expected float32 to match weight",
     {"out": (None, out_of(4, 3, 3, 3, dtype=float), None)}),
    ("grad_bias stride 0", iop.BadTensorStrides, "grad_bias has stride 0",
     {"out": (None, None, np.lib.stride_tricks.as_strided(out_of(1), (4,), (0,)))}),
    ("accumulate without out", iop.BadParam, r"accumulate=True without out\[1\]",
     {"accumulate": True, "out": (out_of(2, 3, 8, 8), None, None)}),
    ("read-only out", iop.BadParam, "grad_bias is read-only", {"out": (None, None, np.frombuffer(bytes(16), F))}),
    ("device", iop.DeviceTypeNotSupported, "unknown device", {"device": "abacus"}),
]
SHARED = out_of(216)
CONV.append(("outputs overlap", iop.BadParam, "grad_bias overlaps grad_weight, expected outputs that share no memory",
             {"out": (None, SHARED[:108].reshape(4, 3, 3, 3), SHARED[100:104])}))

# iop.conv: the rows above that are about neither gradients nor their outputs, and its own. OUTPUT is what it writes to.
OUTPUT = (2, 4, 6, 6)
FORWARD_CONV = [
    *(row for row in CONV if "grad_" not in row[2] and not {"out", "output_mask", "accumulate"} & set(row[3])),
    ("bias shape", iop.BadTensorShape, "bias has length 3 on axis 0, expected 4 to match weight", {"bias": ones(3)}),
    ("bias ndim", iop.BadTensorShape, "bias has 2 dimensions, expected 1 to match weight", {"bias": ones(4, 1)}),
    ("bias dtype", iop.BadTensorDtype, "bias has dtype float64, expected float32 to match input",
     {"bias": ones(4, dtype=float)}),
    ("bias of ints", iop.BadTensorDtype, "bias has dtype int32, expected float16, bfloat16",
     {"bias": ones(4, dtype="i4")}),
    ("input dtype", iop.BadTensorDtype, "input has dtype int32, expected float16, bfloat16",
     {"input": ones(2, 3, 8, 8, dtype="i4")}),
    ("weight dtype", iop.BadTensorDtype, "weight has dtype float64, expected float32 to match input",
     {"weight": ones(4, 3, 3, 3, dtype=float)}),
    ("out batch", iop.BadTensorShape, "out has length 3 on axis 0, expected 2 to match input",
     {"out": out_of(3, 4, 6, 6)}),
    ("out channels", iop.BadTensorShape, "out has length 5 on axis 1, expected 4 to match weight",
     {"out": out_of(2, 5, 6, 6)}),
    ("out pixels", iop.BadTensorShape, "out has length 7 on axis 3, expected 6 to match input",
     {"out": out_of(2, 4, 6, 7)}),
    ("out ndim", iop.BadTensorShape, "out has 3 dimensions, expected 4 to match input", {"out": out_of(2, 4, 6)}),
    ("out dtype", iop.BadTensorDtype, "out has dtype float64, expected float32 to match input",
     {"out": out_of(*OUTPUT, dtype=float)}),
    ("out no array", TypeError, "out is a list", {"out": []}),
    ("out stride 0", iop.BadTensorStrides, "out has stride 0 on axis 0 of length 2",
     {"out": np.lib.stride_tricks.as_strided(out_of(144), OUTPUT, (0, 144, 24, 4))}),
    ("read-only out", iop.BadParam, "out is read-only", {"out": np.frombuffer(bytes(1152), F).reshape(OUTPUT)}),
    ("kernel too large", iop.BadTensorShape, "weight spans 9 on axis 2, dilation included, expected at most 8",
     {"weight": ones(4, 3, 9, 3), "out": out_of(*OUTPUT)}),
    ("groups and out", iop.BadParam, "groups is 0, expected at least 1", {"groups": 0, "out": out_of(*OUTPUT)}),
]


def check(exception, message, operator, args, keywords):
    outs = keywords.get("out")
    outs = [o for o in (outs if isinstance(outs, tuple) else (outs,)) if isinstance(o, np.ndarray)]
    before = [np.array(o) for o in outs]
    with pytest.raises(exception, match=message) as caught:
        getattr(iop, operator)(*args, **keywords)
    if isinstance(caught.value, iop.InfiniopError):
        assert EXCEPTIONS[caught.value.status] is type(caught.value)
        assert str(caught.value).startswith(f"{operator}: ")
    for now, then in zip(outs, before):
        np.testing.assert_array_equal(np.array(now), then)


@pytest.mark.parametrize("operator", [o.name for o in OPERATORS if o.backward])
@pytest.mark.parametrize(("name", "exception", "message", "args", "keywords"), ELEMENTWISE,
                         ids=[r[0] for r in ELEMENTWISE])
def test_elementwise(operator, name, exception, message, args, keywords):
    check(exception, message, operator, args, keywords)


@pytest.mark.parametrize("operator", [o.name for o in OPERATORS if not o.backward])
@pytest.mark.parametrize(("name", "exception", "message", "args", "keywords"), FORWARD, ids=[r[0] for r in FORWARD])
def test_forward(operator, name, exception, message, args, keywords):
    check(exception, message, operator, args, keywords)


@pytest.mark.parametrize(("name", "exception", "message", "operator", "args", "keywords"), SPECIFIC,
                         ids=[r[0] for r in SPECIFIC])
def test_specific(name, exception, message, operator, args, keywords):
    check(exception, message, operator, args, keywords)


@pytest.mark.parametrize(("name", "exception", "message", "given"), CONV, ids=[r[0] for r in CONV])
def test_conv(name, exception, message, given):
    args, keywords = conv(**given)
    check(exception, message, "conv_backward", args, keywords)


@pytest.mark.parametrize(("name", "exception", "message", "given"), FORWARD_CONV, ids=[r[0] for r in FORWARD_CONV])
def test_forward_conv(name, exception, message, given):
    args, keywords = conv(**given)
    check(exception, message, "conv", args[1:], keywords)


@pytest.mark.parametrize(("name", "exception", "message", "operator", "args", "keywords"), MISTAKES,
                         ids=[r[0] for r in MISTAKES])
def test_mistakes(name, exception, message, operator, args, keywords):
    check(exception, message, operator, args, keywords)


@pytest.mark.parametrize(("name", "message", "given"), CONV_MISTAKES, ids=[r[0] for r in CONV_MISTAKES])
def test_conv_mistakes(name, message, given):
    args, keywords = conv(**given)
    check((iop.BadTensorShape, iop.BadParam), f"; {message}", "conv_backward", args, keywords)
    if name.startswith(("input", "weight", "groups", "one")):  # the others are about grad_output
        check((iop.BadTensorShape, iop.BadParam), f"; {message}", "conv", args[1:], keywords)


def test_a_right_convolution_gets_no_hint():
    with pytest.raises(iop.BadTensorDtype, match=r"to match input$"):
        iop.conv(ones(2, 3, 8, 8), ones(4, 3, 3, 3), ones(4, dtype=np.float16))
    with pytest.raises(iop.BadTensorShape, match=r"expected \(2, 3, 8, 8\)[^;]*$"):
        iop.conv_backward(*conv()[0], out=(out_of(2, 3, 8, 9), None, None))


@pytest.mark.parametrize("number", ["abc", "0", "-1", "2.5", "4 threads"])
def test_threads_that_the_environment_misspells(number, monkeypatch):
    """A status in Python, in calls large enough to ask; and in all of a process that begins so."""
    x = ones(100_000)
    monkeypatch.setenv("INFINIOP_CY_NUM_THREADS", number)
    with pytest.raises(iop.BadParam, match=f"relu: INFINIOP_CY_NUM_THREADS is '{number}', expected a positive integer"):
        iop.relu(x[::2])
    with pytest.raises(iop.BadParam, match=f"relu: INFINIOP_CY_NUM_THREADS is '{number}'"):
        iop.relu(x)
    assert np.array_equal(iop.relu(x, num_threads=1), x)  # which goes before it
    with iop.threads(1):
        assert np.array_equal(iop.relu(x), x)


def test_threads_misspelt_from_the_start():
    program = "import numpy as np, infiniop_cy as iop; iop.relu(np.ones(3, np.float32))"
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False,
                         env=os.environ | {"INFINIOP_CY_NUM_THREADS": "all"})
    assert ran.stderr.splitlines()[-1] == ("infiniop_cy.status.BadParam: relu: INFINIOP_CY_NUM_THREADS is 'all', "
                                           "expected a positive integer")


NAMES = [("conv2d_backward", "conv_backward"), ("conv2d", "conv"), ("relu_backwards", "relu_backward"),
         ("LeakyReLUBackwardDescriptor", "LeakyReluBackwardDescriptor"), ("swish", "silu"),
         ("logsigmoid", "log_sigmoid"), ("ReLU", "relu"), ("GELU", "gelu"), ("gelu_grad", "gelu_backward"),
         ("Conv2d", "conv"), ("GELUBackwardDescriptor", "GeluBackwardDescriptor"), ("prelu", "leaky_relu"),
         ("set_num_threads", "threads"), ("TensorDescripter", "TensorDescriptor")]


@pytest.mark.parametrize(("name", "meant"), NAMES)
def test_names_are_suggested(name, meant):
    with pytest.raises(AttributeError, match=re.escape(f"no attribute '{name}'. Did you mean: '{meant}'?")):
        getattr(iop, name)


def test_no_name_is_suggested_where_none_is_near():
    with pytest.raises(AttributeError, match=r"no attribute 'attention'$"):
        iop.attention  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'tensor'$"):
        iop.tensor  # noqa: B018
    assert not hasattr(iop, "__path_of_nothing__")


def test_submodules_say_how_they_are_imported():
    program = "import infiniop_cy as iop; iop.testing"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.stderr.splitlines()[-1] == ("AttributeError: module 'infiniop_cy' has no attribute 'testing' "
                                           "before `import infiniop_cy.testing`")


@pytest.mark.parametrize("built", [None, "_core.cpython-39-x86_64-linux-gnu.so"])
@pytest.mark.parametrize("checkout", [True, False])
def test_importing_what_is_not_built(built, checkout, tmp_path):
    """In a checkout before its build, or with a module for another Python, or a damaged installation."""
    package = pathlib.Path(iop.__file__).parent
    shutil.copytree(package, tmp_path / "infiniop_cy", ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__"))
    if built:
        (tmp_path / "infiniop_cy/core" / built).touch()
    if checkout:
        (tmp_path / "setup.py").touch()
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", "import infiniop_cy"], capture_output=True, text=True,
                         check=False, cwd=tmp_path)
    sentence = ran.stderr.splitlines()[-1]
    assert sentence.startswith(f"ImportError: infiniop_cy in {tmp_path} ")
    assert ("is a checkout that is not built for Python 3." if checkout else "has no compiled module for") in sentence
    assert ("python -m pip install -e . or make test" if checkout else "Install it again") in sentence
    assert (f"it is built for another Python ({built})" in sentence) is bool(built)


LISTS = [((1, 1, 1, 1), "pads is (1, 1, 1, 1), expected an integer or 2 of them"), ("same", "pads is 'same'"),
         (((1, 1), (1, 1)), "pads is ((1, 1), (1, 1))"), (1.0, "pads is 1.0"), ([1], "pads is [1]")]


@pytest.mark.parametrize(("pads", "message"), LISTS, ids=[str(pads) for pads, _ in LISTS])
def test_lists_of_descriptors(pads, message):
    args, _ = conv()
    t = [iop.TensorDescriptor.from_array(a) for a in args]
    with iop.Handle() as handle, pytest.raises(iop.BadParam, match=re.escape(message)) as caught:
        iop.ConvBackwardDescriptor(handle, *t, None, pads, 1, 1, 1)
    assert "pads=1, strides=2 are for all axes, pads=(1, 0), strides=(2, 2) one per spatial axis" in str(caught.value)


def test_descriptors_hint_as_calls_do():
    t = [iop.TensorDescriptor(shape, "float32") for shape in ((2, 4, 6, 6), (2, 8, 8, 3), (4, 3, 3, 3))]
    with iop.Handle() as handle:
        for operator in (iop.ConvDescriptor, iop.ConvBackwardDescriptor):
            with pytest.raises(iop.BadTensorShape, match="is input channels-last"):
                operator(handle, *t, None, 0, 1, 1, 1)


SIGNATURES = {
    "TensorDescriptor": "(shape, dtype, strides=None)",
    "ReluDescriptor": "(handle, output, input)",
    "SigmoidBackwardDescriptor": "(handle, grad_input, input, grad_output)",
    "LeakyReluBackwardDescriptor": "(handle, grad_input, input, grad_output, *, negative_slope=0.01, "
                                   "self_is_result=False)",
    "GeluDescriptor": "(handle, output, input, *, approximate='none')",
    "ConvDescriptor": "(handle, output, input, weight, bias, pads, strides, dilations, groups)",
    "ConvBackwardDescriptor": "(handle, grad_output, input, weight, bias, pads, strides, dilations, groups)",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name):
    assert str(inspect.signature(getattr(iop, name))) == SIGNATURES[name]
    if name.startswith("Conv"):
        assert "pads=(1, 0), strides=(2, 2)" in getattr(iop, name).__doc__


def test_cuda_says_why_it_is_missing():
    from infiniop_cy.devices import cuda_problem
    if cuda_problem() is None:
        pytest.skip("a CUDA device is usable here")
    with pytest.raises(iop.DeviceTypeNotSupported, match="cannot be used: ") as caught:
        iop.relu_backward(ones(3), ones(3), device="cuda")
    assert cuda_problem() in str(caught.value)
    assert np.array_equal(iop.relu_backward(ones(3), ones(3), device="auto"), ones(3))


def test_statuses():
    """The values of infiniStatus_t, one exception each, and the Python type a caller would catch."""
    assert {s.name: int(s) for s in Status} == {
        "SUCCESS": 0, "INTERNAL_ERROR": 1, "NOT_IMPLEMENTED": 2, "BAD_PARAM": 3, "NULL_POINTER": 4,
        "DEVICE_TYPE_NOT_SUPPORTED": 5, "DEVICE_NOT_FOUND": 6, "DEVICE_NOT_INITIALIZED": 7,
        "DEVICE_ARCHITECTURE_NOT_SUPPORTED": 8, "BAD_TENSOR_DTYPE": 10, "BAD_TENSOR_SHAPE": 11,
        "BAD_TENSOR_STRIDES": 12, "INSUFFICIENT_WORKSPACE": 13}
    assert set(EXCEPTIONS) == set(Status) - {Status.SUCCESS}
    for error, kind in ((iop.InternalError, RuntimeError), (iop.NotImplementedOperator, NotImplementedError),
                        (iop.BadParam, ValueError), (iop.NullPointer, ValueError), (iop.DeviceNotFound, LookupError),
                        (iop.DeviceTypeNotSupported, ValueError), (iop.DeviceNotInitialized, RuntimeError),
                        (iop.DeviceArchitectureNotSupported, RuntimeError), (iop.BadTensorDtype, TypeError),
                        (iop.BadTensorShape, ValueError), (iop.BadTensorStrides, ValueError),
                        (iop.InsufficientWorkspace, ValueError)):
        assert issubclass(error, kind)
        assert issubclass(error, iop.InfiniopError)


def test_every_rule_has_a_message():
    from infiniop_cy.core._core import Rule
    assert {rule.name for rule in Rule} - {"PASSED"} == set(MESSAGES)
    assert all(int(rule) // 100 in EXCEPTIONS for rule in Rule if rule)
