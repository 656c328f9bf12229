"""What all properties share: their rows, verdicts, and the subject that a check is made on."""
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from infiniop_cy.check.calls import CannotRun

MOST_DEATHS = 4  # of one subject; each costs a process, and a timeout where it hangs


@dataclass(frozen=True)
class Property:
    """A row: what is promised, how it is tested, and whether it counts under every standard (`always`)."""

    name: str
    promise: str
    how: str
    always: bool = False


@dataclass
class Verdict:
    """outcome: holds, fails or skipped; the evidence is a sentence that starts where the property's name ends."""

    name: str
    outcome: str
    evidence: str = ""
    tried: int = 0
    details: dict = field(default_factory=dict)

    @property
    def failed(self):
        return self.outcome == "fails"


def holds(name, evidence="", tried=0, **details):
    return Verdict(name, "holds", evidence, tried, details)


def fails(name, evidence, tried=0, **details):
    return Verdict(name, "fails", evidence, tried, details)


def skipped(name, evidence):
    return Verdict(name, "skipped", evidence)


class GaveUp(Exception):
    """The candidate died so often that the rest of this subject is left out."""


@dataclass
class Subject:
    """One operator with its parameters, or a direction of the convolution, in one dtype: what checks are made on.

    case: testing.Case, or None for a convolution. conv: its Direction, or None. settings: runner.Settings."""

    session: Any
    case: Any
    dtype: str
    settings: Any
    conv: Any = None
    rng: Any = None
    damage: dict = field(default_factory=dict)  # property: first sentence
    deaths: list = field(default_factory=list)  # sentences
    refused: str = ""                           # of a plain call, after the first was taken: the first such, in words
    bias_refused: str = ""                       # why a first call with a bias was, where one without was not
    first: Any = None                            # the first call: its arrays, how it was made, the Reply
    calls: int = 0
    tally: Any = None                           # of check_values
    repro: dict = field(default_factory=dict)   # property of a convolution: a case that breaks it, arrays and results

    def __post_init__(self):
        self.rng = np.random.default_rng(self.settings.seed)

    def run(self, what, *arrays, case=None, **how):
        """The session's Reply; what damage it did and how the candidate died is remembered, with `what` for a name.
        Where a guard ended it, that is the caller's to judge."""
        try:
            reply = (self.session.elementwise(case or self.case, *arrays, **how) if self.conv is None else
                     self.session.conv(self.conv.name, case, arrays, **how))
        except CannotRun as error:
            raise GaveUp(f"its process does not start any more: {error}") from None
        if reply.kind == "raised" and self.calls and self._is_plain(arrays, how):
            self.refused = self.refused or f"{what}: {reply.text}"
        self.calls += 1
        for name, sentence in reply.damage:
            self.damage.setdefault(name, f"{sentence} ({what})")
        if reply.kind in ("crash", "timeout") and "guard" not in how:
            died = "did not end" if reply.kind == "timeout" else "crashed"
            self.deaths.append(f"{died} in {what}: {reply.text}")
            if len(self.deaths) >= MOST_DEATHS:
                raise GaveUp(f"it died {len(self.deaths)} times")
        return reply

    def _is_plain(self, arrays, how):
        """Whether a call asks for nothing that a candidate may refuse: contiguous arrays of one shape. Geometries of
        a convolution are refused one by one."""
        return self.conv is None and not how.keys() - {"into", "threads"} and all(
            array.shape == arrays[0].shape and array.flags.c_contiguous for array in arrays)

    def values(self, shape, scale=3.0):
        """Random inputs of the subject's dtype, none of them 0."""
        from infiniop_cy.testing.cases import random_values
        return random_values(self.rng, shape, self.dtype, scale)


def results_differ(reply, expected):
    """Results of one call from those of another, in words, or None. What both left out is no difference."""
    for name, a in reply.results.items():
        b = expected.results.get(name)
        difference = first_difference(a, b) if a is not None or b is not None else None
        if difference:
            return f"{name}: {difference}"
    return None


def first_call_differs(subject):
    """What a repetition of the first call gives instead, in words, or None: what is made once may be made wrong."""
    arrays, how, first = subject.first
    again = subject.run("the first call again", *arrays, **how)
    return results_differ(again, first) if again.ok else f"{again.kind}: {again.text}"


def first_difference(a, b):
    """`at index: this != that` of two arrays that should have the same bits; None: a call that gave no array of the
    expected shape, which is a difference even where both did."""
    if a is None or b is None:
        return "no result, or one of another shape"
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype}{a.shape} instead of {b.dtype}{b.shape}"
    width = f"u{a.itemsize}"
    different = np.ascontiguousarray(a).view(width) != np.ascontiguousarray(b).view(width)
    different &= ~(np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64)))
    if not different.any():
        return None
    at = tuple(int(i) for i in np.argwhere(different)[0])
    return f"{int(different.sum())} of {a.size} differ, first {float(a[at])!r} instead of {float(b[at])!r} at {at}"
