"""Operator descriptors: create, workspace_size, calculate, destroy. One class per row of operators.py, and conv."""
from infiniop_cy.devices import Handle
from infiniop_cy.explain import conv_explanation
from infiniop_cy.functions import complete_parameters, formula_of, parameter_doc, per_axis, with_hint
from infiniop_cy.operators import OPERATORS
from infiniop_cy.status import BadParam, BadTensorShape, NullPointer
from infiniop_cy.verbose import ENABLED, log


class _Signature:
    """What inspect.signature and help() say of an operator's class: its parameters by name."""

    def __get__(self, instance, owner):
        from inspect import Parameter, Signature

        if owner.definition is None:
            raise AttributeError("__signature__")  # then it is that of __init__
        kind = Parameter.POSITIONAL_OR_KEYWORD
        return Signature([*(Parameter(name, kind) for name in ("handle", *owner.definition.tensors)),
                          *(Parameter(p.name, Parameter.KEYWORD_ONLY, default=p.default)
                            for p in owner.definition.parameters)])


class OperatorDescriptor:
    """A planned operator on one device; immutable, usable from several threads, reusable on any data."""

    _plan = None
    operator = ""

    def _open(self, handle):
        if handle is None:
            raise NullPointer(f"{self.operator}: handle is None")
        if not isinstance(handle, Handle):
            raise TypeError(f"{self.operator}: handle is a {type(handle).__name__}, expected a Handle")
        self.device, self.device_id = handle.device, handle.device_id
        return handle.backend

    @property
    def plan(self):
        if self._plan is None:
            raise NullPointer(f"{self.operator}: descriptor used after destroy()")
        return self._plan

    @property
    def workspace_size(self):
        """Bytes of workspace that calculate needs."""
        return self.plan.workspace_size

    def destroy(self):
        """Free the plan. Destroying twice is allowed; any other use raises NullPointer."""
        self._plan = None

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.destroy()


class ElementwiseDescriptor(OperatorDescriptor):
    """A descriptor of an elementwise operator."""

    definition = None  # an Operator of operators.py
    __signature__ = _Signature()

    def _create(self, handle, tensors, parameters):
        backend = self._open(handle)
        self.parameters = complete_parameters(self.definition, parameters)
        formula, values, refusal = formula_of(self.definition, self.parameters)
        self._plan = backend.ElementwisePlan(self.operator, formula, values, self.definition.promotes, tensors, refusal)


class ForwardDescriptor(ElementwiseDescriptor):
    """The forward direction of an elementwise operator, planned.

    Parameters
    ----------
    handle : Handle
        The device that it runs on.
    output, input : TensorDescriptor
        Of one shape; stride 0 broadcasts the input.
    **parameters
        Those of the function of the same name, with the same defaults.

    Raises
    ------
    BadTensorShape, BadTensorDtype, BadTensorStrides, BadParam, NullPointer
    """

    def __init__(self, handle, output, input, **parameters):
        self._create(handle, (output, input), parameters)

    def calculate(self, workspace, output, input, stream=None):
        """Compute on arrays or addresses laid out as described. workspace may be None where its size is 0.

        output may be exactly input; any other overlap raises BadParam. stream: as for the gradients' descriptors.
        """
        if ENABLED:
            log(self.operator, output=output, input=input)
        self.plan.calculate(workspace, output, input, stream=stream)


class BackwardDescriptor(ElementwiseDescriptor):
    """The gradient of an elementwise operator, planned.

    Parameters
    ----------
    handle : Handle
        The device that it runs on.
    grad_input, input, grad_output : TensorDescriptor
        Of one shape; stride 0 broadcasts an input.
    **parameters
        Those of the function of the same name, with the same defaults.

    Raises
    ------
    BadTensorShape, BadTensorDtype, BadTensorStrides, BadParam, NullPointer
    """

    def __init__(self, handle, grad_input, input, grad_output, **parameters):
        self._create(handle, (grad_input, input, grad_output), parameters)

    def calculate(self, workspace, grad_input, input, grad_output, stream=None):
        """Compute on arrays or addresses laid out as described. workspace may be None where its size is 0.

        grad_input may be exactly input or grad_output; any other overlap raises BadParam. On the CPU the
        result is there on return and `stream` is not used. On a GPU the call returns at once; stream: None (the
        default stream), an address, or a stream of PyCUDA, CuPy, torch or Numba.
        """
        if ENABLED:
            log(self.operator, grad_input=grad_input, input=input, grad_output=grad_output)
        self.plan.calculate(workspace, grad_input, input, grad_output, stream=stream)


_PER_AXIS = "; pads=1, strides=2 are for all axes, pads=(1, 0), strides=(2, 2) one per spatial axis"


def _lists(operator, input, pads, strides, dilations, groups):
    """(strides, padding pairs, dilations), one entry per spatial axis of the input, and groups."""
    axes = max(1, getattr(input, "ndim", 3) - 2)
    lists = []
    for name, value in (("pads", pads), ("strides", strides), ("dilations", dilations)):
        if value is None:
            raise NullPointer(f"{operator}: {name} is None")
        try:
            lists.append(per_axis(operator, name, value, axes))
        except BadParam as error:
            raise BadParam(f"{error}{_PER_AXIS}") from None
    groups, = per_axis(operator, "groups", groups, 1)
    return lists[1], tuple((p, p) for p in lists[0]), lists[2], groups


def _with_hint(error, input, weight, output, name, lists):
    shapes = [tensor.shape for tensor in (input, weight, output)]
    return with_hint(error, *shapes, name, dict(zip(("stride", "padding", "dilation", "groups"), lists)))


_CONV_DOC = """\
{operator}, planned.{results}

    Parameters
    ----------
    handle : Handle
        The device that it runs on.
    {tensors} : TensorDescriptor
        Shaped as for {operator}, of any strides.
    bias : TensorDescriptor or None
        That of the (C_out,) bias; None: there is none.
    pads, strides, dilations : int or sequence of int
        In pixels, an integer or one per spatial axis, as ``pads=(1, 0), strides=(2, 2), dilations=(1, 1)`` of an image;
        a pad is for both sides.
    groups : int
        Number of independent groups of channels.

    Raises
    ------
    BadTensorShape, BadTensorDtype, BadTensorStrides, BadParam, NullPointer
    """


class ConvBackwardDescriptor(OperatorDescriptor):
    __doc__ = _CONV_DOC.format(
        operator="conv_backward", results=" The gradients are contiguous, shaped like input, weight and bias.",
        tensors="grad_output, input, weight")

    operator = "conv_backward"

    def __init__(self, handle, grad_output, input, weight, bias, pads, strides, dilations, groups):
        backend = self._open(handle)
        lists = _lists(self.operator, input, pads, strides, dilations, groups)
        try:
            self._plan = backend.ConvPlan(grad_output, input, weight, bias, *lists)
        except (BadTensorShape, BadParam) as error:
            raise _with_hint(error, input, weight, grad_output, "grad_output", lists) from None

    def explain(self):
        """Which way each gradient is computed, its tiles, workspace and threads, and why, in a few lines of text."""
        return conv_explanation(self.plan.facts)

    def calculate(self, workspace, grad_input, grad_weight, grad_bias, grad_output, input, weight, stream=None):
        """Compute on arrays or addresses; a gradient that is None is left out.

        workspace: at least workspace_size bytes, else InsufficientWorkspace. No output may overlap anything.
        An exception of a signal handler ends a long call early, and leaves the outputs incomplete.
        stream: as for the elementwise descriptors.
        """
        if ENABLED:
            log(self.operator, grad_input=grad_input, grad_weight=grad_weight, grad_bias=grad_bias,
                grad_output=grad_output, input=input, weight=weight)
        self.plan.calculate(workspace, grad_input, grad_weight, grad_bias, grad_output, input, weight, stream=stream)


class ConvDescriptor(OperatorDescriptor):
    __doc__ = _CONV_DOC.format(operator="conv", results="", tensors="output, input, weight")

    operator = "conv"

    def __init__(self, handle, output, input, weight, bias, pads, strides, dilations, groups):
        backend = self._open(handle)
        lists = _lists(self.operator, input, pads, strides, dilations, groups)
        try:
            self._plan = backend.ForwardPlan(output, input, weight, bias, *lists)
        except (BadTensorShape, BadParam) as error:
            raise _with_hint(error, input, weight, output, "output", lists) from None

    def explain(self):
        """Which way the output is computed, its tiles, workspace and threads, and why, in a few lines of text."""
        return conv_explanation(self.plan.facts)

    def calculate(self, workspace, output, input, weight, bias, stream=None):
        """Compute on arrays or addresses; bias is None where the descriptor has none.

        workspace: at least workspace_size bytes, else InsufficientWorkspace. output may not overlap anything.
        An exception of a signal handler ends a long call early, and leaves the output incomplete.
        stream: as for the elementwise descriptors.
        """
        if ENABLED:
            log(self.operator, output=output, input=input, weight=weight, bias=bias)
        self.plan.calculate(workspace, output, input, weight, bias, stream=stream)


_CLASS_DOC = """\
{name}(handle, {tensors}{parameters})

    {operator}, planned: ``{expression}``.

    Parameters
    ----------
    handle : Handle
        The device that it runs on.
    {tensors} : TensorDescriptor
        Of one shape; stride 0 broadcasts an input.
{entries}
    Raises
    ------
    BadTensorShape, BadTensorDtype, BadTensorStrides, BadParam, NullPointer
    """


def _class_of(operator):
    name = operator.class_name + "Descriptor"
    return name, type(name, (BackwardDescriptor if operator.backward else ForwardDescriptor,), {
        "definition": operator, "operator": operator.name, "__module__": "infiniop_cy",
        "__doc__": _CLASS_DOC.format(
            name=name, operator=operator.name, expression=operator.expression, tensors=", ".join(operator.tensors),
            parameters="".join(f", {p.name}={p.default!r}" for p in operator.parameters),
            entries="".join(map(parameter_doc, operator.parameters)))})


DESCRIPTORS = dict(map(_class_of, OPERATORS))
