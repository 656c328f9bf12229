"""A client of the infiniop C ABI, by ctypes: loads a library, finds its symbols, builds descriptors, runs operators.

Any library that follows the ABI will do, this one's or another. What it lacks is named: MissingSymbol. A call that
fails raises CStatus with the function's name and status.
"""
import ctypes
import itertools

import numpy as np

from infiniop_cy.dtypes import code_of
from infiniop_cy.operators import BY_NAME
from infiniop_cy.status import Status

VOID = ctypes.c_void_p
SIZE = ctypes.c_size_t


class MissingSymbol(LookupError):
    """The library does not export a function that the call needs."""


class CStatus(RuntimeError):
    """A function returned something other than INFINI_STATUS_SUCCESS. `.status` is the number."""

    def __init__(self, function, status):
        name = Status(status).name if status in [s.value for s in Status] else "an unknown status"
        super().__init__(f"{function} returned {status} ({name})")
        self.status = status


def address(array):
    """The pointer to an array's first element; NULL for None."""
    return VOID(0 if array is None else array.ctypes.data)


def spellings(operator):
    """The names that libraries use for an operator in their symbols: gelu_backward as GeluBackward, GeLUBackward and
    GELUBackward."""
    def of(part):
        return dict.fromkeys((part.capitalize(), part[:-2].capitalize() + part[-2:].upper() if len(part) > 2 else
                              part.upper(), part.upper()))
    *parts, last = operator.split("_")
    return ["".join(choice) + last.capitalize() for choice in itertools.product(*map(of, parts))]


def c_parameters(row, parameters, one_form=False):
    """(suffix of the create function, C arguments after its tensors). one_form: there is no V2 to choose a form by."""
    suffix, arguments = "", []
    for parameter in row.parameters:
        value = parameters.get(parameter.name, parameter.default)
        if not parameter.choices:
            arguments.append(ctypes.c_bool(value) if isinstance(parameter.default, bool) else ctypes.c_float(value))
        elif value != parameter.default and not one_form:
            suffix = "V2"
            arguments.append(ctypes.c_int(list(parameter.choices).index(value)))
    return suffix, arguments


class Library:
    """An open library. Close it by letting it go: its handle is destroyed with the process."""

    def __init__(self, path):
        self.path = path
        self.library = ctypes.CDLL(path)
        self.handle = None

    def has(self, name):
        return hasattr(self.library, name)

    def function(self, name):
        """The C function of that name. Raises MissingSymbol."""
        try:
            return getattr(self.library, name)
        except AttributeError:
            raise MissingSymbol(f"{self.path} has no symbol {name}") from None

    def call(self, name, *arguments):
        """Call a function that returns infiniStatus_t. Raises MissingSymbol, CStatus."""
        status = self.function(name)(*arguments)
        if status != Status.SUCCESS:
            raise CStatus(name, status)

    def open(self):
        """The handle of the current device, made once."""
        if self.handle is None:
            made = VOID()
            self.call("infiniopCreateHandle", ctypes.byref(made))
            self.handle = made
        return self.handle

    def name_of(self, operator, given=None):
        """The operator's name in this library's symbols, such as GeluBackward. given: the only one to accept.
        Raises MissingSymbol with all that was looked for."""
        names = [given] if given else spellings(operator)
        for name in names:
            if self.has(f"infiniopCreate{name}Descriptor"):
                return name
        tried = ", ".join(f"infiniopCreate{name}Descriptor" for name in names)
        raise MissingSymbol(f"{self.path} has no symbol {tried}")

    def tensor(self, array):
        """A tensor descriptor of an array's shape, dtype and strides."""
        n, made = array.ndim, VOID()
        strides = [s // array.itemsize for s in array.strides]
        self.call("infiniopCreateTensorDescriptor", ctypes.byref(made), SIZE(n), (SIZE * n)(*array.shape),
                  (ctypes.c_ssize_t * n)(*strides), code_of(array.dtype.name))
        return made

    def workspace(self, size):
        """Memory for a call: an array of `size` bytes, or None."""
        return np.empty(size, np.uint8) if size else None

    def run(self, name, suffix, tensors, extra, data):
        """Create, ask for the workspace, run, destroy. suffix: of the create function (V2); tensors: arrays, or None
        for a null descriptor, in the order of create; extra: C arguments after them; data: arrays in the order of the
        run."""
        handle, operator = self.open(), VOID()
        descriptors = [None if t is None else self.tensor(t) for t in tensors]
        try:
            self.call(f"infiniopCreate{name}Descriptor{suffix}", handle, ctypes.byref(operator), *descriptors, *extra)
        finally:
            for descriptor in descriptors:
                if descriptor is not None:
                    self.call("infiniopDestroyTensorDescriptor", descriptor)
        try:
            size = SIZE()
            self.call(f"infiniopGet{name}WorkspaceSize", operator, ctypes.byref(size))
            workspace = self.workspace(size.value)
            self.call(f"infiniop{name}", operator, address(workspace), size, *map(address, data), None)
        finally:
            self.call(f"infiniopDestroy{name}Descriptor", operator)

    def elementwise(self, operator, parameters, out, *inputs, given=None, one_form=False):
        """out = the operator (of operators.py) of its inputs, with all tensors of one shape. one_form: the library
        chooses no form by a V2 call, but computes the one that the parameters name."""
        suffix, extra = c_parameters(BY_NAME[operator], parameters, one_form)
        tensors = (out, *inputs[::-1])
        self.run(self.name_of(operator, given), suffix, tensors, extra, tensors)

    def conv(self, outs, g, x, w, stride, pads, dilation, groups, given=None):
        """outs: grad_input, grad_weight, grad_bias, any of them None."""
        lists = [(ctypes.c_ssize_t * len(values))(*values) for values in (pads, stride, dilation)]
        name = self.name_of("conv_backward", given)
        self.run(name, "", (g, x, w, outs[2]), (*lists, SIZE(groups)), (*outs, g, x, w))

    def conv_forward(self, out, x, w, bias, stride, pads, dilation, given=None):
        """bias may be None. The shapes say how many groups there are."""
        lists = [(ctypes.c_ssize_t * len(values))(*values) for values in (pads, stride, dilation)]
        tensors = (out, x, w, bias)
        self.run(self.name_of("conv", given), "", tensors, (*lists, SIZE(len(stride))), tensors)
