"""Candidates that need no code: torch, jax, formulas in NumPy, and this library itself.

A convolution is what each of them calls so. For the other operators torch and jax have one where they have a function
of its name: aten.<operator> if its arguments have the same names, else the gradient by autograd of
torch.nn.functional.<forward> or jax.nn.<forward>. What is named here is only what they call differently.
"""
import inspect
from collections.abc import Callable

import numpy as np

from infiniop_cy.check.calls import CONV_OUTPUTS, CONVOLUTIONS
from infiniop_cy.check.candidates import outputs_of
from infiniop_cy.check.frameworks import to_jax, to_numpy, to_torch
from infiniop_cy.core import _core
from infiniop_cy.operators import BY_NAME

NAMES = ("torch", "jax", "numpy", "infiniop_cy", "infiniop_cy-descriptors")


def load(name):
    return {"torch": Torch, "jax": Jax, "numpy": Formulas, "infiniop_cy": Functions,
            "infiniop_cy-descriptors": Descriptors}[name]()


# of torch.nn.functional, where the name is another
FORWARDS = {"log_sigmoid": "logsigmoid"}


def forward_name(operator):
    return operator.removesuffix("_backward")


def differ_from_default(operator, parameters):
    defaults = {p.name: p.default for p in BY_NAME[operator].parameters}
    return {name: value for name, value in parameters.items() if value != defaults[name]}


# torch's gradients of another name, or from other arguments
ATEN = {"relu_backward": ("threshold_backward", lambda torch, g, x: (g, x, 0)),
        "sigmoid_backward": ("sigmoid_backward", lambda torch, g, x: (g, torch.sigmoid(x)))}


def _alike(call, who):
    """The padding of either side, one number per axis."""
    if any(a != b for a, b in call.parameters["padding"]):
        raise NotImplementedError(f"{who} pads alike on both sides")
    return [a for a, _ in call.parameters["padding"]]


class Torch:
    """Functions and gradients of torch, on its CPU."""

    def __init__(self):
        import torch
        self.torch = torch

    def facts(self):
        return {"out": True, "threads": True, "files": [self.torch.version.__file__]}

    def _aten(self, operator):
        """(overload packet, function giving its arguments), or None."""
        aten = self.torch.ops.aten
        if not operator.endswith("_backward"):
            return None
        if operator in ATEN:
            name, arguments = ATEN[operator]
            return getattr(aten, name), lambda g, x, parameters: (arguments(self.torch, g, x), {})
        packet = getattr(aten, operator, None)
        if packet is None:
            return None
        named = {a.name: a.kwarg_only for a in packet.default._schema.arguments}
        if not {"grad_output", "self", *(p.name for p in BY_NAME[operator].parameters)} >= set(named):
            return None

        def arguments(g, x, parameters):
            values = {"grad_output": g, "self": x} | parameters
            return ([values[name] for name, keyword in named.items() if not keyword],
                    {name: values[name] for name, keyword in named.items() if keyword})
        return packet, arguments

    def offers(self, operator, parameters):
        if operator in CONVOLUTIONS or self._aten(operator):
            return None
        if self._functional(operator) is None:
            return f"torch has no {forward_name(operator)}"
        return None

    def _functional(self, operator):
        name = forward_name(operator)
        return getattr(self.torch.nn.functional, FORWARDS.get(name, name), None)

    def call(self, call, inputs, outputs):
        self.torch.set_num_threads(call.threads or self.torch.get_num_threads())
        tensors = [to_torch(array) for array in inputs.values()]
        if call.operator in CONVOLUTIONS:
            return (self._conv if call.operator == "conv" else self._conv_backward)(call, *tensors)
        parameters = {p.name: p.default for p in BY_NAME[call.operator].parameters} | call.parameters
        aten = self._aten(call.operator)
        if call.into and aten and hasattr(aten[0], "grad_input"):
            positional, keywords = aten[1](*tensors, parameters)
            aten[0].grad_input(*positional, **keywords, grad_input=self._target(outputs["grad_input"]))
            return outputs
        if aten:
            positional, keywords = aten[1](*tensors, parameters)
            return {"grad_input": to_numpy(aten[0](*positional, **keywords))}
        if len(tensors) == 1:
            return {"grad_input": to_numpy(self._functional(call.operator)(*tensors, **parameters))}
        g, x = tensors
        x = x.detach().requires_grad_()
        self._functional(call.operator)(x, **parameters).backward(g.expand(x.shape))
        return {"grad_input": to_numpy(x.grad)}

    def _target(self, array):
        if any(stride < 0 for stride in array.strides):
            raise NotImplementedError("torch has no negative strides")
        return to_torch(array)

    def _conv(self, call, x, w, bias=None):
        function = getattr(self.torch.nn.functional, f"conv{x.ndim - 2}d")
        return {"output": to_numpy(function(x, w, bias, **call.parameters | {"padding": _alike(call, "torch")}))}

    def _conv_backward(self, call, g, x, w):
        stride, dilation, groups = (call.parameters[name] for name in ("stride", "dilation", "groups"))
        found = self.torch.ops.aten.convolution_backward(
            g, x, w, [w.shape[0]], stride, _alike(call, "torch"), dilation, False, [0] * len(stride), groups,
            [True] * 3)
        return outputs_of("conv_backward", [to_numpy(a) for a in found])


# jax's values of parameters of the same name
JAX_VALUES = {"approximate": lambda value: value == "tanh"}


class Jax:
    """Functions of jax, and gradients by its own differentiation, compiled, on its CPU."""

    def __init__(self):
        import jax
        jax.config.update("jax_enable_x64", True)
        self.jax, self.compiled = jax, {}

    def facts(self):
        return {"out": False, "threads": None, "files": [self.jax.version.__file__]}

    def _forward(self, operator):
        return getattr(self.jax.nn, forward_name(operator), None)

    def offers(self, operator, parameters):
        if operator in CONVOLUTIONS:
            return None
        function = self._forward(operator)
        if function is None:
            return f"jax.nn has no {forward_name(operator)}"
        missing = set(differ_from_default(operator, parameters)) - set(inspect.signature(function).parameters)
        return f"jax.nn.{forward_name(operator)} takes no {', '.join(missing)}" if missing else None

    def call(self, call, inputs, outputs):
        arrays = [to_jax(array) for array in inputs.values()]
        if call.operator in CONVOLUTIONS:
            return (self._conv if call.operator == "conv" else self._conv_backward)(call, *arrays)
        key = call.operator, *sorted(call.parameters.items())
        if key not in self.compiled:
            function = self._forward(call.operator)
            taken = inspect.signature(function).parameters
            complete = {p.name: p.default for p in BY_NAME[call.operator].parameters} | call.parameters
            given = {name: JAX_VALUES.get(name, lambda v: v)(value) for name, value in complete.items()
                     if name in taken}
            self.compiled[key] = self.jax.jit(
                (lambda g, x: self.jax.vjp(lambda v: function(v, **given), x)[1](g)[0]) if len(arrays) > 1
                else lambda x: function(x, **given))
        if len(arrays) == 1:
            return {"grad_input": to_numpy(self.compiled[key](*arrays))}
        g, x = arrays
        shape = np.broadcast_shapes(g.shape, x.shape)
        broadcast = self.jax.numpy.broadcast_to
        return {"grad_input": to_numpy(self.compiled[key](broadcast(g, shape), broadcast(x, shape)))}

    def _convolved(self, call, x, w):
        return self.jax.lax.conv_general_dilated(
            x, w, call.parameters["stride"], call.parameters["padding"], rhs_dilation=call.parameters["dilation"],
            feature_group_count=call.parameters["groups"], precision="highest")

    def _conv(self, call, x, w, bias=None):
        """jax.lax has no bias: it is added as in flax, to the rounded result."""
        result = self._convolved(call, x, w)
        return {"output": to_numpy(result if bias is None else result + bias.reshape(-1, *(1,) * (x.ndim - 2)))}

    def _conv_backward(self, call, g, x, w):
        # XLA compiles anew for every geometry, which takes most of the time: both gradients in one go.
        def gradients(g, x, w):
            return self.jax.vjp(lambda x, w: self._convolved(call, x, w), x, w)[1](g)
        return outputs_of("conv_backward", list(map(to_numpy, self.jax.jit(gradients)(g, x, w))))


def _gelu(g, x, approximate="none"):
    if approximate == "tanh":
        c = x.dtype.type(0.7978845608028654)
        t = np.tanh(c * (x + x.dtype.type(0.044715) * x * x * x))
        return g * (x.dtype.type(0.5) * (1 + t)
                    + x.dtype.type(0.5) * x * (1 - t * t) * c * (1 + x.dtype.type(0.134145) * x * x))
    from scipy.special import erf
    half, root = x.dtype.type(0.5), x.dtype.type(0.7071067811865476)
    density = x.dtype.type(0.3989422804014327) * np.exp(-half * x * x)
    return g * (half * (1 + erf(x * root).astype(x.dtype)) + x * density)


def _sigmoid(g, x):
    s = 1 / (1 + np.exp(-x))
    return g * s * (1 - s)


def _relu(g, x):
    return g * (x > 0)


def _leaky_relu(g, x, negative_slope=0.01):
    return np.where(x > 0, g, g * x.dtype.type(negative_slope))


def _conv(input, weight, bias=None, *, stride, padding, dilation, groups):
    """A matrix product per tap and group, added up in the output."""
    padded = np.pad(input, ((0, 0), (0, 0), *padding))
    out = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(padded.shape[2:], weight.shape[2:], stride, dilation)]
    result = np.zeros((len(input), len(weight), *out), input.dtype)
    cout, cin = len(weight) // groups, weight.shape[1]
    for group, *tap in np.ndindex(groups, *weight.shape[2:]):
        window = (slice(k * d, k * d + (n - 1) * s + 1, s) for k, n, s, d in zip(tap, out, stride, dilation))
        part = slice(group * cout, (group + 1) * cout)
        product = np.tensordot(padded[(slice(None), slice(group * cin, (group + 1) * cin), *window)],
                               weight[(part, slice(None), *tap)], (1, 1))
        result[:, part] += np.moveaxis(product, -1, 1)
    return result if bias is None else result + bias.reshape(-1, *(1,) * len(out))


FORMULAS: dict[str, Callable] = {"relu_backward": _relu, "leaky_relu_backward": _leaky_relu, "gelu_backward": _gelu,
                                 "sigmoid_backward": _sigmoid, "conv": _conv}


class Formulas:
    """The formulas of textbooks in NumPy, computed in the arrays' own dtype: how a first version is written."""

    def facts(self):
        return {"out": False, "threads": None, "files": [__file__, np.version.__file__]}

    def offers(self, operator, parameters):
        if operator not in FORMULAS:
            return "no formula is written down here"
        missing = set(differ_from_default(operator, parameters) if operator in BY_NAME else ()) - set(
            inspect.signature(FORMULAS[operator]).parameters)
        return f"the formula has no {', '.join(missing)}" if missing else None

    def call(self, call, inputs, outputs):
        taken = inspect.signature(FORMULAS[call.operator]).parameters
        given = {name: value for name, value in call.parameters.items() if name in taken}
        name, = outputs
        return {name: np.asarray(FORMULAS[call.operator](*inputs.values(), **given))}


class Functions:
    """This library's functions."""

    def facts(self):
        return {"out": True, "threads": True, "some gradients": True, "files": [_core.__file__]}

    def offers(self, operator, parameters):
        return None

    def call(self, call, inputs, outputs):
        import infiniop_cy as iop
        keywords = {"out": next(iter(outputs.values()))}
        if call.operator == "conv_backward":
            keywords = {"out": tuple(map(outputs.get, CONV_OUTPUTS)),
                        "output_mask": tuple(name in outputs for name in CONV_OUTPUTS)}
        getattr(iop, call.operator)(*inputs.values(), **call.parameters, **keywords, num_threads=call.threads)
        return outputs


class Descriptors:
    """This library's descriptors."""

    def facts(self):
        return {"out": True, "threads": False, "asymmetric": False, "some gradients": True,
                "files": [_core.__file__]}

    def offers(self, operator, parameters):
        return None

    def call(self, call, inputs, outputs):
        import infiniop_cy as iop
        describe = iop.TensorDescriptor.from_array
        arrays = tuple(inputs.values())
        name = "".join(part.capitalize() for part in call.operator.split("_")) + "Descriptor"
        with iop.Handle("cpu") as handle:
            if call.operator in CONVOLUTIONS:
                forward, given = call.operator == "conv", call.parameters
                bias = inputs.get("bias") if forward else outputs.get("grad_bias")
                data = (outputs["output"], inputs["input"], inputs["weight"], bias) if forward else (
                    *map(outputs.get, CONV_OUTPUTS), *arrays)
                described = data[:3] if forward else arrays
                tensors = (*map(describe, described), None if bias is None else describe(bias),
                           _alike(call, "a descriptor"), given["stride"], given["dilation"], given["groups"])
                keywords = {}
            else:
                out = outputs["grad_input"]
                data = (out, *(np.broadcast_to(a, out.shape) for a in arrays[::-1]))
                keywords = call.parameters
                tensors = tuple(map(describe, data))
            with getattr(iop, name)(handle, *tensors, **keywords) as operator:
                operator.calculate(iop.empty_workspace(handle, operator.workspace_size), *data)
        return outputs
