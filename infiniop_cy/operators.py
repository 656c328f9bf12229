"""The table of elementwise operators: one row each, for both directions. To add one: a row here, a formula in
kernels/formulas_*.h.

A row is what the formula alone does not say. From it follow the functions (relu, relu_backward), the descriptor
classes, the C functions, the types, the tests, the benchmark rows and the documentation.
"""
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
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
    of_gradient: bool = False  # the forward function has no such parameter
    second: float = -0.75      # of a number: what tests try besides the default

    def formula(self, value, backward):
        """Name of the formula that a choice selects."""
        return self.choices[value] + "_backward" * backward


@dataclass(frozen=True)
class Row:
    """One operator. `forward(m, x, **parameters)` is its function, with m offering exp, expm1, log1p, erfc, tanh, sqrt
    and pi (mpmath): the tests derive their references, and those of the gradient, from it."""

    name: str
    value: str
    gradient: str
    forward: Callable
    source: str
    parameters: tuple[Parameter, ...] = ()
    promotes: bool = False  # inputs of two dtypes promote, and `out` may have any dtype
    constraint: str = ""    # message where the formula refuses its parameters
    value_notes: str = ""
    notes: str = ""         # of the gradient
    kinks: tuple[float, ...] = ()       # where the forward has no derivative
    value_zeros: tuple[float, ...] = ()  # where the forward changes sign other than at 0
    zeros: tuple[float, ...] = ()       # ... and the derivative; errors around them are bounded absolutely
    # How published C clients spell the gradient's name, and the formula that they mean by it.
    spellings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Operator:
    """One direction of a row: what a call, a descriptor or a test is about."""

    row: Row
    backward: bool

    @cached_property
    def name(self):
        return self.row.name + "_backward" * self.backward

    @cached_property
    def class_name(self):
        """The name in CamelCase: ReluBackward."""
        return "".join(part.capitalize() for part in self.name.split("_"))

    @property
    def expression(self):
        """What it computes, from g = grad_output and x = input."""
        return self.row.gradient if self.backward else self.row.value

    @property
    def inputs(self):
        return ("grad_output", "input") if self.backward else ("input",)

    @property
    def tensors(self):
        """The operands in the order of descriptors."""
        return ("grad_input", "input", "grad_output") if self.backward else ("output", "input")

    @cached_property
    def parameters(self):
        return tuple(p for p in self.row.parameters if self.backward or not p.of_gradient)

    @property
    def notes(self):
        return self.row.notes if self.backward else self.row.value_notes

    @property
    def constraint(self):
        return self.row.constraint

    @property
    def promotes(self):
        return self.row.promotes

    @property
    def source(self):
        return self.row.source

    @property
    def forward(self):
        return self.row.forward

    @property
    def kinks(self):
        return self.row.kinks if self.backward else ()

    @property
    def zeros(self):
        return self.row.zeros if self.backward else self.row.value_zeros

    @property
    def spellings(self):
        return self.row.spellings if self.backward else ()

    @property
    def formulas(self):
        """Names of the formulas that compute it."""
        chosen = [p.formula(value, self.backward) for p in self.parameters if p.choices for value in p.choices]
        return chosen or [self.name]


ROWS = (
    Row("relu", "max(x, 0)", "x <= 0 ? 0 : g",
        forward=lambda m, x: x if x > 0 else 0 * x,
        source="torch.relu",
        value_notes="A NaN x gives NaN, and -0 gives -0, as in torch.",
        notes="A NaN x passes g. At x <= 0 the result is 0 whatever g is, inf and NaN included.",
        kinks=(0.0,),
        spellings=(("ReLUBackward", "relu_backward"), ("ReluBackWard", "relu_backward"))),
    Row("gelu", "x * Phi(x)", "g * (Phi(x) + x*phi(x))",
        forward=lambda m, x, approximate="none": (
            x * m.erfc(-x / m.sqrt(2)) / 2 if approximate == "none"
            # x/2 (1 + tanh u) without its cancellation for negative x
            else x / (1 + m.exp(-2 * m.sqrt(2 / m.pi) * (x + m.mpf("0.044715") * x**3)))),
        source="Hendrycks and Gimpel, Gaussian Error Linear Units (2016); torch.nn.functional.gelu",
        parameters=(Parameter(
            "approximate", "none",
            '"none": Phi and phi are the normal distribution and density. "tanh": x/2 * (1 + tanh(u)),\n'
            "        u = sqrt(2/pi)*(x + 0.044715*x**3), whose derivative is\n"
            "        (1 + tanh(u))/2 + x/2 * sech(u)**2 * sqrt(2/pi)*(1 + 0.134145*x**2).",
            choices={"none": "gelu", "tanh": "gelu_tanh"}),),
        value_notes="x = -inf gives 0, the limit (torch: NaN). The tail keeps relative accuracy.",
        notes="x = +inf gives g and x = -inf gives 0, the limits (torch: NaN). The tails keep relative accuracy.\n"
              "    The infiniop document prints the tanh form without the 1 in (1 + tanh(u))/2, which is wrong.",
        zeros=(-0.7518, -0.7525),
        spellings=(("GeLUBackward", "gelu_tanh_backward"), ("GeluBackWard", "gelu_tanh_backward"))),
    Row("leaky_relu", "x > 0 ? x : x*negative_slope", "x > 0 ? g : g*negative_slope",
        forward=lambda m, x, negative_slope=0.01, self_is_result=False: x if x > 0 else x * negative_slope,
        source="torch.nn.functional.leaky_relu, aclnnLeakyReluBackward",
        parameters=(
            Parameter("negative_slope", 0.01, "slope for x <= 0, kept in the compute type.", positional=True),
            Parameter("self_is_result", False, "whether `input` is the forward result; the slope may not be\n"
                                               "        negative then, since the sign would be lost.",
                      of_gradient=True)),
        promotes=True,
        constraint="negative_slope is {negative_slope}, expected at least 0 with self_is_result=True",
        value_notes="`out` may have any of these dtypes, an integer, bool or complex dtype: the result is cast, to\n"
                    "    integers by truncation, saturating at the ends of the range, NaN to 0.",
        notes="x = 0 and a NaN x are on the slope's side. Inputs of two dtypes promote (float16 with bfloat16 to\n"
              "    float32); `out` may have any of these, an integer, bool or complex dtype: the result is cast, to\n"
              "    integers by truncation, saturating at the ends of the range, NaN to 0.",
        kinks=(0.0,)),
    Row("sigmoid", "1 / (1 + exp(-x))", "g * s*(1 - s), s = sigmoid(x)",
        forward=lambda m, x: 1 / (1 + m.exp(-x)),
        source="torch.sigmoid",
        value_notes="x = -inf gives 0. Neither tail vanishes early.",
        notes="x is the forward input, not its result. Computed as exp(-|x|) / (1 + exp(-|x|))**2: no cancellation."),
)

OPERATORS = tuple(Operator(row, backward) for backward in (True, False) for row in ROWS)
BY_NAME = {operator.name: operator for operator in OPERATORS}


def values_of(operator, parameters):
    """(formula name, numbers for it) of a complete dict of parameters."""
    formula, values = operator.name, []
    for parameter in operator.parameters:
        value = parameters[parameter.name]
        if parameter.choices:
            formula = parameter.formula(value, operator.backward)
        else:
            values.append(float(value))
    return formula, tuple(values)
