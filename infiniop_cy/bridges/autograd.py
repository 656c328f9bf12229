"""Differentiable functions for autograd (github.com/HIPS/autograd), on its NumPy arrays.

    >>> from autograd import grad
    >>> from infiniop_cy.bridges.autograd import gelu
    >>> grad(lambda x: gelu(x, approximate="tanh").sum())(np.ones(3))

Reverse mode (grad, vector_jacobian_product, ...), first derivatives.
"""
from functools import cache

from autograd.extend import defvjp_argnums, primitive
from autograd.tracer import isbox

from infiniop_cy.bridges._functions import publish


@cache
def _primitive(function):
    """The function as a node of autograd's graph."""
    compute = primitive(function.forward)

    def vjp_maker(argnums, result, tensors, options):
        needs = tuple(i in argnums for i in range(len(tensors)))

        def vjp(grad_output):
            if isbox(grad_output) or any(map(isbox, tensors)):
                raise function.first_derivatives_only()
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
