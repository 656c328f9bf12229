"""Backends: modules with elementwise, conv, conv_backward, ElementwisePlan, ConvPlan, ForwardPlan, shape_of,
empty_workspace."""
