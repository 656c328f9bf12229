"""Other ways to compute each operator: statements over g, x and, preallocated, o.

One line per operator and peer; an operator without one is measured alone. A peer is imported only when asked for.
"""
import importlib.util
from math import pi, sqrt

import numpy as np

# Overload of torch.ops.aten, its arguments; torch has no sigmoid gradient from x.
TORCH = {
    "relu_backward": ("threshold_backward", "g, x, 0", ""),
    "leaky_relu_backward": ("leaky_relu_backward", "g, x, {negative_slope}, {self_is_result}", ""),
    "gelu_backward": ("gelu_backward", "g, x, approximate={approximate!r}", ""),
    "sigmoid_backward": ("sigmoid_backward", "g, sigmoid(x)", "g, sigmoid(x, out=o)"),
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
    names = {"f": operator.default, "f_out": operator.grad_input, "sigmoid": torch.sigmoid}
    return (names, f"f_out({(out_arguments or arguments).format(**given)}, grad_input=o)",
            f"f({arguments.format(**given)})")


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
