"""Status codes, one exception per status, and the message of every rule that a call can break."""
from enum import IntEnum


class Status(IntEnum):
    """infiniStatus_t."""

    SUCCESS = 0
    INTERNAL_ERROR = 1
    NOT_IMPLEMENTED = 2
    BAD_PARAM = 3
    NULL_POINTER = 4
    DEVICE_TYPE_NOT_SUPPORTED = 5
    DEVICE_NOT_FOUND = 6
    DEVICE_NOT_INITIALIZED = 7
    DEVICE_ARCHITECTURE_NOT_SUPPORTED = 8
    BAD_TENSOR_DTYPE = 10
    BAD_TENSOR_SHAPE = 11
    BAD_TENSOR_STRIDES = 12
    INSUFFICIENT_WORKSPACE = 13


class InfiniopError(Exception):
    """Base of all errors of this library; ``.status`` is the Status."""

    status = Status.INTERNAL_ERROR


class InternalError(InfiniopError, RuntimeError):
    """A driver or compiler failed; its own text is in the message. Or the thread has too little stack."""


class NotImplementedOperator(InfiniopError, NotImplementedError):
    """The operator does not exist here."""

    status = Status.NOT_IMPLEMENTED


class BadParam(InfiniopError, ValueError):
    """A parameter out of range, overlapping tensors, or an output that cannot be written."""

    status = Status.BAD_PARAM


class NullPointer(InfiniopError, ValueError):
    """A required tensor, descriptor or address is None or 0."""

    status = Status.NULL_POINTER


class DeviceTypeNotSupported(InfiniopError, ValueError):
    """A kind of device that this build cannot use; the message says why."""

    status = Status.DEVICE_TYPE_NOT_SUPPORTED


class DeviceNotFound(InfiniopError, LookupError):
    """A device index out of range."""

    status = Status.DEVICE_NOT_FOUND


class DeviceNotInitialized(InfiniopError, RuntimeError):
    """A device used before it was set up, or after it was closed."""

    status = Status.DEVICE_NOT_INITIALIZED


class DeviceArchitectureNotSupported(InfiniopError, RuntimeError):
    """A device too old for the kernels."""

    status = Status.DEVICE_ARCHITECTURE_NOT_SUPPORTED


class BadTensorDtype(InfiniopError, TypeError):
    """A dtype that the operator does not take, or two that do not go together."""

    status = Status.BAD_TENSOR_DTYPE


class BadTensorShape(InfiniopError, ValueError):
    """Shapes that do not go together."""

    status = Status.BAD_TENSOR_SHAPE


class BadTensorStrides(InfiniopError, ValueError):
    """Strides by which an output would be written twice in one place."""

    status = Status.BAD_TENSOR_STRIDES


class InsufficientWorkspace(InfiniopError, ValueError):
    """A workspace smaller than the descriptor's workspace_size."""

    status = Status.INSUFFICIENT_WORKSPACE


EXCEPTIONS = {
    error.status: error
    for error in (InternalError, NotImplementedOperator, BadParam, NullPointer, DeviceTypeNotSupported, DeviceNotFound,
                  DeviceNotInitialized, DeviceArchitectureNotSupported, BadTensorDtype, BadTensorShape,
                  BadTensorStrides, InsufficientWorkspace)
}

# One per Rule of core/base/status.pxi. {arg}, {against}: names of arguments, each with .shape, .dtype and .strides
# (of_arg, of_against); axis, got, expected: numbers; constraint: from the operator's row, or a reason of the core.
MESSAGES = {
    "STACK_TOO_SMALL": "this thread has {got} bytes of stack left, expected {expected} (threading.stack_size sets it)",
    "PARAMETERS_CONTRADICT": "{constraint}",
    "PARTIAL_OVERLAP": "{arg} overlaps {against} without being the same, expected the same memory and layout, "
                       "or none in common",
    "STRIDE_NOT_POSITIVE": "{arg} is {got} on axis {axis}, expected at least 1",
    "DILATION_NOT_POSITIVE": "{arg} is {got} on axis {axis}, expected at least 1",
    "PADDING_NEGATIVE": "{arg} is {got} on axis {axis}, expected at least 0",
    "GROUPS_NOT_POSITIVE": "{arg} is {got}, expected at least 1",
    "GROUPS_DO_NOT_DIVIDE": "groups is {got}, expected a divisor of the {expected} channels on axis {axis} of {arg}",
    "OUTPUTS_OVERLAP": "{arg} overlaps {against}, expected outputs that share no memory",
    "TOO_LARGE": "sizes of {arg} do not fit in 63 bits",
    "ADDRESS_UNALIGNED": "{arg} is at an address that is no multiple of its {expected} bytes per element",
    "ALGORITHM_REFUSES": "{arg} names an algorithm that refuses: {constraint}",
    "NULL_DATA": "{arg} is None or 0, expected an array or an address",
    "DTYPE_UNSUPPORTED": "{arg} has dtype {of_arg.dtype}, expected float16, bfloat16, float32 or float64",
    "DTYPE_MISMATCH": "{arg} has dtype {of_arg.dtype}, expected {of_against.dtype} to match {against}",
    "ACCUMULATE_DTYPE": "{arg} has dtype {of_arg.dtype}, expected a floating one to accumulate into",
    "OUT_DTYPE_UNSUPPORTED": "{arg} has dtype {of_arg.dtype}, expected float16, bfloat16, float32, float64, an integer "
                             "dtype, bool, complex64 or complex128",
    "SHAPE_MISMATCH": "{arg} has shape {of_arg.shape}, expected {of_against.shape} to match {against}",
    "NDIM_UNSUPPORTED": "{arg} has {got} dimensions, expected 3 to 5: batch, channels and 1 to 3 spatial axes",
    "NDIM_MISMATCH": "{arg} has {got} dimensions, expected {expected} to match {against}",
    "SHAPE_NEGATIVE": "{arg} has length {got} on axis {axis}, expected at least 0",
    "AXIS_MISMATCH": "{arg} has length {got} on axis {axis}, expected {expected} to match {against}",
    "KERNEL_EMPTY": "{arg} has length 0 on axis {axis}, expected at least 1",
    "KERNEL_TOO_LARGE": "{arg} spans {got} on axis {axis}, dilation included, expected at most {expected}: "
                        "{against} with its padding",
    "OUT_ZERO_STRIDE": "{arg} has stride 0 on axis {axis} of length {got}, expected every element in its own place",
    "OUT_SELF_OVERLAP": "{arg} overlaps itself with shape {of_arg.shape} and strides {of_arg.strides}, "
                        "expected every element in its own place",
    "WORKSPACE_TOO_SMALL": "{arg} has {got} bytes, expected {expected}",
}


class _Unknown:
    """Stands for a tensor whose shape the failing call did not know."""

    shape = dtype = strides = "unknown"


_READ = ("grad_output", "input", "weight", "bias")


def _hint(rule, arg, against, tensors):
    """What to write instead, where that is plain."""
    kind = getattr(tensors.get(arg, _Unknown).dtype, "kind", "O")
    if rule.name == "DTYPE_UNSUPPORTED" and arg in _READ and kind in "iub":
        return f"; np.asarray({arg}, np.float32) is one"
    if rule.name == "DTYPE_MISMATCH" and arg in _READ and against in _READ:
        # What a list, or np.ones without a dtype, became; the other is of a dtype that somebody chose.
        wide = [name for name in (arg, against) if getattr(tensors[name].dtype, "name", "") == "float64"]
        if wide:
            other = against if wide == [arg] else arg
            return f"; float64 is NumPy's default: np.asarray({wide[0]}, {other}.dtype) has that of {other}"
    return ""


def explain(operator, rule, *, arg, against, axis, got, expected, tensors, constraint):
    """The exception for a broken rule: its class by the rule's status, its text from MESSAGES."""
    text = MESSAGES[rule.name].format(
        arg=arg, against=against, axis=axis, got=got, expected=expected,
        of_arg=tensors.get(arg, _Unknown), of_against=tensors.get(against, _Unknown), constraint=constraint)
    return EXCEPTIONS[Status(int(rule) // 100)](f"{operator}: {text}{_hint(rule, arg, against, tensors)}")
