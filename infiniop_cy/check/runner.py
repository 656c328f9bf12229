"""Which subjects there are, and what becomes of each: one Result per operator, choice of parameters and dtype."""
from dataclasses import dataclass, field

import mpmath
import numpy as np

from infiniop_cy.check.calls import CannotRun
from infiniop_cy.check.convolution import DIRECTIONS
from infiniop_cy.check.properties import (
    BY_NAME,
    CONV_CHECKS,
    ELEMENTWISE_CHECKS,
    OF_EVERY_CALL,
    Subject,
    Verdict,
    damage_verdicts,
    refused_elsewhere,
)
from infiniop_cy.check.properties.base import GaveUp, fails, holds
from infiniop_cy.check.properties.conv import GEOMETRIES
from infiniop_cy.check.standards import Ulp
from infiniop_cy.operators import BY_NAME as ELEMENTWISE
from infiniop_cy.status import BadParam
from infiniop_cy.testing.cases import CASES, DTYPES, Case

OPERATORS = (*ELEMENTWISE, *DIRECTIONS)


@dataclass
class Settings:
    """How a run is made; see `infiniop-cy check --help`."""

    standard: object = field(default_factory=lambda: Ulp(None))
    ftz: bool = False
    quick: bool = False
    exhaustive: bool = False
    resume: str | None = None
    threads: bool = True
    seed: int = 0
    only: tuple = ()
    progress: object = None  # called with (title, done, total) of an exhaustive sweep


@dataclass
class Result:
    """The verdicts on one subject, or why there are none."""

    operator: str
    parameters: dict
    dtype: str
    verdicts: list[Verdict] = field(default_factory=list)
    not_offered: str = ""
    subject: Subject | None = None

    @property
    def title(self):
        given = ", ".join(f"{name}={value}" for name, value in self.parameters.items())
        return f"{self.operator}({given})" if given else self.operator

    def counts(self, standard):
        """The verdicts that decide under that standard."""
        return [v for v in self.verdicts if standard.complete or BY_NAME[v.name].always]

    def failed(self, standard):
        return any(v.failed for v in self.counts(standard))

    @property
    def tried(self):
        return self.subject.tally.tried if self.subject is not None and self.subject.tally is not None else 0


def _meaningless(case):
    """Why the operator has no meaning with these parameters, or an empty text. By some the function is infinite though
    the formula of its gradient is not: softplus by beta = 0."""
    of_forward = {parameter.name for parameter in case.operator.parameters if not parameter.of_gradient}
    try:
        case(*[np.ones(1, np.float32)] * case.count)
        case.operator.forward(mpmath, mpmath.mpf(1), **{k: v for k, v in case.parameters.items() if k in of_forward})
    except BadParam as error:
        return str(error)
    except ZeroDivisionError:
        return f"{case}: the function is infinite"
    return ""


def _cases(definition, quick):
    """The defaults, every choice, and other values of numbers: those of the tests, 0 and one over 1."""
    yield from (case for case in CASES if case.operator is definition)
    for parameter in () if quick else definition.parameters:
        if isinstance(parameter.default, float):
            others = (Case(definition, {parameter.name: value}) for value in (0.0, 2.5))
            yield from (case for case in others if not _meaningless(case))


def subjects(operators, dtypes, given, quick=False):
    """(operator, case or None, dtype) of all that is asked for. given: parameters to check with, rather than with
    those that stand for all."""
    for operator in operators:
        if operator in DIRECTIONS:
            yield from ((operator, None, dtype) for dtype in dtypes)
            continue
        definition = ELEMENTWISE[operator]
        cases = [Case(definition, given)] if given else list(_cases(definition, quick))
        if given and (reason := _meaningless(cases[0])):
            raise CannotRun(reason)
        yield from ((operator, case, dtype) for case in cases for dtype in dtypes)


def as_passed(session, case):
    """The case with float parameters as the candidate gets them: a C ABI may take float32."""
    if not session.facts.get("float parameters"):
        return case
    complete = {p.name: case.parameters.get(p.name, p.default) for p in case.operator.parameters}
    return Case(case.operator, {name: float(np.float32(value)) if isinstance(value, float) else value
                                for name, value in complete.items()})


def check(session, operator, case, dtype, settings):
    """The Result of one subject."""
    parameters = {} if case is None else case.parameters
    result = Result(operator, parameters, dtype)
    result.not_offered = session.worker.offers(operator, parameters) or ""
    if result.not_offered:
        return result
    subject = Subject(session, case and as_passed(session, case), dtype, settings, DIRECTIONS.get(operator))
    result.subject = subject
    gave_up, only = "", set(settings.only)
    try:
        result.not_offered = _refusal(subject)
        if result.not_offered:
            return result
        for function, names in CONV_CHECKS if case is None else ELEMENTWISE_CHECKS:
            if not only or only & (names | OF_EVERY_CALL):
                result.verdicts += function(subject)
    except GaveUp as error:
        gave_up = f"; the rest was left out: {error}"
    finally:
        session.close_others()
    result.verdicts = [*refused_elsewhere(subject, result.verdicts), *damage_verdicts(subject)]
    result.verdicts.insert(0, _runs(subject, gave_up))
    if settings.only:
        # A process that died has left out, or spoilt, what was asked for.
        result.verdicts = [v for v in result.verdicts if v.name in only or (v.name == "runs" and v.failed)]
    return result


def _runs(subject, gave_up):
    """The verdict on crashes and hangs, over all calls."""
    if not subject.deaths and not gave_up:
        return holds("runs", tried=subject.calls)
    first = f"it {subject.deaths[0]}" if subject.deaths else "it cannot be started again"
    return fails("runs", f"{len(subject.deaths)} of {subject.calls} calls: {first}{gave_up}", subject.calls)


def _refusal(subject):
    """Why the candidate does not take this dtype at all, or "". A crash is no refusal. Of a convolution that takes no
    bias the subject knows from then on."""
    if subject.case is None:
        how = {"case": GEOMETRIES["convolution"][0]}
        arrays = subject.conv.integers(how["case"], subject.dtype, subject.rng)
    else:
        how, arrays = {}, tuple(subject.values(8) for _ in range(2))
    reply = subject.run("a first call", *arrays, **how)
    if reply.kind == "raised" and subject.conv is not None and subject.conv.biased:
        with_bias, arrays = reply.text, arrays[:-1]
        reply = subject.run("a first call without a bias", *arrays, **how)
        if reply.ok:
            subject.conv, subject.bias_refused = subject.conv.without_bias(), with_bias
    subject.first = arrays, how, reply
    if reply.kind in ("crash", "timeout"):
        raise GaveUp("already a first call does not end" if reply.kind == "timeout" else "already a first call crashes")
    return reply.text if reply.kind == "raised" else ""


__all__ = ["DTYPES", "OPERATORS", "Result", "Settings", "check", "subjects"]
