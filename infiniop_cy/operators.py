"""The table of elementwise operators: one row each. To add one: a row here, a formula in kernels/formulas.h.

A row is what the formula alone does not say. From it follow the function, the descriptor class, the tests,
the benchmark rows and the documentation.
"""
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Parameter:
    """A parameter besides the tensors. A number or flag is passed to the formula, in the row's order; one
    with `choices` selects the formula instead."""

    name: str
    default: Any
    doc: str
    choices: dict[str, str] | None = None  # value: name of the formula
    positional: bool = False


@dataclass(frozen=True)
class Row:
    """One operator. `forward(m, x, **parameters)` is the function that it differentiates, with m offering
    exp, erfc, tanh, sqrt and pi (mpmath): the tests derive their references from it."""

    name: str
    gradient: str
    forward: Callable
    source: str
    parameters: tuple[Parameter, ...] = ()
    promotes: bool = False  # inputs of two dtypes promote, and `out` may have any dtype
    constraint: str = ""    # message where the formula refuses its parameters
    notes: str = ""
    kinks: tuple[float, ...] = ()  # where the forward has no derivative
    zeros: tuple[float, ...] = ()  # where the derivative changes sign, and its error is bounded absolutely
    # How published C clients spell its name, and the formula that they mean by it.
    spellings: tuple[tuple[str, str], ...] = ()


ROWS = (
    Row("relu_backward", "x <= 0 ? 0 : g",
        forward=lambda m, x: x if x > 0 else 0 * x,
        source="torch.relu",
        notes="A NaN x passes g. At x <= 0 the result is 0 whatever g is, inf and NaN included.",
        kinks=(0.0,),
        spellings=(("ReLUBackward", "relu_backward"), ("ReluBackWard", "relu_backward"))),
    Row("gelu_backward", "g * (Phi(x) + x*phi(x))",
        forward=lambda m, x, approximate="none": (
            x * m.erfc(-x / m.sqrt(2)) / 2 if approximate == "none"
            # x/2 (1 + tanh u) without its cancellation for negative x
            else x / (1 + m.exp(-2 * m.sqrt(2 / m.pi) * (x + m.mpf("0.044715") * x**3)))),
        source="Hendrycks and Gimpel, Gaussian Error Linear Units (2016); torch.nn.functional.gelu",
        parameters=(Parameter(
            "approximate", "none",
            '"none": Phi and phi are the normal distribution and density. "tanh": the derivative of\n'
            "        x/2 * (1 + tanh(u)), u = sqrt(2/pi)*(x + 0.044715*x**3), which is\n"
            "        (1 + tanh(u))/2 + x/2 * sech(u)**2 * sqrt(2/pi)*(1 + 0.134145*x**2).",
            choices={"none": "gelu_backward", "tanh": "gelu_tanh_backward"}),),
        notes="x = +inf gives g and x = -inf gives 0, the limits (torch: NaN). The tails keep relative accuracy.\n"
              "    The infiniop document prints the tanh form without the 1 in (1 + tanh(u))/2, which is wrong.",
        zeros=(-0.7518, -0.7525),
        spellings=(("GeLUBackward", "gelu_tanh_backward"), ("GeluBackWard", "gelu_tanh_backward"))),
    Row("leaky_relu_backward", "x > 0 ? g : g*negative_slope",
        forward=lambda m, x, negative_slope=0.01, self_is_result=False: x if x > 0 else x * negative_slope,
        source="torch.nn.functional.leaky_relu, aclnnLeakyReluBackward",
        parameters=(
            Parameter("negative_slope", 0.01, "slope for x <= 0, kept in the compute type.", positional=True),
            Parameter("self_is_result", False, "whether `input` is the forward result; the slope may not be\n"
                                               "        negative then, since the sign would be lost.")),
        promotes=True,
        constraint="negative_slope is {negative_slope}, expected at least 0 with self_is_result=True",
        notes="x = 0 and a NaN x are on the slope's side. Inputs of two dtypes promote (float16 with bfloat16 to\n"
              "    float32); `out` may have any of these, an integer, bool or complex dtype: the result is cast, to\n"
              "    integers by truncation, saturating at the ends of the range, NaN to 0.",
        kinks=(0.0,)),
    Row("sigmoid_backward", "g * s*(1 - s), s = sigmoid(x)",
        forward=lambda m, x: 1 / (1 + m.exp(-x)),
        source="torch.sigmoid",
        notes="x is the forward input, not its result. Computed as exp(-|x|) / (1 + exp(-|x|))**2: no cancellation."),
)

BY_NAME = {row.name: row for row in ROWS}


def values_of(row, parameters):
    """(formula name, numbers for it) of a complete dict of parameters."""
    formula, values = row.name, []
    for parameter in row.parameters:
        value = parameters[parameter.name]
        if parameter.choices:
            formula = parameter.choices[value]
        else:
            values.append(float(value))
    return formula, tuple(values)
