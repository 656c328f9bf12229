"""What is promised, and how each promise is tested: one table, which --help, docs/check.md and the reports print.

A check is a generator function of a Subject; it yields Verdicts on the properties of its file.
"""
from infiniop_cy.check.properties.base import Property, Subject, Verdict
from infiniop_cy.check.properties.bits import BITS, check_cuts, check_layouts, check_runs, check_threads
from infiniop_cy.check.properties.conv import CONV, check_conv
from infiniop_cy.check.properties.conv_values import CONV_VALUES, check_conv_values
from infiniop_cy.check.properties.memory import (
    DAMAGE,
    MEMORY,
    check_guards,
    check_in_place,
    check_leaks,
    check_overlap,
    check_returned,
    damage_verdicts,
)
from infiniop_cy.check.properties.shapes import SHAPES, check_broadcast, check_shapes, refused_elsewhere
from infiniop_cy.check.properties.values import VALUES, check_values

PROPERTIES = (*VALUES, *SHAPES, *MEMORY, *BITS, *CONV, *CONV_VALUES)
BY_NAME = {p.name: p for p in PROPERTIES}

OF_EVERY_CALL = {"runs", *DAMAGE}  # which all checks tell of together

# (check, the properties that it speaks of)
MEMORY_CHECKS = ((check_guards, {"no reads outside"}), (check_leaks, {"no leak"}), (check_returned, {"returned"}))
ELEMENTWISE_CHECKS = (
    (check_values, {p.name for p in VALUES}), (check_shapes, {"shapes"}), (check_broadcast, {"broadcast"}),
    *MEMORY_CHECKS, (check_in_place, {"in place"}), (check_overlap, {"overlap"}), (check_runs, {"same bits by run"}),
    (check_threads, {"same bits by threads"}), (check_layouts, {"same bits by layout"}),
    (check_cuts, {"same bits by cut"}))
CONV_CHECKS = (
    (check_conv, {"shapes", *(p.name for p in CONV)}), *MEMORY_CHECKS,
    (check_conv_values, {"accuracy", *(p.name for p in (*CONV_VALUES, *BITS))}))

__all__ = ["BY_NAME", "CONV_CHECKS", "ELEMENTWISE_CHECKS", "OF_EVERY_CALL", "PROPERTIES", "Property", "Subject",
           "Verdict", "damage_verdicts", "refused_elsewhere"]
