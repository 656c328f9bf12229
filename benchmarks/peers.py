"""Other ways to compute each operator: statements over g, x and, preallocated, o.

One line per operator and peer; an operator without one is measured alone. A peer is imported only when asked for.
"""
import importlib.util
from math import pi, sqrt

import numpy as np

# Overload of torch.ops.aten, its arguments; torch has no gradient of sigmoid or tanh from x.
TORCH = {
    "relu_backward": ("threshold_backward", "g, x, 0", ""),
    "leaky_relu_backward": ("leaky_relu_backward", "g, x, {negative_slope}, {self_is_result}", ""),
    "gelu_backward": ("gelu_backward", "g, x, approximate={approximate!r}", ""),
    "sigmoid_backward": ("sigmoid_backward", "g, sigmoid(x)", "g, sigmoid(x, out=o)"),
    "tanh_backward": ("tanh_backward", "g, tanh(x)", "g, tanh(x, out=o)"),
    "silu_backward": ("silu_backward", "g, x", ""),
    "softplus_backward": ("softplus_backward", "g, x, {beta}, {threshold}", ""),
    "elu_backward": ("elu_backward", "g, {alpha}, 1, 1, False, x", ""),
    "selu_backward": ("elu_backward", "g, 1.6732632423543772, 1.0507009873554805, 1, False, x", ""),
    "celu_backward": ("elu_backward", "g, {alpha}, 1, 1 / {alpha}, False, x", ""),
    "mish_backward": ("mish_backward", "g, x", ""),
    "hardswish_backward": ("hardswish_backward", "g, x", ""),
    "hardsigmoid_backward": ("hardsigmoid_backward", "g, x", ""),
    "hardtanh_backward": ("hardtanh_backward", "g, x, {min_val}, {max_val}", ""),
    "relu6_backward": ("hardtanh_backward", "g, x, 0, 6", ""),
    "relu": ("relu", "x", ""),
    "leaky_relu": ("leaky_relu", "x, {negative_slope}", ""),
    "gelu": ("gelu", "x, approximate={approximate!r}", ""),
    "sigmoid": ("sigmoid", "x", ""),
    "silu": ("silu", "x", ""),
    "tanh": ("tanh", "x", ""),
    "softplus": ("softplus", "x, {beta}, {threshold}", ""),
    "elu": ("elu", "x, {alpha}", ""),
    "selu": ("elu", "x, 1.6732632423543772, 1.0507009873554805", ""),
    "celu": ("elu", "x, {alpha}, 1, 1 / {alpha}", ""),
    "mish": ("mish", "x", ""),
    "hardswish": ("hardswish", "x", ""),
    "hardsigmoid": ("hardsigmoid", "x", ""),
    "hardtanh": ("hardtanh", "x, {min_val}, {max_val}", ""),
    "relu6": ("hardtanh", "x, 0, 6", ""),
    "log_sigmoid": ("log_sigmoid", "x", ""),
}

NUMPY = {
    "relu_backward": lambda: "where(x <= 0, x.dtype.type(0), g)",
    "leaky_relu_backward": lambda negative_slope, self_is_result: f"where(x > 0, g, g * {negative_slope})",
    "gelu_backward": lambda approximate: (
        f"g * (ndtr(x) + x * exp(x * x * -0.5) * {1 / sqrt(2 * pi)})" if approximate == "none" else
        f"t = tanh({sqrt(2 / pi)} * (x + 0.044715 * x * x * x)); "
        f"g * (0.5 * (1 + t) + x * (1 - t * t) * ({sqrt(2 / pi) / 2} + {sqrt(2 / pi) / 2 * 0.134145} * x * x))"),
    "sigmoid_backward": lambda: "s = 1 / (1 + exp(-x)); g * s * (1 - s)",
}

JAX = {
    "relu_backward": "jax.nn.relu",
    "leaky_relu_backward": "lambda x: jax.nn.leaky_relu(x, {negative_slope})",
    "gelu_backward": "lambda x: jax.nn.gelu(x, approximate={approximate!r} == 'tanh')",
    "sigmoid_backward": "jax.nn.sigmoid",
}


def installed(name):
    return importlib.util.find_spec({"numpy": "numpy", "torch": "torch", "jax": "jax"}[name]) is not None


def parameters_of(case):
    return {p.name: case.parameters.get(p.name, p.default) for p in case.operator.parameters}


def to_torch(array):
    """The same memory, strides included, as a tensor."""
    import torch
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def torch_statements(case, threads):
    """(names, statement with out=, statement that allocates), None where torch has none."""
    if case.operator.name not in TORCH:
        return None
    import torch
    torch.set_num_threads(threads)
    name, arguments, out_arguments = TORCH[case.operator.name]
    given = parameters_of(case)
    operator = getattr(torch.ops.aten, name)
    names, allocating = {"f": operator.default, "sigmoid": torch.sigmoid, "tanh": torch.tanh}, arguments.format(**given)
    for out in ("grad_input", "out"):
        if out in operator.overloads():
            names["f_out"] = getattr(operator, out)
            return names, f"f_out({(out_arguments or arguments).format(**given)}, {out}=o)", f"f({allocating})"
    return names, f"f({allocating})", f"f({allocating})"  # there is none that takes out=


def numpy_statement(case):
    """(names, statement)"""
    if case.operator.name not in NUMPY:
        return None
    statement = NUMPY[case.operator.name](**parameters_of(case))
    names = {name: getattr(np, name) for name in ("where", "exp", "tanh")}
    if "ndtr" in statement:
        try:
            from scipy.special import ndtr
        except ImportError:
            return None
        names["ndtr"] = ndtr
    return names, statement


def jax_statement(case):
    """(names, statement); jitted, allocating, on all cores."""
    if case.operator.name not in JAX:
        return None
    import jax
    forward = eval(JAX[case.operator.name].format(**parameters_of(case)), {"jax": jax})
    return {"f": jax.jit(lambda g, x: jax.vjp(forward, x)[1](g)[0])}, "f(g, x).block_until_ready()"


def to_jax(array):
    import jax
    return jax.device_put(array)
