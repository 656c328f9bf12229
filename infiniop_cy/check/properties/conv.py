"""The geometry of a convolution, one property each: small integers, of which every sum is exact in any order.

A wrong index is wrong by a whole number, so half of one decides here; results that are near but not equal break
"exact on integers" alone.
"""
from dataclasses import replace

import numpy as np

from infiniop_cy.check.properties.base import Property, fails, holds, skipped
from infiniop_cy.testing.cases import dtype_of
from infiniop_cy.testing.conv import ConvCase, random_geometry
from infiniop_cy.testing.reference import ulp_of

HOW = "small integers against a float64 sum, on"
CONV = (
    Property("convolution", "stride 1, no padding: results are the sums of their terms", f"{HOW} 2-d images", True),
    Property("bias", "conv's bias is added to each pixel of its channel, once", f"{HOW} some geometries; all others of "
             "this run have none", True),
    Property("bias gradient", "grad_bias sums grad_output over batch and pixels", f"{HOW} every geometry", True),
    Property("kernel axes", "kernels and images that are not square", f"{HOW} kernels 1x4, 3x2, 5x1", True),
    Property("stride", "strides over 1, different by axis, past the kernel",
             f"{HOW} each, and pixels that no window touches", True),
    Property("padding", "padding, different by axis, past the kernel", f"{HOW} each", True),
    Property("asymmetric padding", "padding that differs before and after", f"{HOW} each; refusing is no failure",
             True),
    Property("dilation", "dilation over 1, different by axis", f"{HOW} each", True),
    Property("groups", "groups, down to one channel each", f"{HOW} 2, 3 and as many as channels", True),
    Property("dimensions", "1-d and 3-d convolutions", f"{HOW} each; refusing is no failure", True),
    Property("empty batch", "no samples: zeros in grad_weight and grad_bias, an empty output",
             "a batch of 0; refusing is no failure"),
    Property("any geometry", "all of these together", f"{HOW} random geometries, and on large arrays", True),
    Property("exact on integers", "sums of small integers are exact, in any order", "every geometry of this run"),
)


GEOMETRIES = {
    "convolution": [
        ConvCase("2-d", 2, 1, 3, 4, (9, 11), (3, 3)), ConvCase("1x1", 2, 1, 8, 12, (7, 7), (1, 1)),
        ConvCase("one pixel", 1, 1, 1, 1, (1, 1), (1, 1)), ConvCase("channels", 2, 1, 33, 18, (6, 6), (3, 3)),
        ConvCase("one sample", 1, 1, 4, 5, (8, 9), (3, 3)), ConvCase("many channels", 1, 1, 140, 131, (4, 3), (1, 1)),
        ConvCase("many outputs", 2, 1, 5, 270, (3, 4), (2, 2)), ConvCase("many samples", 37, 1, 2, 3, (4, 4), (3, 3))],
    "kernel axes": [
        ConvCase("1x4", 2, 1, 3, 2, (6, 9), (1, 4)), ConvCase("3x2", 2, 1, 2, 3, (10, 5), (3, 2)),
        ConvCase("5x1", 1, 1, 2, 2, (8, 4), (5, 1)), ConvCase("whole image", 3, 1, 4, 5, (5, 4), (5, 4))],
    "stride": [
        ConvCase("2", 2, 1, 3, 5, (13, 11), (3, 3), stride=2), ConvCase("rest", 2, 1, 2, 3, (12, 10), (3, 3), stride=2),
        ConvCase("by axis", 2, 1, 3, 5, (13, 10), (3, 2), stride=(2, 3)),
        ConvCase("3", 2, 1, 2, 3, (12, 13), (3, 3), stride=3),
        ConvCase("past the kernel", 2, 1, 3, 2, (14, 15), (2, 3), stride=(5, 4))],
    "padding": [
        ConvCase("1", 2, 1, 3, 4, (9, 11), (3, 3), padding=1),
        ConvCase("by axis", 2, 1, 3, 4, (7, 8), (3, 4), padding=(2, 1)),
        ConvCase("past the kernel", 2, 1, 2, 3, (4, 3), (2, 3), padding=(5, 7)),
        ConvCase("kernel past the image", 2, 1, 2, 3, (3, 4), (5, 6), padding=(2, 1))],
    "asymmetric padding": [
        ConvCase("pairs", 2, 1, 3, 2, (8, 9), (3, 4), padding=((0, 2), (3, 1))),
        ConvCase("one side", 2, 1, 2, 3, (5, 6), (2, 3), padding=((4, 0), (0, 5)))],
    "dilation": [
        ConvCase("2", 2, 1, 3, 4, (11, 12), (3, 3), dilation=2),
        ConvCase("by axis", 2, 1, 2, 3, (13, 12), (3, 2), dilation=(2, 3)),
        ConvCase("4", 2, 1, 2, 3, (12, 13), (3, 3), dilation=4),
        ConvCase("far", 2, 1, 3, 2, (12, 25), (2, 3), dilation=(7, 11))],
    "groups": [
        ConvCase("2", 2, 2, 4, 6, (8, 7), (3, 3)), ConvCase("3", 2, 3, 6, 9, (8, 7), (3, 3)),
        ConvCase("fewer outputs", 2, 2, 8, 4, (8, 7), (3, 2)), ConvCase("depthwise", 2, 8, 8, 16, (10, 9), (3, 3)),
        ConvCase("one output a channel", 2, 9, 9, 9, (8, 9), (3, 3))],
    "dimensions": [
        ConvCase("1-d", 2, 1, 3, 4, (17,), (3,)), ConvCase("1-d, all", 2, 2, 4, 6, (23,), (4,), 2, 3, 3),
        ConvCase("3-d", 2, 1, 2, 3, (4, 5, 6), (2, 3, 3)),
        ConvCase("3-d, all", 2, 2, 4, 6, (7, 6, 9), (3, 2, 3), (2, 1, 3), (1, 2, 3), (1, 3, 2))],
    "empty batch": [ConvCase("no samples", 0, 1, 3, 4, (8, 8), (3, 3))],
}
LARGE = (ConvCase("large", 4, 1, 64, 96, (28, 28), (3, 3), 1, 1),
         ConvCase("large, stride", 3, 1, 50, 60, (41, 40), (3, 3), 2, 1),
         ConvCase("many small images", 64, 1, 24, 50, (5, 5), (3, 3), 1, 1),
         ConvCase("depthwise", 4, 48, 48, 48, (28, 28), (3, 3), 1, 1), ConvCase("1-d", 2, 1, 4, 64, (2000,), (300,)))
MAY_REFUSE = ("asymmetric padding", "dimensions", "empty batch", "any geometry")
WITH_BIAS = (*GEOMETRIES["convolution"], *GEOMETRIES["stride"][:1], *GEOMETRIES["padding"][:1], *GEOMETRIES["groups"],
             *GEOMETRIES["dimensions"])


def describe(case):
    stride, pairs, dilation, groups = case.geometry
    image, kernel = ("x".join(map(str, sizes)) for sizes in (case.size, case.kernel))
    return (f"batch {case.batch}, channels {case.cin} to {case.cout}, image {image}, kernel {kernel}, stride {stride}, "
            f"padding {pairs}, dilation {dilation}, groups {groups}")


def _wrong(name, got, exact, dtype, case):
    """(sentence or None: wrong by half or more, sentence or None: not equal)"""
    if got is None:
        return None, None
    got64, rounded = got.astype(np.float64), exact.astype(dtype_of(dtype)).astype(np.float64)
    with np.errstate(invalid="ignore"):
        unequal = ~((got64 == rounded) | (np.isnan(got64) & np.isnan(rounded)))
        far = unequal & ~(np.abs(got64 - exact) < np.maximum(0.5, 2 * ulp_of(exact, dtype)))
    sentences = []
    for mask in (far, unequal):
        if not mask.any():
            sentences.append(None)
            continue
        at = tuple(int(i) for i in np.argwhere(mask)[0])
        sentences.append(f"{name}: {int(mask.sum())} of {mask.size} wrong, first {float(got64[at])!r} instead of "
                         f"{float(rounded[at])!r} at {at}; {describe(case)}")
    return tuple(sentences)


class Findings:
    """What all geometries together show beside their own property."""

    def __init__(self, names):
        self.bias = self.integers = self.shapes = None
        self.results = {name: 0 for name in names}


def _try(subject, case, findings, bias):
    """(kind, sentence): ok, wrong, refused or died. bias: whether a forward convolution has one."""
    data = subject.conv.integers(case, subject.dtype, subject.rng)
    if subject.conv.biased and not bias:
        data = data[:-1]
    reply = subject.run(f"convolution of {describe(case)}", *data, case=case)
    if reply.kind == "raised":
        return "refused", reply.text
    if not reply.ok:
        return "died", f"{reply.kind}: {reply.text}"
    exact = subject.conv.exact(data, case.geometry)
    first = None
    for name, truth in zip(subject.conv.outputs, exact):
        got, returned = reply.results.get(name), reply.shapes.get(name)
        if returned is not None and (tuple(returned[0]), returned[1]) != (truth.shape, subject.dtype):
            shape = (
                f"{name} is {returned[1]}{tuple(returned[0])}, expected {subject.dtype}{truth.shape}; {describe(case)}")
            findings.shapes = findings.shapes or shape
            first = first or (shape if got is None else None)  # nothing of another shape can be compared
        findings.results[name] += got is not None
        far, unequal = _wrong(name, got, truth, subject.dtype, case)
        if far and name == "grad_bias":
            findings.bias = findings.bias or far
        elif far:
            first = first or far
        if unequal:
            shown = ("bias gradient",) * bool(far and name == "grad_bias") + ("exact on integers",)
            for prop in shown:
                subject.repro.setdefault(prop, (case, data, reply.results))
        findings.integers = findings.integers or unequal
    if not any(reply.shapes.get(name) for name in subject.conv.outputs):
        first = f"no output was returned; {describe(case)}"
    findings.last = case, data, reply.results
    return ("wrong", first) if first else ("ok", "")


def _family(subject, name, cases, findings, bias=False):
    wrong, refused, died = [], [], []
    for case in cases:
        kind, text = _try(subject, case, findings, bias)
        if kind == "wrong":
            subject.repro.setdefault(name, findings.last)
        {"wrong": wrong, "refused": refused, "died": died, "ok": []}[kind].append((case, text))
    if wrong or died:
        shared = f"; {_shared([case for case, _ in wrong], cases)}" if name == "any geometry" and wrong else ""
        return fails(name, f"{len(wrong + died)} of {len(cases)} geometries{shared}: {(wrong or died)[0][1]}",
                     len(cases))
    if len(refused) == len(cases):
        return skipped(name, f"not offered: {refused[0][1]}") if name in MAY_REFUSE else fails(
            name, f"refused: {refused[0][1]}", len(cases))
    left_out = f"the candidate refused {len(refused)} of {len(cases)} geometries, first: {refused[0][1]}" \
        if refused else ""
    return holds(name, left_out, len(cases), refused=len(refused))


FEATURES = {
    "groups > 1": lambda c: c.groups > 1, "a stride > 1": lambda c: any(s > 1 for s in c.geometry[0]),
    "padding": lambda c: any(sum(p) for p in c.geometry[1]), "unequal padding": lambda c: any(
        a != b for a, b in c.geometry[1]), "dilation > 1": lambda c: any(d > 1 for d in c.geometry[2]),
    "large arrays": lambda c: c in LARGE,
    "3 axes": lambda c: len(c.size) == 3, "1 axis": lambda c: len(c.size) == 1, "batch > 1": lambda c: c.batch > 1}


def _shared(wrong, cases):
    """What all wrong geometries have in common and not all others."""
    names = [name for name, has in FEATURES.items() if all(map(has, wrong)) and not all(map(has, cases))]
    return f"all of them with {', '.join(names)}" if names else "nothing in common"


def _any(subject):
    """Random geometries, then large ones. In 16 bits those of few terms, whose partial sums are exact."""
    count = 6 if subject.settings.quick else 120
    draw = lambda low, high: int(subject.rng.integers(low, high + 1))  # noqa: E731
    most = 60 if dtype_of(subject.dtype).itemsize == 2 else 1 << 30
    cases = []
    while len(cases) < count:
        case = random_geometry(draw, (0, 1 << 15), 1 << 14)
        if 0 < case.batch and min(case.cin, case.cout, *case.size) > 0 and subject.conv.terms(case)[0] <= most:
            pairs = case.geometry[1] if subject.session.facts.get("asymmetric", True) else tuple(
                (a, a) for a, _ in case.geometry[1])
            case = replace(case, padding=pairs)
            if min(case.out_size) > 0:
                cases.append(case)
    large = LARGE[:1] if subject.settings.quick else LARGE
    return cases + [case for case in large if subject.conv.terms(case)[0] <= most]


def check_conv(subject):
    findings = Findings(subject.conv.outputs)
    for name, cases in GEOMETRIES.items():
        yield _family(subject, name, cases, findings)
        if name == "asymmetric padding" and not any(findings.results.values()):
            break
    yield _family(subject, "any geometry", _any(subject), findings)
    if subject.conv.name == "conv":
        yield _family(subject, "bias", WITH_BIAS, findings, bias=True) if subject.conv.biased else skipped(
            "bias", f"not offered: {subject.bias_refused}")
    elif not findings.results["grad_bias"]:
        yield skipped("bias gradient", "not offered")
    else:
        yield fails("bias gradient", findings.bias) if findings.bias else holds("bias gradient")
    yield fails("shapes", findings.shapes) if findings.shapes else holds("shapes")
    yield fails("exact on integers", findings.integers) if findings.integers else holds(
        "exact on integers", tried=sum(findings.results.values()))
