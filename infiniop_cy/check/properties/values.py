"""Right values: one sweep over inputs and gradients, from which accuracy and the properties beside it follow."""
import numpy as np

from infiniop_cy.check import inputs, reference
from infiniop_cy.check.properties.base import Property, fails, holds, skipped
from infiniop_cy.check.session import BLOCK
from infiniop_cy.check.tally import BUCKET_NAMES, Tally, add, flushed
from infiniop_cy.testing.cases import dtype_of

VALUES = (
    Property("runs", "no call crashes, hangs or ends the process", "every call of this run, in a process of its own",
             always=True),
    Property("accuracy", "results are within the standard of the exact gradient",
             "all 65,536 inputs of 16-bit types, a stratified sample of the others or, by --exhaustive, all of "
             "float32; against float64 or 50 digits", always=True),
    Property("sign", "no result has the wrong sign", "the same sweep"),
    Property("not vanished", "no 0 where the gradient is a normal number", "the same sweep"),
    Property("finite", "no NaN or inf where the gradient is finite", "the same sweep", always=True),
    Property("special values", "at ±0, ±inf and NaN, in x or g, the limit of the formula",
             "the same sweep; but g = ±inf where the derivative underflows", always=True),
    Property("rounding", "16-bit results are rounded to nearest, ties to even, not cut off",
             "of the sweep's inexact results within 1.5 ulp: how many have a nearer number, and their mean error; of "
             "exact ties: how many went to the odd number"),
)
BIASED = 0.2      # ulp; rounding to nearest stays below 0.01 on these samples
NOT_NEAREST = 0.01  # of all; a formula in float32 errs that much in its tails alone
FEW = 300         # inexact results tell of no bias
QUICK = {"float32": 40_000, "float64": 200}
USUAL = {"float32": 600_000, "float64": 2400}
SCREENED = 200_000  # float64 inputs whose result is compared with the kernel's, to find those to decide by mpmath
DECIDED = 60


def blocks(subject):
    """(what, g, x) of the sweep."""
    dtype, rng, quick = subject.dtype, subject.rng, subject.settings.quick
    if subject.case.count < 2:
        x = inputs.every_value(dtype) if dtype in ("float16", "bfloat16") else np.concatenate([
            inputs.sample(subject.case.operator, dtype, rng, (QUICK if quick else USUAL)[dtype]),
            inputs.special_values(dtype)])
        yield f"every {dtype} x" if x.itemsize == 2 else f"a sample of {dtype}", np.ones_like(x), x
        return
    if dtype in ("float16", "bfloat16"):
        x = inputs.every_value(dtype)
        for g in inputs.GRADIENTS[:2 if quick else None]:
            yield f"every {dtype} x with g = {g:g}", np.full_like(x, g), x
        yield f"every {dtype} x with random g", inputs.random_gradients(rng, dtype, x.size), x
        shuffled = rng.permutation(x)
        yield f"every {dtype} g with random x", shuffled, inputs.random_gradients(rng, dtype, x.size)
    else:
        x = inputs.sample(subject.case.operator, dtype, rng, (QUICK if quick else USUAL)[dtype])
        for g in inputs.GRADIENTS[:1 if dtype == "float64" else 2 if quick else None]:
            yield f"a sample of {dtype} with g = {g:g}", np.full_like(x, g), x
        yield f"a sample of {dtype} with random g", inputs.random_gradients(rng, dtype, x.size), x
    special = inputs.special_values(dtype)
    yield "special values of g", *(np.ascontiguousarray(a).ravel() for a in np.meshgrid(
        np.concatenate([special, subject.values(5)]), np.concatenate([special, subject.values(20)])))


def screened(subject):
    """float64 inputs where the candidate and this library's kernel differ most: mpmath is to decide on these."""
    count = SCREENED // 10 if subject.settings.quick else SCREENED
    x = inputs.sample(subject.case.operator, "float64", subject.rng, count)
    g = inputs.random_gradients(subject.rng, "float64", x.size) if subject.case.count > 1 else np.ones_like(x)
    reply = subject.run("a large sample of float64", g, x)
    if not reply.ok or reply.results["grad_input"] is None:
        return
    exact = reference.kernel(subject.case, g, x)
    with np.errstate(all="ignore"):
        off = np.abs(reply.results["grad_input"].astype(np.float64) - exact) / np.maximum(np.abs(exact), 1e-300)
    off[~np.isfinite(exact)] = 0
    off[np.isnan(off)] = np.inf  # of the candidate alone
    worst = np.argsort(off)[-DECIDED:]
    yield "where float64 results differ most", g[worst], x[worst]


def measure(subject, tally, what, g, x):
    """Run one block and count it. Returns why not, if so."""
    case, settings = subject.case, subject.settings
    reply = subject.run(what, g, x, into=False if not subject.session.facts["out"] else None)
    if not reply.ok:
        return f"{reply.kind} in {what}: {reply.text}"
    got = reply.results["grad_input"]
    if got is None:
        return f"no result of shape {x.shape} in {what}"
    if subject.dtype == "float64":
        high, low = reference.exact_pair(case, g, x)
    else:
        high, low = reference.kernel(case, g, x), 0.0
    ftz = None
    if settings.ftz:
        ftz = reference.kernel(case, flushed(g, subject.dtype), flushed(x, subject.dtype))
    add(tally, case, g, x, got, high, low, settings.standard, ftz)
    return None


def sweep(subject):
    """(Tally, reasons of blocks that gave no results)"""
    tally, reasons = Tally(subject.dtype), []
    for what, g, x in blocks(subject):
        for start in range(0, x.size, BLOCK):
            reasons.append(measure(subject, tally, what, g[start:start + BLOCK], x[start:start + BLOCK]))
    if subject.dtype == "float64":
        for what, g, x in screened(subject):
            reasons.append(measure(subject, tally, what, g, x))
    if subject.dtype == "float32" and subject.settings.exhaustive:
        from infiniop_cy.check.exhaustive import every_float32
        reasons += every_float32(subject, tally, measure)
    return tally, [reason for reason in reasons if reason]


def check_values(subject):
    tally, reasons = sweep(subject)
    subject.tally = tally
    if not tally.tried:
        yield fails("accuracy", reasons[0] if reasons else "no results")
        return
    standard = subject.settings.standard
    fine, rule = standard.verdict(tally.standard, subject.dtype)
    worst = tally.worst[0] if tally.worst else None
    evidence = rule if worst is None or not worst.error else (
        f"{rule}; worst {_ulp(worst.error)} at x = {worst.x_value!r}, g = {worst.g_value!r}: "
        f"{worst.got_value!r} instead of {worst.exact!r} ({worst.region})")
    violations = tally.standard.get("violations", 0)
    if violations:
        evidence = f"{violations:,} of {tally.measured:,} off; {evidence}"
    histogram = dict(zip(BUCKET_NAMES, tally.buckets))
    make = holds if fine and not reasons else fails
    yield make("accuracy", f"{reasons[0]}; {evidence}" if reasons else evidence, tally.tried, histogram=histogram,
               regions=tally.regions, worst=[vars(w) for w in tally.worst])
    for name in ("sign", "not vanished", "finite", "special values"):
        number = tally.counts.get(name, 0)
        if not number:
            yield holds(name, tried=tally.tried)
            continue
        found = "; ".join(f"x = {w.x_value!r}, g = {w.g_value!r} gives {w.got_value!r}, expected {w.exact!r}"
                          for w in tally.examples[name][:2])
        yield fails(name, f"{number:,} results: {found}", tally.tried,
                    examples=[vars(w) for w in tally.examples[name]])
    yield _rounding(subject, tally)


def _ulp(error):
    return f"{error:.3g} ulp" if error < 1e6 else f"{error:.1e} ulp"


def _rounding(subject, tally):
    if dtype_of(subject.dtype).itemsize > 2:
        return skipped("rounding", "the compute type is the storage type")
    if tally.odd_ties:
        return fails("rounding", f"{tally.odd_ties:,} of {tally.ties:,} results half way between two numbers went to "
                     "the odd one", tally.ties)
    if tally.inexact < FEW:
        return holds("rounding", "all results are exact" if not tally.inexact else "too few inexact results to tell")
    mean = tally.outward / tally.inexact
    share = tally.not_nearest / tally.inexact
    if abs(mean) <= BIASED and share <= NOT_NEAREST:
        return holds("rounding", f"mean error {mean:+.3f} ulp", tally.inexact)
    why = f"{share:.1%} of {tally.inexact:,} inexact results have a nearer number"
    if abs(mean) > BIASED:
        towards = "towards 0: cut off rather than rounded" if mean < 0 else "away from 0"
        why += f"; they err by {abs(mean):.2f} ulp {towards}"
    return fails("rounding", why, tally.inexact)
