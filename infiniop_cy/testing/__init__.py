"""Testing gradient operators: values that find mistakes, references in 50 digits, and assertions.

Public, and used by this library's own tests: assert_ulp, ulp_error, gradcheck, assert_invariant, special_values,
every_value (docs/check.md has examples). pytest has them as fixtures once the package is installed. The rest is what
tests and benchmarks share: layouts, named shapes, references and tolerances.

Needs ml_dtypes and mpmath (the `check` extra, or `test`). Nothing here names an elementwise operator: the cases come
from the table in operators.py.
"""
from infiniop_cy.testing.cases import (
    CASES,
    DTYPES,
    GRADIENTS,
    LAYOUTS,
    SHAPES,
    Case,
    arrange,
    dtype_of,
    random_values,
)
from infiniop_cy.testing.checks import assert_invariant, assert_ulp, gradcheck, ulp_error
from infiniop_cy.testing.reference import FORMATS, derivative, exact_result, result_errors, same_bits, ulp_of
from infiniop_cy.testing.values import every_value, special_values

__all__ = ["CASES", "DTYPES", "FORMATS", "GRADIENTS", "LAYOUTS", "SHAPES", "Case", "arrange", "assert_invariant",
           "assert_ulp", "derivative", "dtype_of", "every_value", "exact_result", "gradcheck", "random_values",
           "result_errors", "same_bits", "special_values", "ulp_error", "ulp_of"]
