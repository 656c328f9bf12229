"""Differentiable functions for MyGrad (github.com/rsokl/MyGrad), on its tensors.

    >>> import mygrad as mg
    >>> from infiniop_cy.bridges.mygrad import gelu
    >>> x = mg.tensor([1.0, 2.0])
    >>> gelu(x).sum().backward()
    >>> x.grad
"""
from mygrad import execute_op
from mygrad.operation_base import Operation

from infiniop_cy.bridges._functions import publish


class _Differentiable(Operation):
    def __call__(self, *tensors, function, options):
        self.variables, self.function, self.options = tensors, function, options
        return function.forward(*(tensor.data for tensor in tensors), **options)

    def backward_var(self, grad, index, **_):
        needs = tuple(i == index for i in range(3))
        arrays = (tensor.data for tensor in self.variables)
        return self.function.gradients(needs, grad, *arrays, **self.options)[index]


def _call(function, tensors, options):
    given = [tensor for tensor in tensors if tensor is not None]  # a bias may be left out
    return execute_op(_Differentiable, *given, op_kwargs={"function": function, "options": options})


_FUNCTIONS = publish(__name__, "MyGrad tensors", _call)
globals().update(_FUNCTIONS)
__all__ = [*_FUNCTIONS]
