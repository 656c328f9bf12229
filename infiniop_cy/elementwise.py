"""The functions and descriptors that follow from the table in operators.py, by name; elementwise.pyi, written when the
package is built, has their types."""
from infiniop_cy.descriptors import DESCRIPTORS
from infiniop_cy.functions import ELEMENTWISE

globals().update(ELEMENTWISE)
globals().update(DESCRIPTORS)

__all__ = [*ELEMENTWISE, *DESCRIPTORS]
