"""Differentiable functions for autograd (github.com/HIPS/autograd), on its NumPy arrays.

    >>> from autograd import grad
    >>> from infiniop_cy.bridges.autograd import gelu
    >>> grad(lambda x: gelu(x, approximate="tanh").sum())(np.ones(3))

Reverse mode (grad, vector_jacobian_product, ...), first derivatives.
"""
from functools import cache

import numpy as np
from autograd.extend import defvjp_argnums, primitive
from autograd.tracer import getval, isbox

from infiniop_cy.bridges._functions import publish


@cache
def _primitive(function):
    """The function as a node of autograd's graph."""
    compute = primitive(function.forward)

    def vjp_maker(argnums, result, tensors, options):
        needs, dtype = tuple(i in argnums for i in range(len(tensors))), np.asarray(getval(result)).dtype

        def vjp(grad_output):
            if isbox(grad_output) or any(map(isbox, tensors)):
                raise function.first_derivatives_only()
            grad_output = np.asarray(grad_output, dtype)  # of a graph that goes on in another one
            gradients = function.gradients(needs, grad_output, *tensors, **options)
            return tuple(gradients[i] for i in argnums)
        return vjp

    defvjp_argnums(compute, vjp_maker)
    return compute


def _call(function, tensors, options):
    return _primitive(function)(*tensors, **options)


_FUNCTIONS = publish(__name__, "autograd's arrays", _call)
globals().update(_FUNCTIONS)
__all__ = [*_FUNCTIONS]
