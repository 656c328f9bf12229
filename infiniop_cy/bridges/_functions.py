"""What the bridges share: each function with its gradients, on NumPy arrays, and how a bridge publishes it.

A bridge is one function, call(function, tensors, options), which computes a Function of this module on its framework's
tensors and teaches the framework its gradients. All else follows from the table of operators.
"""
from dataclasses import dataclass
from functools import cached_property
from inspect import Signature, signature
from typing import ClassVar

import infiniop_cy as iop
from infiniop_cy.functions import geometry, output_extents
from infiniop_cy.operators import ROWS
from infiniop_cy.status import NotImplementedOperator

# Of the operators' own parameters: what makes no sense where a framework makes the results and knows where they are.
_LEFT_OUT = ("out", "device")
_DOC = """\
{name}{signature}

    infiniop_cy.{name} on {arrays}, differentiated by infiniop_cy.{name}_backward. See there for shapes, dtypes,
    parameters, accuracy and errors.
    """


@dataclass(frozen=True)
class Function:
    """An elementwise function and its gradient."""

    name: str

    tensors: ClassVar[tuple[str, ...]] = ("input",)

    @cached_property
    def forward(self):
        """f(*tensors, **options): the operator."""
        return getattr(iop, self.name)

    @cached_property
    def backward(self):
        return getattr(iop, self.name + "_backward")

    @cached_property
    def signature(self):
        """The operator's, without what a framework decides."""
        return Signature([p for p in signature(self.forward).parameters.values() if p.name not in _LEFT_OUT])

    def gradients(self, needs, grad_output, input, **options):
        """The gradient of each tensor that is needed, None of the others. needs: a flag for each."""
        return (self.backward(grad_output, input, **options) if needs[0] else None,)

    def first_derivatives_only(self):
        """What to raise where a gradient is differentiated."""
        return NotImplementedOperator(f"{self.name}: a second derivative, expected first ones only")

    def shape(self, input, **options):
        """The shape of the result, of the shapes of the tensors."""
        return tuple(input)

    def bind(self, args, given):
        """(tensors, options) of a call. A tensor that was left out is None."""
        options = self.signature.bind(*args, **given).arguments
        return tuple(options.pop(name, None) for name in self.tensors), options


class Convolution(Function):
    """conv. Its bias may be None."""

    tensors: ClassVar[tuple[str, ...]] = ("input", "weight", "bias")

    def gradients(self, needs, grad_output, input, weight, bias=None, **options):
        return tuple(self.backward(grad_output, input, weight, output_mask=tuple(needs), **options))

    def shape(self, input, weight, bias=None, *, stride=1, padding=0, dilation=1, groups=1, num_threads=None):
        *steps, _ = geometry(self.name, weight, stride, padding, dilation, groups)
        return (input[0], weight[0], *output_extents(input, weight, *steps))


FUNCTIONS = (*(Function(row.name) for row in ROWS), Convolution("conv"))


def publish(module, arrays, call):
    """{name: function} for a bridge. module: its name; arrays: what it takes, in words."""
    return {function.name: _published(function, module, arrays, call) for function in FUNCTIONS}


def _published(function, module, arrays, call):
    def public(*args, **given):
        tensors, options = function.bind(args, given)
        return call(function, tensors, options)

    public.__name__ = public.__qualname__ = function.name
    public.__module__ = module
    public.__signature__ = function.signature
    public.__doc__ = _DOC.format(name=function.name, signature=function.signature, arrays=arrays)
    return public
