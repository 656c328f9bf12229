"""The same bits whenever, by however many threads, wherever the arrays lie and however a batch is cut."""
from time import monotonic

import numpy as np

from infiniop_cy.check.properties.base import (
    Property,
    fails,
    first_call_differs,
    first_difference,
    holds,
    skipped,
)
from infiniop_cy.testing.cases import LAYOUTS, MORE_LAYOUTS, SHAPES, arrange

BITS = (
    Property("same bits by run", "a call repeated gives the same bits",
             "a large array 8 times, a small one 400 times, the very first call again, and as the first call of a new "
             "process"),
    Property("same bits by threads", "the number of threads does not change a bit",
             "1, 2, 3 and 7 threads: by num_threads= where there is one, else by OMP_NUM_THREADS of a new process"),
    Property("same bits by layout", "strides and offsets do not change a bit",
             "transposed, channels last, every other element, reversed, padded rows, an odd offset; of an input, the "
             "output, or all"),
    Property("same bits by cut", "an element's bits do not depend on its neighbours",
             "the array cut into pieces, and in another order"),
)
THREADS = (1, 2, 3, 7)
REPEATS = 400
MEDIUM = 20_011  # elements, which several threads may share
SECONDS = 3  # of repeating, for candidates that take long


def _large(subject):
    return 50_003 if subject.settings.quick else 700_001


def _expected(subject, name, *arrays):
    """(results of a plain call, None), or (None, the verdict that there are none)."""
    reply = subject.run("a plain call", *arrays)
    if reply.ok and reply.results["grad_input"] is not None:
        return reply.results["grad_input"], None
    make = fails if reply.kind == "raised" else skipped  # of a wrong shape or a crash other properties tell
    return None, make(name, f"{arrays[0].size} elements give no result: {reply.text}")


def _differs(reply, expected):
    """What a call gave instead of these results, or None."""
    if not reply.ok:
        return f"{reply.kind}: {reply.text}"
    return first_difference(reply.results["grad_input"], expected)


def _repeat(subject, times, *arrays):
    """(results of the first call, verdict on the others or None, number of calls)"""
    n = arrays[0].size
    expected, verdict = _expected(subject, "same bits by run", *arrays)
    end, turn = monotonic() + SECONDS, 1
    while verdict is None and turn < times and monotonic() < end:
        turn += 1
        difference = _differs(subject.run(f"run {turn} of {n} elements", *arrays), expected)
        if difference:
            verdict = fails("same bits by run", f"run {turn} of {n} elements: {difference}", turn)
    return expected, verdict, turn


def check_runs(subject):
    name, quick = "same bits by run", subject.settings.quick
    large, small, other = ([subject.values(n) for _ in range(2)] for n in (_large(subject), MEDIUM, MEDIUM))
    difference = first_call_differs(subject)
    if difference:
        yield fails(name, f"the first call again: {difference}, as at first")
        return
    _, verdict, tried = _repeat(subject, 4 if quick else 8, *large)
    if verdict is None:
        _, verdict, many = _repeat(subject, REPEATS // (8 if quick else 1), *small)
        tried += many
    for arrays in (other, large) if verdict is None and not quick else ():
        expected, verdict = _expected(subject, name, *arrays)
        difference = verdict or _differs(subject.run("a new process", *arrays, fresh=True), expected)
        if difference:
            verdict = fails(name, f"{arrays[0].size} elements after {subject.calls} other calls, and in a new process: "
                            f"{difference}", tried)
            break
    yield verdict or holds(name, tried=tried)


def check_threads(subject):
    name = "same bits by threads"
    if not subject.settings.threads or subject.session.facts["threads"] is None:
        yield skipped(name, "left out by --quick" if subject.settings.quick else "there is no number to set")
        return
    n = _large(subject)
    g, x = subject.values(n), subject.values(n)
    for border in {n * i // threads for threads in THREADS for i in range(threads + 1)}:
        part = slice(max(0, border - 64), border + 64)
        x[part] = np.abs(x[part])  # no gradient is 0 there, and one that is left out shows
    expected = None
    for threads in THREADS:
        reply = subject.run(f"{threads} threads", g, x, threads=threads)
        if not reply.ok:
            yield fails(name, f"{threads} threads: {reply.kind}: {reply.text}")
            return
        if expected is None:
            expected = reply.results["grad_input"]
        difference = first_difference(reply.results["grad_input"], expected)
        if difference:
            yield fails(name, f"{threads} threads: {difference}, as by 1", n)
            return
    yield holds(name, tried=len(THREADS))


ALL_LAYOUTS, FEW_LAYOUTS = (*LAYOUTS, *MORE_LAYOUTS), ("transposed", "every other")
# What is arranged: its name, and which tensors.
ARRANGED = (("grad_output", "g"), ("input", "x"), ("all tensors", "g", "x", "out"), ("output", "out"))


def check_layouts(subject):
    name = "same bits by layout"
    refused, tried, compared = {}, 0, 0
    # Arrays that several threads share take longer.
    for shape, layouts in (((2, 3, 5, 7), ALL_LAYOUTS), ((37, 53), ALL_LAYOUTS), (SHAPES["parallel"], FEW_LAYOUTS)):
        g, x = subject.values(shape), subject.values(shape)
        expected, verdict = _expected(subject, name, g, x)
        if expected is None:
            yield verdict
            return
        for layout in layouts:
            for arranged in ARRANGED if subject.session.facts["out"] else ARRANGED[:-1]:
                arrays = [arrange(a, layout) if which in arranged else a for which, a in (("g", g), ("x", x))]
                reply = subject.run(f"layout {layout}", *arrays, odd=layout == "odd offset",
                                    layout=layout if "out" in arranged else "contiguous")
                tried += 1
                if reply.kind == "raised":
                    refused[layout] = reply.text
                    continue
                compared += reply.ok and not all(a.flags.c_contiguous for a in arrays[-subject.case.count:])
                difference = reply.ok and first_difference(reply.results["grad_input"], expected)
                if difference:
                    yield fails(name, f"{layout} {arranged[0]} of shape {shape}: {difference}, as contiguous", tried)
                    return
    evidence = f"the candidate refused {', '.join(refused)}, first: {next(iter(refused.values()))}" if refused else ""
    yield holds(name, evidence, tried, refused=len(refused)) if compared else skipped(name, evidence)


def check_cuts(subject):
    name, n = "same bits by cut", 3001
    g, x = subject.values(n), subject.values(n)
    expected, verdict = _expected(subject, name, g, x)
    if expected is None:
        yield verdict
        return
    pieces = [slice(a, b) for at in (1, 8, 17, 1500, 2999) for a, b in ((0, at), (at, n))]
    order = subject.rng.permutation(n)
    for what, part in [*((f"elements {p.start} to {p.stop}", p) for p in pieces), ("another order", order)]:
        reply = subject.run(what, np.ascontiguousarray(g[part]), np.ascontiguousarray(x[part]))
        difference = _differs(reply, expected[part])
        if difference:
            yield fails(name, f"{what} of {n}: {difference}, as in the whole", len(pieces))
            return
    yield holds(name, tried=len(pieces) + 1)
