"""Convolutions of real numbers: rounding, the adjoint identity, NaN that stays in its sample, and the same bits."""
from math import prod

import numpy as np

from infiniop_cy.check.properties.base import (
    Property,
    fails,
    first_call_differs,
    first_difference,
    holds,
    results_differ,
    skipped,
)
from infiniop_cy.check.properties.bits import THREADS
from infiniop_cy.check.properties.conv import LARGE, describe
from infiniop_cy.check.tally import Errors
from infiniop_cy.testing.cases import dtype_of
from infiniop_cy.testing.conv import ConvCase, reference_conv_forward
from infiniop_cy.testing.reference import ulp_of

CONV_VALUES = (
    Property("error of sums", "rounding errors no larger than those of a sum in float32 (float64) rounded once",
             "normal numbers: |error| <= n u sum|g||w| + 1/2 ulp, with n terms and u the compute type's rounding; a "
             "bias is one term more"),
    Property("adjoint", "<g, conv(x, w)> = <grad_input, x> = <grad_weight, w>",
             "normal numbers, within the same bound; conv in float64"),
    Property("NaN and inf", "a NaN or inf reaches the sums that it is a term of, and no other sample",
             "NaN in grad_output of one sample, inf in another's, inf in input; of conv, NaN and inf in input"),
    Property("some gradients", "a gradient is the same where others are left out",
             "each alone, and all without grad_bias: null pointers in C, output_mask= in Python"),
)
# Few and many terms; strides, groups and padding. LARGE, of conv.py, has sizes that several threads share.
CASES = (ConvCase("few terms", 2, 1, 2, 3, (9, 10), (3, 3), 1, 1),
         ConvCase("groups", 3, 2, 8, 12, (12, 11), (3, 3), 2, 1),
         ConvCase("many terms", 2, 1, 64, 96, (14, 14), (3, 3), 1, 1))
UNIT = {"float16": 2.0 ** -24, "bfloat16": 2.0 ** -24, "float32": 2.0 ** -24, "float64": 2.0 ** -53}


def _bounds(conv, case, data, dtype):
    """(exact, largest error allowed) of each output."""
    exact = conv.exact(data, case.geometry)
    absolute = conv.exact([np.abs(a.astype(np.float64)) for a in data], case.geometry)
    smallest = ulp_of(0.0, dtype)
    for truth, size, terms in zip(exact, absolute, conv.terms(case)):
        # float64's own reference errs as much as a candidate may
        yield truth, (2 if dtype == "float64" else 1) * (terms + 2) * UNIT[dtype] * size + (
            0.5 * ulp_of(truth, dtype) * (dtype_of(dtype).itemsize <= 2)) + smallest


def check_conv_values(subject):
    yield from _errors(subject)
    yield _nonfinite(subject)
    if len(subject.conv.outputs) > 1:
        yield _some(subject)
    for check in (_runs, _threads, _layouts, _cut):
        yield check(subject)


def _errors(subject):
    worst, dtype, standard, sums = (0.0, ""), subject.dtype, subject.settings.standard, {}
    adjoint, seen = None, False
    cases = [(case, subject.conv.normal(case, dtype, subject.rng)) for case in CASES] + _large(subject)
    for case, data in cases:
        reply = subject.run(f"convolution of {describe(case)}", *data, case=case)
        if not reply.ok:
            continue
        for name, (truth, bound) in zip(subject.conv.outputs, _bounds(subject.conv, case, data, dtype)):
            got = reply.results.get(name)
            if got is None:
                continue
            seen = True
            if standard.sums:
                standard.add(sums, _judged(got, truth, dtype), None)
            with np.errstate(invalid="ignore"):
                ratio = np.nan_to_num(np.abs(got.astype(np.float64) - truth) / bound, nan=np.inf, posinf=np.inf)
            at = np.unravel_index(np.argmax(ratio), ratio.shape)
            if ratio[at] > worst[0]:
                worst = float(ratio[at]), (f"{name} at {tuple(map(int, at))}: {float(got[at])!r} instead of "
                                           f"{float(truth[at])!r}; {describe(case)}")
                if ratio[at] > 1:
                    subject.repro["error of sums"] = case, data, reply.results
        adjoint = adjoint or ("grad_input" in reply.results and _adjoint(case, data, reply, dtype))
    if not seen:
        yield skipped("error of sums", "no geometry gave results")
        return
    if standard.sums:
        fine, rule = standard.verdict(sums, dtype)
        off = f"{sums['violations']:,} of {sums['elements']:,} off; " if sums["violations"] else ""
        yield (holds if fine else fails)("accuracy", f"{off}{rule}", sums["elements"])
    make = holds if worst[0] <= 1 else fails
    where = f", {worst[1]}" if worst[0] > 1 else ""
    yield make("error of sums", f"worst {worst[0]:.3g} of the bound{where}", len(cases))
    if len(subject.conv.outputs) > 1:
        yield fails("adjoint", adjoint) if adjoint else holds("adjoint", tried=len(cases))


def _judged(got, truth, dtype):
    """Results as a standard takes them."""
    got, truth = got.astype(np.float64).ravel(), truth.ravel()
    error, none = np.abs(got - truth), np.zeros(got.shape)
    rounded = truth.astype(dtype_of(dtype)).astype(np.float64)
    return Errors(dtype, none, none, got, truth, rounded, error, error / ulp_of(truth, dtype), none.astype(bool))


def _adjoint(case, data, reply, dtype):
    g, x, w = (a.astype(np.float64) for a in data)
    inner = float((g * reference_conv_forward(x, w, *case.geometry)).sum())
    size = float((np.abs(g) * reference_conv_forward(np.abs(x), np.abs(w), *case.geometry)).sum())
    unit = 2.0 ** -11 if dtype == "float16" else 2.0 ** -8 if dtype == "bfloat16" else UNIT[dtype] * max(case.terms)
    for name, other in (("grad_input", x), ("grad_weight", w)):
        if reply.results.get(name) is None:
            continue
        found = float((reply.results[name].astype(np.float64) * other).sum())
        if not abs(found - inner) <= 2 * unit * size:
            return f"<{name}, ·> = {found!r}, <g, conv(x, w)> = {inner!r}; {describe(case)}"
    return None


def _nonfinite(subject):
    """No padding, since 0 * inf there is a term to some. Whether inf ends up as inf or NaN is left to the candidate:
    fast algorithms take differences."""
    name, case = "NaN and inf", ConvCase("samples", 3, 1, 4, 8, (7, 9), (3, 3))
    data = subject.conv.normal(case, subject.dtype, subject.rng)
    subject.conv.spoil(data)
    reply = subject.run("NaN and inf", *data, case=case)
    if not reply.ok:
        return skipped(name, reply.text)
    with np.errstate(invalid="ignore"):
        exact = subject.conv.exact(data, case.geometry)
    for output, truth in zip(subject.conv.outputs, exact):
        got = reply.results.get(output)
        if got is None:
            continue
        finite = np.isfinite(got.astype(np.float64))
        lost = finite & ~np.isfinite(truth)
        if lost.any():
            return fails(name, f"{output}: {int(lost.sum())} of {int((~np.isfinite(truth)).sum())} sums with NaN or "
                         "inf for a term are finite")
        if output == subject.conv.outputs[0] and not finite[0].all():
            return fails(name, f"{int((~finite[0]).sum())} results of a sample without NaN and inf are not finite")
    return holds(name)


def _some(subject):
    if not subject.session.facts.get("some gradients"):
        return skipped("some gradients", "the candidate computes all three")
    names = subject.conv.outputs
    choices = (names, *((name,) for name in names[:2]), names[:2])
    cases = [(case, subject.conv.normal(case, subject.dtype, subject.rng)) for case in CASES[:2]]
    return _compared(subject, "some gradients", cases, lambda case, data: (
        (f"{' and '.join(only)} alone", data, {"only": only}) for only in choices), "as with all three")


def _large(subject):
    cases = LARGE[:1] if subject.settings.quick else LARGE
    return [(case, subject.conv.normal(case, subject.dtype, subject.rng)) for case in cases
            if subject.dtype == "float32" or prod(case.size) < 1000]


def _compared(subject, name, cases, variants, what):
    """A verdict on calls that should give the bits of the first."""
    tried, refused = 0, []
    for case, data in cases:
        expected = None
        for label, arrays, how in variants(case, data):
            reply = subject.run(f"{label}: convolution of {describe(case)}", *arrays, case=case, **how)
            if not reply.ok:
                refused.append(reply.text)
                continue
            tried += 1
            expected = expected or reply
            difference = results_differ(reply, expected)
            if difference:
                return fails(name, f"{label}: {difference}, {what}; {describe(case)}", tried)
    if not tried:
        return skipped(name, refused[0] if refused else "no geometry gave results")
    calls = f"{len(refused)} of {tried + len(refused)} calls"
    return holds(name, f"the candidate refused {calls}, first: {refused[0]}" if refused else "", tried,
                 refused=len(refused))


def _runs(subject):
    name, times = "same bits by run", 3 if subject.settings.quick else 6
    difference = first_call_differs(subject)
    if difference:
        return fails(name, f"the first call again: {difference}, as at first")
    return _compared(subject, name, _large(subject),
                     lambda case, data: ((f"run {i + 1}", data, {}) for i in range(times)), "as in the first run")


def _threads(subject):
    if not subject.settings.threads or subject.session.facts["threads"] is None:
        why = "left out by --quick" if subject.settings.quick else "there is no number to set"
        return skipped("same bits by threads", why)
    return _compared(subject, "same bits by threads", _large(subject),
                     lambda case, data: ((f"{n} threads", data, {"threads": n}) for n in THREADS), "as by 1 thread")


def _layouts(subject):
    from infiniop_cy.testing.cases import LAYOUTS, arrange
    case = ConvCase("layouts", 2, 1, 9, 18, (13, 12), (3, 3), 1, 1)
    data = subject.conv.normal(case, subject.dtype, subject.rng)
    return _compared(subject, "same bits by layout", [(case, data)], lambda case, data: (
        (layout, [arrange(a, layout) for a in data], {"odd": layout == "odd offset"}) for layout in LAYOUTS),
        "as contiguous")


def _cut(subject):
    """The first output of some samples, alone and in their batch."""
    case = ConvCase("batch", 5, 1, 9, 18, (13, 12), (3, 3), 2, 1)
    conv, data = subject.conv, subject.conv.normal(case, subject.dtype, subject.rng)
    name, whole = conv.outputs[0], subject.run("a batch of 5", *data, case=case)
    if not whole.ok or whole.results.get(name) is None:
        return skipped("same bits by cut", whole.text or f"no {name}")
    for part in (slice(0, 1), slice(2, 3), slice(1, 5)):
        reply = subject.run(f"samples {part.start} to {part.stop}", *(a[part] for a in data[:conv.batched]),
                            *data[conv.batched:], case=case)
        difference = reply.ok and first_difference(reply.results[name], whole.results[name][part])
        if difference:
            return fails("same bits by cut", f"{name} of samples {part.start} to {part.stop} of 5: {difference}, "
                         "as in the whole batch", 3)
    return holds("same bits by cut", tried=3)
