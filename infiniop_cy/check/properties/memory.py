"""The output is written, nothing else is, nothing else is read, and the output may be an input."""
from time import monotonic

from infiniop_cy.check.properties.base import Property, fails, first_difference, holds, skipped
from infiniop_cy.check.properties.conv import GEOMETRIES
from infiniop_cy.check.properties.shapes import elsewhere
from infiniop_cy.testing.cases import arrange

MEMORY = (
    Property("output written", "every element of the output is written, whatever it held",
             "every call of this run with out=, which holds NaN before", always=True),
    Property("inputs unchanged", "inputs hold the same bytes after a call, and during it",
             "every call of this run; some with inputs in memory that cannot be written to", always=True),
    Property("no writes outside", "no byte outside the output's elements is written",
             "every call of this run: 4 KiB of known bytes around each tensor and the workspace of a C library, and "
             "the gaps of strided tensors", always=True),
    Property("no reads outside", "no byte outside the tensors is read",
             "tensors that end, or begin, at a page that cannot be read; some bytes further on a program of any user "
             "may end there", always=True),
    Property("no leak", "memory does not grow from call to call",
             "300 calls: bytes that malloc gave and did not get back, where the C library is glibc"),
    Property("own array", "the result is a plain array that the caller may keep and write to",
             "every array that a function returned: no view of an input or of an earlier result, not read-only, no "
             "subclass"),
    Property("returned", "without out= the result is the same, but for rounding",
             "some calls with out= and without, where it may be left out: contiguous, and a transposed matrix",
             always=True),
    Property("settings kept", "floating-point settings of the process stay: rounding, subnormal numbers",
             "every call of this run"),
    Property("in place", "the output may be exactly one of the inputs", "out= is grad_output, then input"),
    Property("overlap", "an output that overlaps an input is refused, or right",
             "out= begins one or more elements after, or before, an input; a silently wrong result fails"),
)


FIRST = 50   # calls, for what a candidate keeps and needs
SECONDS = 3  # for candidates that take long
LEAK = 32    # bytes per call; asking for their number costs 1,760 once

# What any call may show, and the fact of a candidate without which none does.
DAMAGE = {"output written": "out", "inputs unchanged": None, "no writes outside": None, "own array": "own array",
          "settings kept": None}
WITHOUT = {"out": "the candidate takes no out=", "own array": "it is no function that returns NumPy arrays"}


def damage_verdicts(subject):
    """Of all calls so far."""
    for name, fact in DAMAGE.items():
        if name in subject.damage:
            yield fails(name, subject.damage[name], subject.calls)
        elif fact and not subject.session.facts.get(fact):
            yield skipped(name, WITHOUT[fact])
        else:
            inputs = name == "no writes outside" and not subject.session.facts["out"]
            yield holds(name, "around inputs alone: the candidate takes no out=" if inputs else "", subject.calls)


def _small_calls(subject):
    """(what, arrays, keywords): some calls of vectors and their rests, and of convolutions."""
    if subject.case is None:
        for case in (*GEOMETRIES["convolution"][:2], GEOMETRIES["padding"][0], GEOMETRIES["groups"][-1]):
            yield f"convolution {case}", subject.conv.integers(case, subject.dtype, subject.rng), {"case": case}
        return
    # Its last row ends at the edge, too: what lies between the others may be read, but nothing behind it.
    rows = [arrange(subject.values((5, 7)), "padded rows") for _ in range(2)]
    yield "padded rows of shape (5, 7)", rows, {}
    for n in (1, 67, 5003):
        yield f"{n} elements", (subject.values(n), subject.values(n)), {}


def check_leaks(subject):
    name, session = "no leak", subject.session
    *_, (what, arrays, how) = _small_calls(subject)
    half = 100 if subject.settings.quick else 150
    sizes, calls, end = [], 0, monotonic() + SECONDS
    while len(sizes) < 3 and monotonic() < end:
        if calls == FIRST + half * len(sizes):  # what is made once is made by the first time
            sizes.append(session.worker.allocated())
        if not subject.run(what, *arrays, **how).ok:
            break
        calls += 1
    if len(sizes) < 3 or None in sizes or session.facts.get("elsewhere"):
        yield skipped(name, "not enough calls within seconds" if len(sizes) < 3 else "its memory is not known here")
        return
    # A list that is made larger for once is no leak.
    counted, each = 2 * half, min(sizes[1] - sizes[0], sizes[2] - sizes[1]) / half
    yield fails(name, f"{each:,.0f} bytes per call ({what})", counted) if each > LEAK else holds(name, tried=counted)


def check_guards(subject):
    """Memory is protected in the candidate's process: a crash that a plain call does not have tells of the touch."""
    name = "no reads outside"
    if subject.session.facts.get("elsewhere"):
        yield skipped(name, "another process computes")
        return
    found, tried = None, 0
    for what, arrays, how in _small_calls(subject):
        if not subject.run(what, *arrays, **how).ok:
            continue
        for guard, touched in (("end", "past the end"), ("start", "before the start"), ("inputs", None)):
            reply = subject.run(f"{what}, guarded", *arrays, guard=guard, **how)
            tried += reply.kind != "raised"
            if reply.kind == "crash" and touched:
                found = found or f"bytes {touched} of a tensor were touched ({what}: {reply.text})"
            elif reply.kind == "crash":
                subject.damage.setdefault("inputs unchanged", "an input was written to during the call, and restored "
                                          f"({what}: {reply.text})")
    yield fails(name, found, tried) if found else holds(name, tried=tried) if tried else skipped(name, "no results")


def check_returned(subject):
    """An optional out= is given in all other calls, so that a second path, for callers without it, shows here alone."""
    name = "returned"
    if not subject.session.facts.get("returns"):
        yield skipped(name, "out= is always given" if subject.session.facts["out"] else "the candidate takes no out=")
        return
    matrices = [arrange(subject.values((5, 7)), "transposed") for _ in range(2)]
    more = [] if subject.case is None else [("transposed, of shape (5, 7)", matrices, {})]
    tried = 0
    for what, arrays, how in (*_small_calls(subject), *more):
        given = subject.run(f"{what}, with out=", *arrays, **how)
        reply = subject.run(f"{what}, without out=", *arrays, into=False, **how)
        if not given.ok:
            continue
        tried += 1
        for output, expected in given.results.items():
            if not reply.ok or elsewhere(reply.results[output], expected):
                said = first_difference(reply.results[output], expected) if reply.ok else f"{reply.kind}: {reply.text}"
                yield fails(name, f"{what}, without out=: {said}, as with it", tried)
                return
    yield holds(name, tried=tried) if tried else skipped(name, "no results")


def _placed(subject, what, g, x, **where):
    """(reply, difference from a call with an output of its own)"""
    expected = subject.run("an output of its own", g, x)
    reply = subject.run(what, g, x, **where)
    if not (reply.ok and expected.ok):
        return reply, None
    return reply, first_difference(reply.results["grad_input"], expected.results["grad_input"])


def check_in_place(subject):
    if not subject.session.facts["out"]:
        yield skipped("in place", "the candidate takes no out=")
        return
    refused, tried = None, 0
    for name in subject.case.operator.inputs:
        for n in (1, 67, 5000):
            g, x = subject.values(n), subject.values(n)
            reply, difference = _placed(subject, f"in place of {name}, {n} elements", g, x, in_place=name)
            if reply.kind == "raised":
                refused = reply.text
            elif difference:
                yield fails("in place", f"out is {name}: {difference}")
                return
            tried += 1
    yield skipped("in place", f"refused: {refused}") if refused else holds("in place", tried=tried)


def check_overlap(subject):
    if not subject.session.facts["out"]:
        yield skipped("overlap", "the candidate takes no out=")
        return
    refused, tried = 0, 0
    for name in subject.case.operator.inputs:
        for n, offset in ((1000, 1), (1000, -1), (100, 7), (5000, 16), (5000, 100), (40, -3)):
            g, x = subject.values(n), subject.values(n)
            reply, difference = _placed(subject, f"out overlapping {name} by all but {abs(offset)}", g, x,
                                        in_place=name, offset=offset)
            refused += reply.kind == "raised"
            tried += 1
            if difference:
                where = "after" if offset > 0 else "before"
                many = f"{abs(offset)} element{'s' if abs(offset) > 1 else ''}"
                yield fails("overlap", f"out begins {many} {where} {name}: silently {difference}", tried)
                return
    yield holds("overlap", "refused" if refused == tried else "", tried)
