"""Any shape: scalars, empty arrays, lengths that fill no vector, broadcasting."""
import numpy as np

from infiniop_cy.check.properties.base import Property, fails, first_difference, holds, skipped
from infiniop_cy.testing.cases import SHAPES as NAMED

SHAPES = (
    Property("shapes", "the result has the inputs' shape and dtype, and every element is computed",
             "0-d, empty, lengths around those of vectors, up to 4 axes, 100,003 elements, and over 2**20, against the "
             "same values as one row; no call of this run on contiguous arrays of one shape raises"),
    Property("broadcast", "inputs of different shapes broadcast as in NumPy, or are refused",
             "rows, columns and scalars against arrays, and strides of 0; raising is no failure, but where shapes are "
             "equal; computing is, where shapes do not broadcast"),
)

MANY = (100_003, 2**20 + 3)  # elements: as many as several threads share, and as no cache of a core holds
LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 23, 31, 32, 33, 47, 48, 49, 63, 64, 65, 70, 127, 129)  # around vectors


def elsewhere(got, expected):
    """Whether some element is another one's, or none: off by more than rounding, whose bits have a property."""
    if got is None or expected is None:
        return True
    got, expected = (a.astype(np.float64) for a in (got, expected))
    return got.shape != expected.shape or not np.allclose(got, expected, rtol=0.02, atol=1e-4, equal_nan=True)


def check_shapes(subject):
    lengths = LENGTHS[::3] if subject.settings.quick else LENGTHS
    shapes = [*(shape for name, shape in NAMED.items() if name != "parallel"), *((n,) for n in lengths)]
    total = max(int(np.prod(s)) for s in shapes)
    g, x = subject.values(total), subject.values(total)
    flat = subject.run("one row", g, x)
    if not flat.ok:
        yield fails("shapes", f"{flat.kind}: {flat.text}")
        return
    refused = []
    for shape in shapes:
        n = int(np.prod(shape))
        reply = subject.run(f"shape {shape}", g[:n].reshape(shape), x[:n].reshape(shape))
        if not reply.ok:
            refused.append(f"shape {shape}: {reply.kind}: {reply.text}")
            continue
        got = reply.results["grad_input"]
        returned = reply.shapes["grad_input"]
        if got is None or returned[1] != subject.dtype:
            what = f"{returned[1]}{tuple(returned[0])}" if returned else "no result"
            yield fails("shapes", f"inputs {subject.dtype}{shape} give {what}")
            return
        if flat.results["grad_input"] is None:
            continue
        expected = flat.results["grad_input"][:n]
        if elsewhere(got.ravel(), expected):
            yield fails("shapes", f"shape {shape}: {first_difference(got.ravel(), expected)}, as in a row of {total}")
            return
    many = MANY[:1] if subject.settings.quick else MANY
    for n in many:
        reply, difference = _repeated(subject, n, g, x, flat.results["grad_input"])
        if not reply.ok:
            refused.append(f"{n} elements: {reply.kind}: {reply.text}")
        elif difference:
            yield fails("shapes", f"{n} elements: {difference}, as in a row of {total}")
            return
    if refused:
        yield fails("shapes", f"{len(refused)} of {len(shapes) + len(many)} shapes are refused, first {refused[0]}")
    else:
        yield holds("shapes", tried=len(shapes) + len(many))


def _repeated(subject, n, g, x, row):
    """(reply for n elements, the values of g and x again and again; what is not that of the row's result, or None)"""
    last = 0  # where the result is largest: an element that is left out at the end shows
    if row is not None:
        last = int(np.argmax(np.abs(np.nan_to_num(row.astype(np.float64)))))

    def many_of(values):
        return np.resize(np.roll(values, (n - 1) % values.size - last), n)
    reply = subject.run(f"{n} elements", many_of(g), many_of(x))
    if not reply.ok or row is None:
        return reply, None
    got, expected = reply.results["grad_input"], many_of(row)
    return reply, first_difference(got, expected) if elsewhere(got, expected) else None


def refused_elsewhere(subject, verdicts):
    """The same verdicts, but for one on shapes that has not met what some later check's plain call was refused."""
    for verdict in verdicts:
        if verdict.name == "shapes" and subject.refused and not verdict.failed:
            yield fails("shapes", f"a shape is refused: {subject.refused}", verdict.tried)
        else:
            yield verdict


PAIRS = (((4,), (5, 1)), ((5, 1), (4,)), ((), (3, 4)), ((3, 4), ()), ((2, 1, 3), (1, 5, 1)), ((1,), (67,)),
         ((5, 1), (5, 7)), ((5, 7), (5, 1)), ((1, 7), (5, 7)), ((5, 7), (7,)), ((2, 3, 1), (2, 3, 4)))
EXPANDED = (((), (67,)), ((1, 7), (5, 7)), ((5, 1), (5, 7)))  # to the other's shape, by strides of 0
UNEQUAL = (((4,), (5,)), ((6,), (3,)), ((3,), (6,)), ((3, 4), (4, 3)), ((12,), (3, 4)))


def _pairs(subject):
    """(what, grad_output, input)"""
    for a, b in PAIRS:
        yield f"grad_output {a} and input {b}", subject.values(a), subject.values(b)
    for a, shape in EXPANDED:
        expanded = np.broadcast_to(subject.values(a), shape)
        yield f"grad_output {a} expanded to {shape} by strides of 0", expanded, subject.values(shape)
        yield f"input {a} expanded to {shape} by strides of 0", subject.values(shape), expanded


def _shape(reply):
    returned = reply.shapes["grad_input"]
    return f"shape {tuple(returned[0])}" if returned else "no result"


def _computes_unequal(subject):
    """A pair of shapes that does not broadcast and gave a result nevertheless, in words, or None."""
    for a, b in UNEQUAL:
        reply = subject.run(f"shapes {a} and {b}", subject.values(a), subject.values(b), shape=b)
        if reply.ok:
            return f"grad_output {a} and input {b} give {_shape(reply)}, and should be refused"
    return None


def check_broadcast(subject):
    if subject.case.count < 2:
        yield skipped("broadcast", "the operator has one input")
        return
    refused, tried = None, 0
    for what, g, x in _pairs(subject):
        reply = subject.run(what, g, x)
        tried += 1
        if reply.kind == "raised":
            if g.shape == x.shape:
                yield fails("broadcast", f"{what}: {reply.text}")
                return
            refused = reply.text
            continue
        full = subject.run("the same, materialised", *(np.array(v) for v in np.broadcast_arrays(g, x)))
        if not reply.ok or not full.ok:
            continue
        if reply.results["grad_input"] is None:
            yield fails("broadcast", f"{what} give {_shape(reply)}")
            return
        results = reply.results["grad_input"], full.results["grad_input"]
        if elsewhere(*results):
            yield fails("broadcast", f"{what}: {first_difference(*results)}")
            return
    computed = _computes_unequal(subject)
    if computed:
        yield fails("broadcast", computed)
    else:
        yield skipped("broadcast", f"not offered: {refused}") if refused else holds("broadcast", tried=tried)
