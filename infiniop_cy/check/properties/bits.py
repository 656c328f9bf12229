"""The same bits whenever, by however many threads, wherever the arrays lie and however a batch is cut."""
import numpy as np

from infiniop_cy.check.properties.base import Property, fails, first_difference, holds, skipped
from infiniop_cy.testing.cases import LAYOUTS, arrange

BITS = (
    Property("same bits by run", "a call repeated gives the same bits", "a large array, several times over"),
    Property("same bits by threads", "the number of threads does not change a bit",
             "1, 2, 3 and 7 threads: by num_threads= where there is one, else by OMP_NUM_THREADS of a new process"),
    Property("same bits by layout", "strides and offsets do not change a bit",
             "transposed, channels last, every other element, reversed, padded rows, an odd offset; inputs and output"),
    Property("same bits by cut", "an element's bits do not depend on its neighbours",
             "the array cut into pieces, and in another order"),
)
THREADS = (1, 2, 3, 7)


def _large(subject):
    return 50_003 if subject.settings.quick else 700_001


def _expected(subject, name, *arrays):
    """(results of a plain call, None), or (None, the verdict that there are none)."""
    reply = subject.run("a plain call", *arrays)
    if reply.ok and reply.results["grad_input"] is not None:
        return reply.results["grad_input"], None
    return None, skipped(name, f"a plain call gives no result: {reply.text}")


def check_runs(subject):
    n = _large(subject)
    g, x = subject.values(n), subject.values(n)
    expected, verdict = _expected(subject, "same bits by run", g, x)
    times = 4 if subject.settings.quick else 8
    for turn in range(times if expected is not None else 0):
        reply = subject.run(f"run {turn + 2}", g, x)
        difference = reply.ok and first_difference(reply.results["grad_input"], expected)
        if difference:
            verdict = fails("same bits by run", f"run {turn + 2} of {n} elements: {difference}", turn + 2)
            break
    yield verdict or holds("same bits by run", tried=times + 1)


def check_threads(subject):
    name = "same bits by threads"
    if not subject.settings.threads or subject.session.facts["threads"] is None:
        yield skipped(name, "left out by --quick" if subject.settings.quick else "there is no number to set")
        return
    n = _large(subject)
    g, x = subject.values(n), subject.values(n)
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


def check_layouts(subject):
    name = "same bits by layout"
    shapes = ((2, 3, 5, 7), (37, 53))
    refused, tried = {}, 0
    for shape in shapes:
        g, x = subject.values(shape), subject.values(shape)
        expected, verdict = _expected(subject, name, g, x)
        if expected is None:
            yield verdict
            return
        for layout in LAYOUTS:
            for arranged in ("g", "x", "both"):
                arrays = [arrange(a, layout) if arranged in (which, "both") else a for which, a in (("g", g), ("x", x))]
                reply = subject.run(f"layout {layout}", *arrays, odd=layout == "odd offset",
                                    layout=layout if arranged == "both" else "contiguous")
                tried += 1
                if reply.kind == "raised":
                    refused[layout] = reply.text
                    continue
                difference = reply.ok and first_difference(reply.results["grad_input"], expected)
                if difference:
                    which = {"g": "grad_output", "x": "input", "both": "all tensors"}[arranged]
                    yield fails(name, f"{layout} {which} of shape {shape}: {difference}, as contiguous", tried)
                    return
    evidence = f"refused: {', '.join(refused)}" if refused else ""
    yield holds(name, evidence, tried)


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
        difference = reply.ok and first_difference(reply.results["grad_input"], expected[part])
        if difference:
            yield fails(name, f"{what} of {n}: {difference}, as in the whole", len(pieces))
            return
    yield holds(name, tried=len(pieces) + 1)
