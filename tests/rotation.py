"""Which cases a test is run on: every combination of its axes for a sample of the operators, a few for each other one.

A formula decides values, which test_accuracy.py checks for every operator; how elements reach it is the same code for
all of one number of inputs, dtypes and parameters. So the whole product of shapes, layouts and dtypes is run on one
operator of each such kind, and on any other one as many combinations as make every value of every axis appear, drawn
anew from operator to operator.
"""
import itertools

import pytest

from infiniop_cy.testing import CASES

# One of each kind: no parameters, a number and a flag with promotion, a choice; one input and two.
SAMPLE = ("relu_backward", "leaky_relu_backward", "gelu_backward", "relu", "leaky_relu")


def in_full(case):
    """Whether the case is run on every combination."""
    return str(case) in SAMPLE


def combinations(position, values, turns):
    """So many tuples of one value per axis, for the case at that position of the list; None: all there are."""
    if turns is None:
        return list(itertools.product(*values))
    # Steps that differ from axis to axis, so that no two axes go in step over the cases.
    return [tuple(axis[(turn + position * step) % len(axis)] for step, axis in enumerate(values, 1))
            for turn in range(turns)]


def each_case(cases=CASES, turns=None, **axes):
    """Parametrize a test by `case` and the axes, as said above. turns: how many combinations the other operators get,
    where that is not as many as the longest axis has values."""
    values = [list(axis) for axis in axes.values()]
    turns = turns or max(map(len, values), default=1)
    chosen = [pytest.param(case, *combination, id="-".join(map(str, (case, *combination))))
              for position, case in enumerate(cases)
              for combination in combinations(position, values, None if in_full(case) else turns)]
    return pytest.mark.parametrize(("case", *axes), chosen)
