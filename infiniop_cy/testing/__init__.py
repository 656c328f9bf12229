"""What tests and benchmarks share: layouts, named shapes, references and tolerances.

Needs ml_dtypes and mpmath (the `test` extra). Nothing here names an elementwise operator: the cases come
from the table in operators.py.
"""
from infiniop_cy.testing.cases import CASES, DTYPES, LAYOUTS, SHAPES, Case, arrange, dtype_of, random_values
from infiniop_cy.testing.reference import FORMATS, derivative, gradient_errors, same_bits, ulp_of

__all__ = ["CASES", "DTYPES", "FORMATS", "LAYOUTS", "SHAPES", "Case", "arrange", "derivative", "dtype_of",
           "gradient_errors", "random_values", "same_bits", "ulp_of"]
