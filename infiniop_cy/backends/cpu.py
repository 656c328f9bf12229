"""The CPU: everything is in the compiled core."""
from infiniop_cy.core._core import ConvPlanObject as ConvPlan
from infiniop_cy.core._core import ElementwisePlanObject as ElementwisePlan
from infiniop_cy.core._core import ForwardPlanObject as ForwardPlan
from infiniop_cy.core._core import conv, conv_backward, elementwise, host_input
from infiniop_cy.core._core import empty_workspace_array as empty_workspace

__all__ = ["ConvPlan", "ElementwisePlan", "ForwardPlan", "conv", "conv_backward", "elementwise", "empty_workspace",
           "shape_of"]


def shape_of(value, op, name):
    """The shape of an argument of a convolution."""
    return value.shape if hasattr(value, "shape") else host_input(value, op, name).shape
