"""Backends: modules with elementwise, conv_backward, ElementwisePlan, ConvPlan, shape_of, empty_workspace."""
