"""Nothing but the output is written, and the output may be an input."""
from infiniop_cy.check.properties.base import Property, fails, first_difference, holds, skipped

MEMORY = (
    Property("inputs unchanged", "inputs hold the same bytes after a call", "every call of this run", always=True),
    Property("no writes outside", "no byte outside the output's elements is written",
             "every call of this run: 4 KiB of known bytes around each tensor, and the gaps of strided ones",
             always=True),
    Property("in place", "the output may be exactly one of the inputs", "out= is grad_output, then input"),
    Property("overlap", "an output that overlaps an input is refused, or right",
             "out= begins one or more elements after, or before, an input; a silently wrong result fails"),
)


def damage_verdicts(subject):
    """Of all calls so far."""
    for name in ("inputs unchanged", "no writes outside"):
        if name in subject.damage:
            yield fails(name, subject.damage[name], subject.calls)
        else:
            yield holds(name, tried=subject.calls)


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
