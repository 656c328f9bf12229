"""Differentiable functions for PyTensor (github.com/pymc-devs/pytensor), on its tensor variables.

    >>> import pytensor.tensor as pt
    >>> from infiniop_cy.bridges.pytensor import gelu
    >>> x = pt.vector("x")
    >>> pytensor.grad(gelu(x).sum(), x).eval({x: [1.0, 2.0]})

Compiled functions call back for these nodes, whichever linker compiles the others (Numba says that it does).
"""
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor import as_tensor_variable
from pytensor.tensor.type import TensorType

from infiniop_cy.bridges._functions import publish


class _Forward(Op):
    """A function with its parameters."""

    __props__ = ("function", "options")

    def __init__(self, function, options):
        self.function, self.options = function, options  # (name, value) pairs

    def make_node(self, *tensors):
        tensors = [as_tensor_variable(tensor) for tensor in tensors]
        known = tensors[0].type.shape if len(self.function.tensors) == 1 else (None,) * tensors[0].ndim
        return Apply(self, tensors, [TensorType(tensors[0].dtype, known)()])

    def perform(self, node, arrays, outputs):
        outputs[0][0] = self.function.forward(*arrays, **dict(self.options))

    def infer_shape(self, fgraph, node, shapes):
        return [self.function.shape(*shapes, **dict(self.options))]

    def pullback(self, tensors, outputs, cotangents):
        if isinstance(cotangents[0].type, DisconnectedType):
            return [DisconnectedType()() for _ in tensors]
        return [_Gradient(self.function, self.options, i)(*cotangents, *tensors) for i in range(len(tensors))]


class _Gradient(Op):
    """The gradient of one of a function's tensors. One that nothing uses is no part of a compiled graph."""

    __props__ = ("function", "options", "index")

    def __init__(self, function, options, index):
        self.function, self.options, self.index = function, options, index

    def make_node(self, grad_output, *tensors):
        return Apply(self, [grad_output, *tensors], [tensors[self.index].type()])

    def perform(self, node, arrays, outputs):
        needs = tuple(i == self.index for i in range(3))
        outputs[0][0] = self.function.gradients(needs, *arrays, **dict(self.options))[self.index]

    def infer_shape(self, fgraph, node, shapes):
        return [shapes[1 + self.index]]


def _hashable(value):
    return tuple(map(_hashable, value)) if isinstance(value, (list, tuple)) else value


def _call(function, tensors, options):
    given = [tensor for tensor in tensors if tensor is not None]  # a bias may be left out
    return _Forward(function, _hashable(sorted(options.items())))(*given)


_FUNCTIONS = publish(__name__, "PyTensor variables", _call)
globals().update(_FUNCTIONS)
__all__ = [*_FUNCTIONS]
