"""How wrong: what a sweep over inputs counts, in numbers that can be added up, written to a file and read back."""
from dataclasses import asdict, dataclass, field

import numpy as np

from infiniop_cy.check import reference
from infiniop_cy.check.inputs import BITS
from infiniop_cy.testing.cases import dtype_of
from infiniop_cy.testing.reference import FORMATS, NEAR, ulp_of

BUCKETS = (0.5, 1, 3, 10, 100, np.inf)  # ulp, upper ends; the first is a result rounded right
BUCKET_NAMES = ("rounded right", "<= 1", "<= 3", "<= 10", "<= 100", "more")
WORST = 20
EXAMPLES = 3
PIECE = 2**15  # elements counted at once: a dozen float64 arrays of that fit in a cache
NEAREST = 0.51  # ulp: half of one, and what float32 errs before it is rounded
SLACK = 4  # times the usual allowance, before an error so near to a zero of the derivative is a wrong sign


@dataclass
class Worst:
    """One input and its result; the bits are what the storage type holds."""

    error: float  # in ulp
    g: str
    x: str
    got: str
    exact: float
    g_value: float
    x_value: float
    got_value: float
    region: str
    off: bool = True  # whether the standard says so


@dataclass
class Tally:
    """Counts over one sweep. `lists` holds the first examples of what has a property of its own."""

    dtype: str
    tried: int = 0
    measured: int = 0                                            # of them finite: with an error in ulp
    buckets: list = field(default_factory=lambda: [0] * len(BUCKETS))
    worst: list = field(default_factory=list)                    # Worst, the worst first, after all that are off
    regions: dict = field(default_factory=dict)                  # region: [count, worst ulp]
    counts: dict = field(default_factory=dict)                   # property: elements that break it
    examples: dict = field(default_factory=dict)                 # property: Worst of the first few
    outward: float = 0.0                                         # sum of (|got| - |exact|) in ulp, where inexact
    not_nearest: int = 0                                         # of these, results with a nearer number
    inexact: int = 0
    ties: int = 0                                                # results exactly between two numbers
    odd_ties: int = 0                                            # of these, not those with an even significand
    standard: dict = field(default_factory=dict)                 # what the standard sums up

    def as_dict(self):
        return asdict(self)

    @classmethod
    def from_dict(cls, values):
        values = dict(values)
        values["worst"] = [Worst(**w) for w in values["worst"]]
        values["examples"] = {name: [Worst(**w) for w in found] for name, found in values["examples"].items()}
        return cls(**values)

    def merge(self, other, standard):
        """Add what another sweep under the same standard has counted."""
        for name in ("tried", "measured", "outward", "not_nearest", "inexact", "ties", "odd_ties"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.buckets = [a + b for a, b in zip(self.buckets, other.buckets)]
        self.keep_worst(other.worst)
        for region, (count, most) in other.regions.items():
            before, most_before = self.regions.get(region, (0, 0.0))
            self.regions[region] = [before + count, max(most_before, most)]
        for name, number in other.counts.items():
            self.counts[name] = self.counts.get(name, 0) + number
            self.examples[name] = (self.examples.get(name, []) + other.examples[name])[:EXAMPLES]
        standard.merge(self.standard, other.standard)

    def keep_worst(self, others):
        """Of these and those so far: first all that are off, so that no error is shown which the standard allows."""
        self.worst = sorted(self.worst + others, key=lambda w: (not w.off, -w.error))[:WORST]

    def least_of_worst(self, off):
        """What an error has to exceed to be kept, if the standard says, or does not say, that it is off."""
        if len(self.worst) < WORST:
            return 0.0
        last = self.worst[-1]
        return last.error if last.off == off else 0.0 if off else np.inf

    def count(self, name, mask, make):
        """Elements of `mask` break a property; `make(i)` is the example of one of them."""
        number = int(mask.sum())
        if not number:
            return
        self.counts[name] = self.counts.get(name, 0) + number
        kept = self.examples.setdefault(name, [])
        kept += [make(i) for i in np.flatnonzero(mask)[:max(0, EXAMPLES - len(kept))]]


@dataclass
class Errors:
    """One block, measured: what standards judge. Arrays over the elements whose results can have an error in ulp."""

    dtype: str
    g: np.ndarray
    x: np.ndarray
    got: np.ndarray      # float64
    exact: np.ndarray    # float64
    rounded: np.ndarray  # exact, rounded to the dtype, or flushed where that is allowed: published rules take this
    error: np.ndarray    # |got - exact|
    ulps: np.ndarray
    near_zero: np.ndarray


REGIONS = ("subnormal result", "around the derivative's zero", "near 0", "tail", "middle")


def _regions(row, x, exact, dtype):
    """Which of REGIONS each input lies in."""
    names = np.full(x.shape, 4, np.int8)
    names[np.abs(x) > 4] = 3
    names[np.abs(x) < 0.01] = 2
    for zero in row.zeros:
        names[np.abs(x - zero) < NEAR] = 1
    names[np.abs(exact) < 2.0 ** FORMATS[dtype][1]] = 0
    return names


def flushed(values, dtype):
    """In float64, with subnormals as 0, which `--ftz` lets hardware see."""
    with np.errstate(invalid="ignore"):  # of signalling NaN
        values = values.astype(np.float64)
    return np.where(np.abs(values) < 2.0 ** FORMATS[dtype][1], 0.0, values)


def classify(case, dtype, g, x, got, high, low, slope, standard, ftz=None):
    """(Errors, masks): the masks are where a property of its own is broken, over all elements.

    g, x, got: arrays of the storage type; high + low: the truth; slope: the truth for g = 1. ftz: None, or the truth
    for flushed inputs."""
    number = dtype_of(dtype)
    with np.errstate(invalid="ignore"):  # of signalling NaN among all patterns
        g64, x64, got64 = (a.astype(np.float64) for a in (g, x, got))
    bits, lowest = FORMATS[dtype]
    normal = 2.0 ** lowest
    with np.errstate(all="ignore"):
        beyond = np.ldexp(1.0, 2 - lowest)  # what would follow the largest number
        rounded = high.astype(number).astype(np.float64)
        special = ~np.isfinite(g64) | ~np.isfinite(x64) | (x64 == 0) | np.isnan(high)
        # inf times what underflows is NaN in one precision and inf in another; the 0 of a piecewise formula is exact
        vanishes = np.abs(slope) < 2.0 ** (-1022 if dtype == "float64" else -120)
        open_ = np.isinf(g64) & vanishes & (~np.isfinite(high) if case.operator.kinks else True)
        clip = (lambda a: a) if dtype == "float64" else (lambda a: np.clip(a, -beyond, beyond))
        finite = ~special & ~np.isnan(got64) & ~(np.isinf(got64) & np.isfinite(rounded))
        if dtype == "float64":
            finite &= np.isfinite(got64) & np.isfinite(high)
        error = np.abs((clip(got64) - clip(high)) - low)
        unit = ulp_of(np.where(np.isfinite(high), np.minimum(np.abs(high), beyond / 2 if bits < 53 else np.abs(high)),
                               1.0), dtype)
        ulps = error / unit
        allowed, compared = np.zeros(x.shape, bool), rounded
        if ftz is not None:
            flushed_truth = ftz.astype(number).astype(np.float64)
            allowed = (got64 == flushed_truth) | (np.isnan(got64) & np.isnan(flushed_truth))
            zero_ok = (got64 == 0) & (np.abs(high) < normal)
            other = np.abs(got64 - ftz)
            compared = np.where(zero_ok, 0.0, np.where(other < error, flushed_truth, rounded))
            ulps = np.where(zero_ok, 0, np.minimum(ulps, other / ulp_of(np.where(np.isfinite(ftz), ftz, 1), dtype)))
            error = np.where(zero_ok, 0, np.minimum(error, other))
        near = np.zeros(x.shape, bool)
        for zero in case.operator.zeros:
            near |= np.abs(x64 - zero) < NEAR
        arrays = g64, x64, clip(got64), clip(high), clip(compared), error, ulps, near & ~special
        excused = allowed | (near & (error <= SLACK * max(standard.absolute(dtype), 2.0 ** -bits) * np.abs(g64)))
        # The number at a special input is judged as any other; NaN and inf have to be there, and nowhere else.
        number_here = special & np.isfinite(rounded) & np.isfinite(got64)
        different = (rounded != got64) & ~(np.isnan(rounded) & np.isnan(got64))
        different[number_here] = standard.wrong(Errors(dtype, *(a[number_here] for a in arrays)), case)
        masks = {
            "special values": special & different & ~open_ & ~allowed,
            "finite": ~special & ~finite & np.isfinite(rounded) & ~allowed,
            "sign": finite & (got64 * np.sign(high) < 0) & (np.abs(high) >= 2.0 ** (lowest - bits + 1)) & ~excused,
            "not vanished": finite & (got64 == 0) & (np.abs(high) >= normal) & ~excused,
        }
    return Errors(dtype, *(a[finite] for a in arrays)), masks, finite


def add(tally, case, g, x, got, high, low, standard, ftz=None):
    """Count one block of results, in pieces that stay in a core's cache."""
    slope = reference.kernel(case, np.ones(1), x)
    for at in range(0, x.size, PIECE):
        part = slice(at, at + PIECE)
        _add(tally, case, g[part], x[part], got[part], high[part], low if np.ndim(low) == 0 else low[part], slope[part],
             standard, None if ftz is None else ftz[part])


def _add(tally, case, g, x, got, high, low, slope, standard, ftz):
    dtype, number = tally.dtype, dtype_of(tally.dtype)
    errors, masks, finite = classify(case, dtype, g, x, got, high, low, slope, standard, ftz)
    tally.tried += x.size
    tally.measured += errors.ulps.size

    def hexed(value):
        return f"0x{np.array(value, number).view(BITS[dtype]).item():0{number.itemsize * 2}x}"

    def worst(i, ulps=float("nan"), off=True):
        region, = _regions(case.operator, x[i:i + 1].astype(np.float64), high[i:i + 1], dtype)
        return Worst(float(ulps), hexed(g[i]), hexed(x[i]), hexed(got[i]), float(high[i]), float(g[i]), float(x[i]),
                     float(got[i]), REGIONS[region], off)
    for name, mask in masks.items():
        tally.count(name, mask, worst)
    wrong = standard.add(tally.standard, errors, case)
    if not errors.ulps.size:
        return
    below = [np.count_nonzero(errors.ulps <= end) for end in BUCKETS]
    tally.buckets = (np.array(tally.buckets) + np.diff(below, prepend=0)).tolist()
    regions = _regions(case.operator, errors.x, errors.exact, dtype)
    for number_of, name in enumerate(REGIONS):
        part = errors.ulps[regions == number_of]
        if part.size:
            count, most = tally.regions.get(name, (0, 0.0))
            tally.regions[name] = [count + part.size, max(most, float(part.max()))]
    off = (errors.error > 0) & (np.abs(errors.exact) >= 2.0 ** FORMATS[dtype][1]) & (errors.ulps < 1.5)
    if number.itemsize == 2:  # a result that thousands of inputs share would outweigh all others
        first = np.zeros(off.shape, bool)
        first[np.unique(errors.got, return_index=True)[1]] = True
        off &= first
    tally.inexact += int(off.sum())
    tally.not_nearest += int((off & (errors.ulps > NEAREST)).sum())
    tie = off & (errors.ulps == 0.5)
    tally.ties += int(tie.sum())
    tally.odd_ties += int((got[finite][tie].view(BITS[dtype]) & 1).sum())
    tally.outward += float((np.sign(np.abs(errors.got[off]) - np.abs(errors.exact[off])) * errors.ulps[off]).sum())
    index = np.flatnonzero(finite)
    broken = wrong is not None and bool(wrong.any())
    ulps = np.where(wrong, errors.ulps, 0.0) if broken else errors.ulps
    above = np.flatnonzero(ulps > tally.least_of_worst(broken))
    if above.size:
        above = above[np.argsort(ulps[above])[-WORST:]]
        tally.keep_worst([worst(index[i], ulps[i], broken) for i in above])
