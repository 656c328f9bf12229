"""How wrong a result may be: this library's own bounds, plain ulp, and the rules that others published.

Each judges the same sweep; the published ones compare with the exact gradient rounded to the dtype. `wrong(errors,
case)` is where elements of a block of Errors are off, each for itself; `add(sums, errors, case)` adds the block to a
dict of numbers, and gives that mask, or None where elements are judged together alone; `merge(sums, other)` adds
another such dict; `verdict(sums, dtype)` gives (whether it holds, the sentence).
`complete`: every property counts under this standard; otherwise its rule, NaN and inf, and what no caller survives:
crashes, changed inputs, writes outside. `sums`: whether it has a rule for convolutions, where case is None; a bound per
element, relative to it, fits no sum that cancels.
"""
from dataclasses import dataclass

import numpy as np

from infiniop_cy.check.calls import CannotRun
from infiniop_cy.operators import values_of
from infiniop_cy.testing.reference import FORMATS, TOLERANCES

LARGEST_NUMBER = np.finfo(np.float64).max
LARGEST = ("worst", "most", "limit")  # of sums: what is no sum, but the largest of all blocks


class Standard:
    """What those that judge each element by itself have in common."""

    def absolute(self, dtype):
        """The error over |g| that is allowed near a zero of the derivative, where terms cancel."""
        return TOLERANCES[dtype][1]

    def add(self, sums, errors, case):
        mask = self.wrong(errors, case)
        self.merge(sums, {"violations": int(mask.sum()), "elements": int(mask.size),
                          "worst": float(errors.ulps.max(initial=0.0))})
        return mask

    def merge(self, sums, other):
        for name, value in other.items():
            sums[name] = max(sums.get(name, value), value) if name in LARGEST else sums.get(name, 0) + value


@dataclass(frozen=True)
class Ulp(Standard):
    """At most `limit` ulp from the truth; None: this library's own bound of the dtype. float32 and float64 near a
    zero of the derivative: absolutely, since the terms there are of the size of g and cancel."""

    limit: float | None
    source: str = "the distance to the nearest other number, as in Muller et al., Handbook of Floating-Point Arithmetic"
    complete: bool = True
    sums: bool = False  # terms that cancel leave no bound in ulp; the property "error of sums" has the one there is

    def bounds(self, dtype):
        """(ulp, error over |g| near a zero of the derivative)"""
        if self.limit is None:
            return TOLERANCES[dtype]
        absolute = self.limit * 2.0 ** (-FORMATS[dtype][0] - 1) if FORMATS[dtype][0] >= 24 else 0.0
        return self.limit, absolute

    def absolute(self, dtype):
        return self.bounds(dtype)[1]

    def rule(self, dtype):
        most, absolute = self.bounds(dtype)
        near = f", or {absolute:.1e}·|g| around the derivative's zero" if absolute else ""
        return f"error <= {most:g} ulp{near}"

    def wrong(self, errors, case):
        most, absolute = self.bounds(errors.dtype)
        with np.errstate(invalid="ignore"):
            return ~(errors.ulps <= most) & ~(errors.near_zero & (errors.error <= absolute * np.abs(errors.g)))

    def verdict(self, sums, dtype):
        return not sums.get("violations"), f"{self.rule(dtype)}"


@dataclass(frozen=True)
class Close(Standard):
    """|got - exact| <= atol + rtol*|exact|, as torch.testing.assert_close compares."""

    # dtype: (rtol, atol)
    table: dict
    source: str
    complete: bool = False
    sums: bool = False

    def rule(self, dtype):
        rtol, atol = self.table[dtype]
        return f"|error| <= {atol:g} + {rtol:g}·|exact|"

    def wrong(self, errors, case):
        rtol, atol = self.table[errors.dtype]
        with np.errstate(invalid="ignore"):
            return ~(np.abs(errors.got - errors.rounded) <= atol + rtol * np.abs(errors.rounded))

    def verdict(self, sums, dtype):
        return not sums.get("violations"), self.rule(dtype)


@dataclass(frozen=True)
class Relative(Standard):
    """Ascend: the mean of |got - exact| / (|exact| + 1e-7) below a threshold, its largest below ten times that."""

    table: dict
    source: str
    complete: bool = False
    sums: bool = False

    def rule(self, dtype):
        return f"MERE < {self.table[dtype]:g}, MARE < {10 * self.table[dtype]:g}"

    def _relative(self, errors):
        return np.abs(errors.got - errors.rounded) / (np.abs(errors.rounded) + 1e-7)

    def wrong(self, errors, case):
        return ~(self._relative(errors) < 10 * self.table[errors.dtype])

    def add(self, sums, errors, case):
        relative = self._relative(errors)
        self.merge(sums, {"sum": float(relative.sum()), "most": float(relative.max(initial=0.0))})
        return super().add(sums, errors, case)

    def verdict(self, sums, dtype):
        threshold = self.table[dtype]
        mean, most = sums.get("sum", 0.0) / max(1, sums.get("elements", 0)), sums.get("most", 0.0)
        return mean < threshold and most < 10 * threshold, (
            f"{self.rule(dtype)}: mean relative error {mean:.3g}, largest {most:.3g}")


@dataclass(frozen=True)
class Diff(Standard):
    """MLU-OPS: diff1 = sum |got - exact| / sum |exact| and diff2 = sqrt(sum (got - exact)^2 / sum exact^2). Numbers are
    summed as parts of the largest, `scale`: squares of float64's neither overflow then, nor vanish."""

    activation: float
    convolution: dict
    source: str
    complete: bool = False
    sums: bool = True

    def rule(self, dtype, limit=None):
        return f"diff1 and diff2 <= {limit or self.activation:g}"

    def _limit(self, errors, case):
        return self.activation if case is not None else self.convolution[errors.dtype]

    def wrong(self, errors, case):
        """The rule for elements alone, as those are judged that the sums leave out."""
        return ~(np.abs(errors.got - errors.rounded) <= self._limit(errors, case) * np.abs(errors.rounded))

    def add(self, sums, errors, case):
        with np.errstate(over="ignore"):
            error, exact = np.minimum(np.abs(errors.got - errors.rounded), LARGEST_NUMBER), np.abs(errors.rounded)
        scale = float(max(error.max(initial=0.0), exact.max(initial=0.0))) or 1.0
        error, exact = error / scale, exact / scale
        self.merge(sums, {
            "scale": scale, "e1": float(error.sum()), "b1": float(exact.sum()), "e2": float(np.square(error).sum()),
            "b2": float(np.square(exact).sum()), "limit": self._limit(errors, case), "violations": 0,
            "elements": error.size, "worst": float(errors.ulps.max(initial=0.0))})

    def merge(self, sums, other):
        other = dict(other)
        scale = float(np.maximum(sums.get("scale", 0.0), other["scale"]))  # NaN stays NaN
        for part in (sums, other):
            smaller = part.pop("scale", scale) / scale
            for name, factor in (("e1", smaller), ("b1", smaller), ("e2", smaller**2), ("b2", smaller**2)):
                part[name] = part.get(name, 0.0) * factor
        super().merge(sums, other)
        sums["scale"] = scale

    def verdict(self, sums, dtype):
        limit = sums.get("limit", self.activation)
        diff1 = sums.get("e1", 0.0) / (sums.get("b1", 0.0) or 1.0)
        diff2 = np.sqrt(sums.get("e2", 0.0) / (sums.get("b2", 0.0) or 1.0))
        return bool(diff1 <= limit and diff2 <= limit), (
            f"{self.rule(dtype, limit)}: diff1 {diff1:.3g}, diff2 {diff2:.3g}")


@dataclass(frozen=True)
class Benchdnn(Standard):
    """oneDNN's driver: relative error where |exact| > 1e-5, else absolute, against one threshold; where terms cancel
    (derivative below 2 float32 epsilons over the threshold) absolute error suffices."""

    # algorithms with the larger threshold in float32, by its names and by those of formulas here
    LOOSER = ("gelu_tanh", "elu", "swish", "silu", "tanh", "mish", "soft_relu", "softplus")

    source: str
    complete: bool = False
    sums: bool = False  # there it compares small integers, which must be equal: the property "exact on integers"

    def threshold(self, dtype, case):
        if dtype in ("float16", "bfloat16"):
            return 2.0 ** (1 - FORMATS[dtype][0])
        formula, _ = values_of(case.operator, {p.name: p.default for p in case.operator.parameters} | case.parameters)
        return 4e-5 if formula.removesuffix("_backward") in self.LOOSER else 4e-6

    def rule(self, dtype):
        limit = f"{2.0 ** (1 - FORMATS[dtype][0]):g}" if FORMATS[dtype][0] < 24 else "4e-6, or 4e-5 for some formulas"
        return f"error (relative above 1e-5) <= {limit}"

    def wrong(self, errors, case):
        limit = self.threshold(errors.dtype, case)
        with np.errstate(all="ignore"):
            error = np.abs(errors.got - errors.rounded)
            relative = error / np.abs(errors.rounded)
            cancels = np.abs(errors.exact / errors.g) <= 2 * 2.0 ** -23 / limit
            return ~(np.where(np.abs(errors.rounded) > 1e-5, relative, error) <= limit) & ~(
                cancels & (error <= limit))

    def verdict(self, sums, dtype):
        return not sums.get("violations"), self.rule(dtype)


PUBLISHED = {
    "torch": Close({"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5),
                    "float64": (1e-7, 1e-7)}, "https://docs.pytorch.org/docs/stable/testing.html"),
    "ascend": Relative({"float16": 2.0 ** -10, "bfloat16": 2.0 ** -7, "float32": 2.0 ** -13, "float64": 2.0 ** -13},
                       "https://gitcode.com/W4termy/cannbot/blob/master/ops/ops-precision-standard/reference/"
                       "float_compute.md"),  # which has no float64
    "mlu-ops": Diff(3e-3, {"float16": 3e-3, "bfloat16": 3e-3, "float32": 1e-5, "float64": 1e-5},
                    "https://github.com/Cambricon/mlu-ops/blob/master/docs/MLU-OPS-Accuracy-Acceptance-Standard.md"),
    "benchdnn": Benchdnn("https://github.com/oneapi-src/oneDNN/blob/main/tests/benchdnn/eltwise/eltwise.cpp"),
}


def standard_of(name):
    """The standard of that name. Raises CannotRun with the list of names for any other."""
    if name == "infiniop":
        return Ulp(None, source="README.md, \"What is promised\"")
    if name in PUBLISHED:
        return PUBLISHED[name]
    kind, _, number = name.partition(":")
    try:
        if kind == "ulp" and float(number) > 0:
            return Ulp(float(number))
    except ValueError:
        pass
    raise CannotRun(f"--standard {name}: expected infiniop, ulp:N, {', '.join(PUBLISHED)}")
