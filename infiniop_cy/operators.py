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
    kinks: tuple[float, ...] = ()       # where the forward has no derivative, by the parameters that tests try
    kinks_by: Callable | None = None    # (**parameters): those that parameters move
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

    def kinks_by(self, parameters):
        """Where the function has no derivative by these parameters."""
        moved = self.row.kinks_by(**parameters) if self.backward and self.row.kinks_by else ()
        return (*self.kinks, *moved)

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
            '"none": Phi and phi are the normal distribution and density. "tanh": ``x/2 * (1 + tanh(u))``,\n'
            "        ``u = sqrt(2/pi)*(x + 0.044715*x**3)``, whose derivative is\n"
            "        ``(1 + tanh(u))/2 + x/2 * sech(u)**2 * sqrt(2/pi)*(1 + 0.134145*x**2)``.",
            choices={"none": "gelu", "tanh": "gelu_tanh"}),),
        value_notes="x = -inf gives 0, the limit (torch: NaN). The tail keeps relative accuracy.",
        notes="x = +inf gives g and x = -inf gives 0, the limits (torch: NaN). The tails keep relative accuracy.\n"
              "    The infiniop document prints the tanh form without the 1 in ``(1 + tanh(u))/2``, which is wrong.",
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
              "    integers by truncation, saturating at the ends of the range, NaN to 0. Before, it is rounded to\n"
              "    the inputs' dtype, but not where it is accumulated into a wider `out`.",
        kinks=(0.0,)),
    Row("sigmoid", "1 / (1 + exp(-x))", "g * s*(1 - s), s = sigmoid(x)",
        forward=lambda m, x: 1 / (1 + m.exp(-x)),
        source="torch.sigmoid",
        value_notes="x = -inf gives 0. Neither tail vanishes early.",
        notes="x is the forward input, not its result. Computed as\n"
              "    ``exp(-|x|) / (1 + exp(-|x|))**2``: no cancellation."),
    Row("silu", "x * sigmoid(x)", "g * s*(1 + x*(1 - s)), s = sigmoid(x)",
        forward=lambda m, x: x / (1 + m.exp(-x)),
        source="Elfwing et al., Sigmoid-Weighted Linear Units (2017); torch.nn.functional.silu",
        value_notes="x = -inf gives 0, the limit (torch: NaN).",
        notes="x = +inf gives g and x = -inf gives 0, the limits (torch: NaN).",
        zeros=(-1.2785,)),
    Row("tanh", "tanh(x)", "g * (1 - tanh(x)**2)",
        forward=lambda m, x: m.tanh(x),
        source="torch.tanh",
        notes="x is the forward input, not its result. Computed as ``4*e / (1 + e)**2``,\n"
              "    ``e = exp(-2*|x|)``, which cancels nothing."),
    Row("softplus", "beta*x > threshold ? x : log(1 + exp(beta*x)) / beta",
        "beta*x > threshold ? g : g * sigmoid(beta*x)",
        forward=lambda m, x, beta=1.0, threshold=20.0: (
            x if x * beta > threshold
            else m.log1p(m.exp(x * beta)) / beta if x * beta < 0 else x + m.log1p(m.exp(-x * beta)) / beta),
        source="torch.nn.functional.softplus",
        parameters=(Parameter("beta", 1.0, "factor of x, kept in the compute type.", positional=True),
                    Parameter("threshold", 20.0, "of beta*x; above it the function is x, as torch's is.",
                              positional=True, second=3.0)),
        value_notes="x = -inf gives 0. The tail keeps relative accuracy.",
        notes="At beta*x = threshold the derivative is that of the logarithm.",
        kinks=(20.0, 3.0),
        kinks_by=lambda beta=1.0, threshold=20.0: (threshold / beta,)),
    Row("elu", "x > 0 ? x : alpha*(exp(x) - 1)", "x > 0 ? g : g*alpha*exp(x)",
        forward=lambda m, x, alpha=1.0: x if x > 0 else alpha * m.expm1(x),
        source="Clevert et al., Exponential Linear Units (2015); torch.nn.functional.elu",
        parameters=(Parameter("alpha", 1.0, "minus the limit at -inf.", positional=True),),
        value_notes="Relative accuracy around 0 too.",
        notes="x is the forward input, not its result. x = 0 is on the exponential's side; a NaN x gives NaN.",
        kinks=(0.0,)),
    Row("selu", "scale * (x > 0 ? x : alpha*(exp(x) - 1))", "g*scale * (x > 0 ? 1 : alpha*exp(x))",
        forward=lambda m, x: m.mpf("1.0507009873554804934193349852946") * (
            x if x > 0 else m.mpf("1.6732632423543772848170429916717") * m.expm1(x)),
        source="Klambauer et al., Self-Normalizing Neural Networks (2017); torch.nn.functional.selu",
        value_notes="alpha = 1.67326324235... and scale = 1.05070098735...",
        notes="alpha = 1.67326324235... and scale = 1.05070098735... x is the forward input; x = 0 is on the\n"
              "    exponential's side.",
        kinks=(0.0,)),
    Row("celu", "x > 0 ? x : alpha*(exp(x/alpha) - 1)", "x > 0 ? g : g*exp(x/alpha)",
        forward=lambda m, x, alpha=1.0: x if x > 0 else alpha * m.expm1(x / alpha),
        source="Barron, Continuously Differentiable Exponential Linear Units (2017); torch.nn.functional.celu",
        parameters=(Parameter("alpha", 1.0, "minus the limit at -inf, above 0.", positional=True, second=0.75),),
        constraint="alpha is {alpha}, expected above 0",
        value_notes="Relative accuracy around 0 too.",
        notes="A NaN x gives NaN."),
    Row("mish", "x * tanh(log(1 + exp(x)))", "g * (t + x*(1 - t**2)*sigmoid(x)), t = tanh(log(1 + exp(x)))",
        forward=lambda m, x: x * m.tanh(m.log1p(m.exp(x)) if x < 0 else x + m.log1p(m.exp(-x))),
        source="Misra, Mish (2019); torch.nn.functional.mish",
        value_notes="x = -inf gives 0, the limit (torch: NaN). The tail keeps relative accuracy.",
        notes="x = +inf gives g and x = -inf gives 0, the limits (torch: NaN). The tails keep relative accuracy.",
        zeros=(-1.1924,)),
    Row("hardswish", "x * min(max(x + 3, 0), 6) / 6", "x <= -3 ? 0 : x >= 3 ? g : g*(x/3 + 1/2)",
        forward=lambda m, x: 0 * x if x <= -3 else x if x >= 3 else x * (x + 3) / 6,
        source="Howard et al., Searching for MobileNetV3 (2019); torch.nn.functional.hardswish",
        value_notes="x = -inf gives 0, the limit (torch: NaN), and no product overflows.",
        notes="The slope at x = -3 is 0 and at x = 3 it is 1, as torch's.",
        kinks=(-3.0, 3.0)),
    Row("hardsigmoid", "min(max(x + 3, 0), 6) / 6", "-3 < x < 3 ? g/6 : 0",
        forward=lambda m, x: 0 * x if x <= -3 else 1 + 0 * x if x >= 3 else (x + 3) / 6,
        source="torch.nn.functional.hardsigmoid",
        notes="The slope at x = -3 and x = 3 is 0, as torch's; a NaN x passes g/6 (torch: 0).",
        kinks=(-3.0, 3.0)),
    Row("hardtanh", "min(max(x, min_val), max_val)", "min_val < x < max_val ? g : 0",
        forward=lambda m, x, min_val=-1.0, max_val=1.0: (
            min_val + 0 * x if x <= min_val else max_val + 0 * x if x >= max_val else x),
        source="torch.nn.functional.hardtanh",
        parameters=(Parameter("min_val", -1.0, "lower bound, kept in the compute type.", positional=True),
                    Parameter("max_val", 1.0, "upper bound, at least min_val.", positional=True, second=0.75)),
        constraint="min_val is {min_val}, expected at most max_val, {max_val}",
        notes="The slope at the bounds is 0, as torch's; a NaN x passes g.",
        kinks=(-1.0, 1.0, -0.75, 0.75),
        kinks_by=lambda min_val=-1.0, max_val=1.0: (min_val, max_val)),
    Row("relu6", "min(max(x, 0), 6)", "0 < x < 6 ? g : 0",
        forward=lambda m, x: 0 * x if x <= 0 else 6 + 0 * x if x >= 6 else x,
        source="torch.nn.functional.relu6",
        notes="The slope at 0 and 6 is 0, as torch's; a NaN x passes g.",
        kinks=(0.0, 6.0)),
    Row("log_sigmoid", "log(sigmoid(x))", "g * sigmoid(-x)",
        forward=lambda m, x: x - m.log1p(m.exp(x)) if x < 0 else -m.log1p(m.exp(-x)),
        source="torch.nn.functional.logsigmoid",
        value_notes="x = -inf gives -inf. The tail at +inf keeps relative accuracy.",
        notes="x is the forward input. The tail at +inf keeps relative accuracy."),
    Row("softsign", "x / (1 + |x|)", "g / (1 + |x|)**2",
        forward=lambda m, x: x / (1 + x) if x > 0 else x / (1 - x),
        source="torch.nn.functional.softsign",
        value_notes="x = +inf gives 1 and x = -inf gives -1, the limits (torch: NaN).",
        notes="x = +inf and x = -inf give 0, the limit, for a finite g (NaN for an infinite one).",
        kinks=()),
    Row("quick_gelu", "x * sigmoid(1.702*x)", "g * s*(1 + 1.702*x*(1 - s)), s = sigmoid(1.702*x)",
        forward=lambda m, x: x / (1 + m.exp(-m.mpf("1.702") * x)),
        source="Hendrycks and Gimpel, Gaussian Error Linear Units (2016), section 2",
        value_notes="x = -inf gives 0, the limit.",
        notes="x = +inf gives g and x = -inf gives 0, the limits.",
        zeros=(-0.7512,)),
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
