"""The public functions. An elementwise one is an object made from its row of operators.py."""
from functools import partial
from operator import index
from typing import NamedTuple

from numpy import bool_

from infiniop_cy import devices
from infiniop_cy.core import _core
from infiniop_cy.operators import OPERATORS, values_of
from infiniop_cy.status import BadParam, BadTensorShape, NullPointer
from infiniop_cy.verbose import ENABLED, brief, log, shown

_FORMULAS = {name: number for number, name in enumerate(_core.formula_names())}
_BACKWARD_DOC = """\
{name}(grad_output, input{positional}, *{keywords}, out=None, accumulate=False, device=None, num_threads=None)

    ``grad_input = {expression}``, with g = grad_output and x = input, elementwise.

    Parameters
    ----------
    grad_output, input : array_like
        Of float16, bfloat16 (ml_dtypes), float32 or float64{one_dtype}, whose shapes broadcast; any strides.
        NumPy's, or another library's that gives them away without a copy.
{parameters}    out : ndarray, optional
        Array of exactly the broadcast shape to write the result to; may be grad_output or input itself. Returned as
        it is.
    accumulate : bool, optional
        Add to what `out` holds, with one rounding, instead of overwriting it.
    {rest}"""
_FORWARD_DOC = """\
{name}(input{positional}, *{keywords}, out=None, device=None, num_threads=None)

    ``output = {expression}``, with x = input, elementwise.

    Parameters
    ----------
    input : array_like
        Of float16, bfloat16 (ml_dtypes), float32 or float64; any shape and strides. NumPy's, or another
        library's that gives it away without a copy.
{parameters}    out : ndarray, optional
        Array of exactly the input's shape to write the result to; may be input itself. Returned as it is.
    {rest}"""
_REST = """device : str, optional
        "cpu", "cuda", "cuda:1", ..., "auto"; None: where the data is.
    num_threads : int, optional
        At most this many threads for this call; see iop.threads.

    Returns
    -------
    ndarray
        Of the shape of `out`, and of the inputs' dtype where `out` is None.

    Raises
    ------
    BadTensorDtype, BadTensorShape, BadTensorStrides, BadParam, NullPointer
        See iop.Status. After any of them, `out` is unchanged.

    Notes
    -----
    Computed in float32 (float64 for float64) and rounded once, to nearest even; the same bits for any
    number of threads and any layout. {notes}

    References
    ----------
    {source}.
    """


def parameter_doc(parameter):
    """Its entry in the docstring, as numpydoc has it."""
    values = "{" + ", ".join(map(repr, parameter.choices)) + "}" if parameter.choices \
        else type(parameter.default).__name__
    return f"    {parameter.name} : {values}, optional\n        {parameter.doc}\n"


_OUT_HINT = "; the array to add to is given as out="


def _number(operator, name, value):
    if not isinstance(value, (str, bytes, bytearray)):  # float() would read them
        try:
            return float(value)
        except OverflowError:
            raise BadParam(f"{operator}: {name} is an integer beyond float64") from None
        except (TypeError, ValueError):
            pass
    raise BadParam(f"{operator}: {name} is {shown(value)}, expected a number")


def _flag(operator, name, value, instead=""):
    """True or False; an array or a word is a mistake for something else, whatever its truth value is."""
    if isinstance(value, (bool, bool_)) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise BadParam(f"{operator}: {name} is {shown(value)}, expected True or False{instead}")


def _missing(operator, name):
    """What Python says of its own functions, and how this one is called."""
    call = f"{operator.name}({', '.join(operator.inputs)})"
    means = ": the gradient of the result first, then what the function was computed from" * operator.backward
    return TypeError(f"{operator.name}() missing required argument {name!r}; it is called as {call}{means}")


def _keywords(operator):
    """What a call of an operator can only say by keyword."""
    return [*(p.name for p in operator.parameters if not p.positional), "out", *["accumulate"] * operator.backward,
            "device", "num_threads"]


def _meant(operator, name):
    """The keyword that a wrong one stands for, in words."""
    if name == "inplace":  # as torch has it
        return "; out=input writes to input itself"
    from difflib import get_close_matches
    known = [*_keywords(operator), *(p.name for p in operator.parameters if p.positional)]
    close = [word for word in known if name in word] or get_close_matches(name, known, n=1)
    return f". Did you mean {close[0]!r}?" if close else ""


def complete_parameters(operator, given):
    """All parameters of an operator, defaults filled in and values checked."""
    parameters = {parameter.name: parameter.default for parameter in operator.parameters}
    for name, value in given.items():
        if name not in parameters:
            raise TypeError(f"{operator.name}() got an unexpected keyword argument {name!r}{_meant(operator, name)}")
        parameters[name] = value
    for parameter in operator.parameters:
        value = parameters[parameter.name]
        if parameter.choices:
            if not isinstance(value, str) or value not in parameter.choices:
                expected = " or ".join(map(repr, parameter.choices))
                raise BadParam(f"{operator.name}: {parameter.name} is {value!r}, expected {expected}")
        elif isinstance(parameter.default, bool):
            parameters[parameter.name] = _flag(operator.name, parameter.name, value)
        else:
            parameters[parameter.name] = _number(operator.name, parameter.name, value)
    return parameters


def formula_of(operator, parameters):
    """(formula number, numbers for it, how to say that it refuses them) of complete parameters."""
    formula, values = values_of(operator, parameters)
    return _FORMULAS[formula], values, partial(operator.constraint.format, **parameters)


class ElementwiseOperator(_core.ElementwiseCall):
    """An elementwise operator; a callable with a name, a signature and a docstring, like a NumPy ufunc."""

    def __init__(self, operator):
        defaults = {parameter.name: parameter.default for parameter in operator.parameters}
        formula, values, _ = formula_of(operator, defaults)
        slots = [p.name for p in operator.parameters if not p.choices]
        parameters = sorted(operator.parameters, key=lambda p: not p.positional)
        super().__init__(
            formula, values, operator.promotes, not ENABLED,
            tuple((p.name, {value: _FORMULAS[p.formula(value, operator.backward)] for value in p.choices}, -1, False)
                  if p.choices else (p.name, None, slots.index(p.name), isinstance(p.default, bool))
                  for p in parameters),
            sum(p.positional for p in parameters))
        self.definition = operator
        self.__name__ = self.__qualname__ = operator.name
        self.__module__ = "infiniop_cy"
        self._positional = (*operator.inputs, *(p.name for p in operator.parameters if p.positional))
        self.__doc__ = (_BACKWARD_DOC if operator.backward else _FORWARD_DOC).format(
            name=operator.name, expression=operator.expression,
            rest=_REST.format(source=operator.source, notes=operator.notes),
            one_dtype="" if operator.promotes else ", both the same",
            positional="".join(f", {p.name}={p.default!r}" for p in operator.parameters if p.positional),
            keywords="".join(f", {p.name}={p.default!r}" for p in operator.parameters if not p.positional),
            parameters="".join(map(parameter_doc, operator.parameters)))

    def general(self, *args, out=None, device=None, num_threads=None, **given):
        """Any call that is not on plain arrays."""
        operator = self.definition
        if len(args) > len(self._positional):
            count = len(self._positional)
            raise TypeError(f"{operator.name}() takes {count} positional argument{'s' * (count > 1)} but {len(args)} "
                            f"were given; {', '.join(_keywords(operator)[:-1])} and num_threads go by keyword")
        for name, value in zip(self._positional, args):
            if name in given:
                raise TypeError(f"{operator.name}() got multiple values for argument {name!r}")
            given[name] = value
        for name in operator.inputs:
            if name not in given:
                raise _missing(operator, name)
        inputs = {name: given.pop(name) for name in operator.inputs}
        accumulate = operator.backward and _flag(operator.name, "accumulate", given.pop("accumulate", False), _OUT_HINT)
        formula, values, refusal = formula_of(operator, complete_parameters(operator, given))
        backend = devices.backend_for(operator.name, device, (*inputs, "out"), (*inputs.values(), out))
        if ENABLED:
            log(operator.name, **inputs, out=out, **given)
        return backend.elementwise(operator.name, formula, values, operator.promotes, tuple(inputs.values())[::-1], out,
                                   accumulate, num_threads, refusal)

    @property
    def __signature__(self):
        from inspect import Parameter, Signature

        def keyword(name, default):
            return Parameter(name, Parameter.KEYWORD_ONLY, default=default)

        parameters = self.definition.parameters
        options = {"out": None, "accumulate": False, "device": None, "num_threads": None}
        if not self.definition.backward:
            del options["accumulate"]
        return Signature(
            [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in self.definition.inputs]
            + [Parameter(p.name, Parameter.POSITIONAL_OR_KEYWORD, default=p.default)
               for p in parameters if p.positional]
            + [keyword(p.name, p.default) for p in parameters if not p.positional]
            + [keyword(name, default) for name, default in options.items()])

    def __repr__(self):
        return f"<infiniop_cy operator {self.definition.name}: {self.definition.expression}>"

    def __reduce__(self):
        return self.definition.name  # pickled by reference, like a function


ELEMENTWISE = {operator.name: ElementwiseOperator(operator) for operator in OPERATORS}


class ConvGradients(NamedTuple):
    """What conv_backward returns; None where output_mask left a gradient out."""

    grad_input: object
    grad_weight: object
    grad_bias: object


def _integer(value):
    """The int that value stands for; None where it is none (an array of several has __index__ too)."""
    try:
        return index(value)
    except TypeError:
        return None


def per_axis(operator, name, value, axes):
    """An integer, or one per spatial axis, as a tuple of one per axis."""
    values = _core.plain_integers(value, axes)
    if values is not None:
        return values
    single = _integer(value)
    try:
        values = (single,) * axes if single is not None else tuple(map(_integer, value))
    except TypeError:
        values = ()
    if len(values) != axes or None in values:
        raise BadParam(f"{operator}: {name} is {value!r}, expected an integer or {axes} of them")
    return _int64(operator, name, values, values)


def _int64(operator, name, value, integers):
    if not (-2**63 <= min(integers) and max(integers) < 2**63):
        raise BadParam(f"{operator}: {name} is {value!r}, expected 64-bit integers")
    return value


def padding_pairs(operator, padding, kernel, stride, dilation):
    """Padding in any of its forms as one (before, after) pair per spatial axis."""
    axes = len(kernel)
    if isinstance(padding, str):
        if padding == "valid":
            return ((0, 0),) * axes
        if padding != "same":
            raise BadParam(f"{operator}: padding is {padding!r}, expected 'same', 'valid' or integers")
        if any(s != 1 for s in stride):
            raise BadParam(f"{operator}: padding 'same' with stride {stride}, expected stride 1")
        totals = [d * (k - 1) for k, d in zip(kernel, dilation)]
        return _int64(operator, "padding", tuple((t // 2, t - t // 2) for t in totals), totals)
    if _integer(padding) is not None:
        return tuple((p, p) for p in per_axis(operator, "padding", padding, axes))
    try:
        pairs = tuple(tuple(map(_integer, p)) if hasattr(p, "__len__") else (_integer(p),) * 2 for p in padding)
    except TypeError:
        pairs = ()
    if len(pairs) != axes or any(len(p) != 2 or None in p for p in pairs):
        raise BadParam(f"{operator}: padding is {padding!r}, expected an integer, {axes} integers, "
                       f"{axes} (before, after) pairs, 'same' or 'valid'")
    return _int64(operator, "padding", pairs, [n for pair in pairs for n in pair])


def geometry(operator, weight_shape, stride, padding, dilation, groups):
    """(stride, padding pairs, dilation), one entry per spatial axis of weights of this shape, and groups."""
    if not 3 <= len(weight_shape) <= 5:
        raise BadTensorShape(f"{operator}: weight has {len(weight_shape)} dimensions, expected 3 to 5: "
                             "output and input channels and 1 to 3 spatial axes")
    axes = len(weight_shape) - 2
    plain = _core.plain_geometry(axes, stride, padding, dilation, groups)
    if plain is not None:
        return plain
    groups, = per_axis(operator, "groups", groups, 1)
    stride, dilation = per_axis(operator, "stride", stride, axes), per_axis(operator, "dilation", dilation, axes)
    return stride, padding_pairs(operator, padding, weight_shape[2:], stride, dilation), dilation, groups


def output_extents(input, weight, stride, pairs, dilation):
    """Pixels of the output along each spatial axis, of the shapes of input and weight; below 1: no window fits."""
    return tuple((n + sum(pair) - d * (k - 1) - 1) // s + 1
                 for n, k, s, pair, d in zip(input[2:], weight[2:], stride, pairs, dilation))


def _three(name, value, what):
    if not isinstance(value, (tuple, list)) or len(value) != 3:
        raise BadParam(f"conv_backward: {name} is {brief(value)}, expected 3 {what}")
    return value


def conv_backward(grad_output, input, weight, *, stride=1, padding=0, dilation=1, groups=1,
                  output_mask=(True, True, True), out=(None, None, None), accumulate=False, device=None,
                  num_threads=None):
    """Gradients of a 1-, 2- or 3-dimensional convolution (cross-correlation, as in every framework).

    Parameters
    ----------
    grad_output : array_like of shape ``(N, C_out, *out_shape)``
        ``out_shape = (in_shape + before + after - dilation*(kernel_shape - 1) - 1) // stride + 1``. All arrays are of
        one dtype, float16, bfloat16 (ml_dtypes), float32 or float64, and of any strides.
    input : array_like of shape ``(N, C_in, *in_shape)``
    weight : array_like of shape ``(C_out, C_in/groups, *kernel_shape)``
    stride, dilation : int or tuple of int, optional
        Window step and tap distance in pixels, an integer or one per spatial axis, at least 1.
    padding : int, tuple or str, optional
        Pixels of zeros around input: an integer, one per spatial axis, (before, after) pairs, "valid" (none) or "same"
        (out_shape = in_shape; stride 1 only; the odd pixel goes after).
    groups : int, optional
        Number of independent groups of channels; divides C_in and C_out.
    output_mask : tuple of 3 bool, optional
        Which of (grad_input, grad_weight, grad_bias) to compute.
    out : tuple of 3 ndarray or None, optional
        Arrays to write them to, or None for new ones. Must share no memory with each other.
    accumulate : bool, optional
        Add to what `out` holds, with one rounding. Batches cut into pieces and accumulated into float32 or float64 give
        the bits of the whole.
    device, num_threads : optional
        As for the other operators.

    Returns
    -------
    ConvGradients
        (grad_input, grad_weight, grad_bias), shaped like input, weight and (C_out,); None where left out.

    Raises
    ------
    BadTensorDtype, BadTensorShape, BadTensorStrides, BadParam, NullPointer
        After any of them, `out` is unchanged. An exception of a signal handler, such as KeyboardInterrupt, ends a long
        call early; `out` is then incomplete.

    Notes
    -----
    Accumulated in float32 (float64 for float64), rounded once. Pixels of input that no window touches get 0.
    Subnormal bfloat16 numbers may count as 0 (docs/convolution.md).

    References
    ----------
    torch.ops.aten.convolution_backward, infiniopConvBackward.
    """
    given = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return _conv_gradients(grad_output, input, weight, given, output_mask, out, accumulate, device, num_threads)


_MASKS = tuple(f"output_mask[{i}]" for i in range(3))
_BACKWARD_ARRAYS = ("grad_output", "input", "weight", *(f"out[{i}]" for i in range(3)))


def _require(operator, **arrays):
    for name, value in arrays.items():
        if value is None:
            raise NullPointer(f"{operator}: {name} is None")


def _conv_gradients(grad_output, input, weight, given, output_mask, out, accumulate, device, num_threads):
    _require("conv_backward", grad_output=grad_output, input=input, weight=weight)
    accumulate = _flag("conv_backward", "accumulate", accumulate, _OUT_HINT)
    mask = output_mask
    if not _core.plain_flags(mask, 3):
        flags = zip(_MASKS, _three("output_mask", mask, "flags"))
        mask = tuple([_flag("conv_backward", name, flag) for name, flag in flags])
    outs = (None,) * 3 if out is None else tuple(_three("out", out, "arrays or None"))
    backend = devices.backend_for("conv_backward", device, _BACKWARD_ARRAYS, (grad_output, input, weight, *outs))
    try:
        stride, pairs, dilation, groups = geometry(
            "conv_backward", backend.shape_of(weight, "conv_backward", "weight"), **given)
        if ENABLED:
            log("conv_backward", grad_output=grad_output, input=input, weight=weight, stride=stride, padding=pairs,
                dilation=dilation, groups=groups, output_mask=mask)
        return ConvGradients(*backend.conv_backward(grad_output, input, weight, stride, pairs, dilation, groups, mask,
                                                    outs, accumulate, num_threads))
    except (BadTensorShape, BadParam) as error:
        shapes = _shapes(backend, "conv_backward", input=input, weight=weight, grad_output=grad_output)
        raise with_hint(error, *shapes, "grad_output", given) from None


def conv(input, weight, bias=None, *, stride=1, padding=0, dilation=1, groups=1, out=None, device=None,
         num_threads=None):
    """The 1-, 2- or 3-dimensional convolution (cross-correlation, as in every framework) that conv_backward
    differentiates.

    Parameters
    ----------
    input : array_like of shape ``(N, C_in, *in_shape)``
        All arrays are of one dtype, float16, bfloat16 (ml_dtypes), float32 or float64, and of any strides.
    weight : array_like of shape ``(C_out, C_in/groups, *kernel_shape)``
    bias : array_like of shape (C_out,), optional
    stride, padding, dilation, groups : optional
        As for conv_backward.
    out : ndarray of shape ``(N, C_out, *out_shape)``, optional
        Array to write the result to, of any layout; returned itself. What it shares with the inputs is copied first.
    device, num_threads : optional
        As for the other operators.

    Returns
    -------
    ndarray of shape ``(N, C_out, *out_shape)``
        Contiguous, where
        ``out_shape = (in_shape + before + after - dilation*(kernel_shape - 1) - 1) // stride + 1``.

    Raises
    ------
    BadTensorDtype, BadTensorShape, BadTensorStrides, BadParam, NullPointer
        After any of them, `out` is unchanged. A signal handler's exception ends a long call early.

    Notes
    -----
    Accumulated in float32 (float64 for float64), the bias last, and rounded once; the same bits for any number of
    threads, any layout and any cut of the batch. Padding is no term of a sum: an inf weight over it adds nothing.
    Subnormal bfloat16 numbers may count as 0 (docs/convolution.md).

    References
    ----------
    torch.nn.functional.conv1d, conv2d and conv3d; infiniopConv.

    Examples
    --------
    >>> import numpy as np
    >>> import infiniop_cy as iop
    >>> iop.conv(np.arange(9.0).reshape(1, 1, 3, 3), np.ones((1, 1, 2, 2)), np.array([100.0]))
    array([[[[108., 112.],
             [120., 124.]]]])
    """
    _require("conv", input=input, weight=weight)
    backend = devices.backend_for("conv", device, ("input", "weight", "bias", "out"), (input, weight, bias, out))
    given = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    try:
        stride, pairs, dilation, groups = geometry("conv", backend.shape_of(weight, "conv", "weight"), **given)
        if ENABLED:
            log("conv", input=input, weight=weight, bias=bias, stride=stride, padding=pairs, dilation=dilation,
                groups=groups)
        return backend.conv(input, weight, bias, stride, pairs, dilation, groups, out, num_threads)
    except (BadTensorShape, BadParam) as error:
        shapes = _shapes(backend, "conv", input=input, weight=weight, out=out)
        raise with_hint(error, *shapes, "out", given) from None


def _shapes(backend, operator, **arrays):
    return [None if array is None else backend.shape_of(array, operator, name) for name, array in arrays.items()]


def with_hint(error, input, weight, output, name, given):
    """The error of a convolution on these shapes, and what to look at, where something is found."""
    from infiniop_cy.hints import conv_hint  # needed by no call that is right
    hint = conv_hint(input, weight, output, name, **given)
    return type(error)(f"{error}; {hint}") if hint else error
