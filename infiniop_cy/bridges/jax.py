"""Differentiable functions for JAX (jax.dev), on its arrays, under jit, grad and vmap.

    >>> import jax, jax.numpy as jnp
    >>> from infiniop_cy.bridges.jax import gelu
    >>> jax.jit(jax.grad(lambda x: gelu(x).sum()))(jnp.ones(3))

XLA calls the compiled kernels by its typed FFI, on buffers where they are, without Python and without the GIL
(core/jax/handlers.pxi). What is wrong with a call is said when it is traced. Reverse mode, first derivatives, CPUs.
"""
from functools import partial
from operator import index

import jax
import numpy as np
from jax.custom_derivatives import SymbolicZero

from infiniop_cy import Handle, TensorDescriptor, threads
from infiniop_cy.backends.cpu import ForwardPlan
from infiniop_cy.bridges._functions import Convolution, publish
from infiniop_cy.core._core import xla_handlers
from infiniop_cy.descriptors import DESCRIPTORS
from infiniop_cy.functions import geometry
from infiniop_cy.operators import BY_NAME, values_of

for _name, _capsule in xla_handlers().items():
    jax.ffi.register_ffi_target(_name, _capsule, platform="cpu")

_FOR_GRADIENTS = (1, 2, 4)  # of core/conv/algorithm.pxi: what a convolution is to compute
_FOR_OUTPUT = 16


def _described(array):
    return TensorDescriptor(array.shape, array.dtype.name)


def _at_most(num_threads):
    """The attribute of a call, 64 bits wide; 0 for no limit of its own. threads() raises BadParam for what is none."""
    if num_threads is None:
        return np.zeros(1, np.int64)
    threads(num_threads)
    return np.array([min(index(num_threads), 2**31 - 1)], np.int64)


def _elementwise(operator, tensors, num_threads=None, **parameters):
    """One direction of a row, on (input,) or (input, grad_output). A descriptor checks the call."""
    described = map(_described, (tensors[0], *tensors))
    with Handle("cpu") as handle, DESCRIPTORS[operator.class_name + "Descriptor"](
            handle, *described, **parameters) as plan:
        formula, values = values_of(operator, plan.parameters)
    result = jax.ShapeDtypeStruct(tensors[0].shape, tensors[0].dtype)
    call = jax.ffi.ffi_call("infiniop_cy_elementwise", result, vmap_method="broadcast_all")
    return call(*tensors, formula=formula, values=np.array((*values, 0.0)), threads=_at_most(num_threads))


def _conv(wanted, shapes, tensors, *, stride=1, padding=0, dilation=1, groups=1, num_threads=None):
    """What is wanted of a convolution, as arrays of these shapes. tensors: (input, weight[, bias]) or (grad_output,
    input, weight)."""
    weight = tensors[1 if wanted == _FOR_OUTPUT else 2]
    steps, pairs, dilations, groups = geometry("conv", weight.shape, stride, padding, dilation, groups)
    if wanted == _FOR_OUTPUT:  # else it has been checked
        shape = tuple(max(0, n) for n in shapes[0])
        bias = _described(tensors[2]) if len(tensors) > 2 else None
        ForwardPlan(TensorDescriptor(shape, weight.dtype.name), *map(_described, tensors[:2]), bias, steps, pairs,
                    dilations, groups)
    three = [(*values, *(3 - len(steps)) * (0,)) for values in (steps, *zip(*pairs), dilations)]
    numbers = np.array([*np.ravel(three), groups, wanted])
    results = [jax.ShapeDtypeStruct(shape, weight.dtype) for shape in shapes]
    call = jax.ffi.ffi_call("infiniop_cy_conv", results, vmap_method="sequential")
    return call(*tensors, numbers=numbers, threads=_at_most(num_threads))


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _differentiable(function, options, *tensors):
    if not isinstance(function, Convolution):
        return _elementwise(BY_NAME[function.name], tensors, **options)
    shape = function.shape(*(tensor.shape for tensor in tensors), **options)
    return _conv(_FOR_OUTPUT, [shape], tensors, **options)[0]


def _forward(function, options, *primals):
    tensors = tuple(primal.value for primal in primals)
    # Which are differentiated is known when this is traced; it travels as structure, not as data.
    needs = tuple(() if primal.perturbed else None for primal in primals)
    return _differentiable(function, options, *tensors), (tensors, needs)


def _backward(function, options, residuals, grad_output):
    tensors, needs = residuals
    needs = [need is not None and not isinstance(grad_output, SymbolicZero) for need in needs]
    if not any(needs):
        return (None,) * len(tensors)
    if not isinstance(function, Convolution):
        return (_elementwise(BY_NAME[function.name + "_backward"], (*tensors, grad_output), **options),)
    wanted = sum(bit for bit, need in zip(_FOR_GRADIENTS, needs) if need)
    shapes = [tensor.shape for tensor, need in zip(tensors, needs) if need]
    gradients = iter(_conv(wanted, shapes, (grad_output, *tensors[:2]), **options))
    return tuple(next(gradients) if need else None for need in needs)


_differentiable.defvjp(_forward, _backward, symbolic_zeros=True)


def _call(function, tensors, options):
    given = [jax.numpy.asarray(tensor) for tensor in tensors if tensor is not None]  # a bias may be left out
    return _differentiable(function, options, *given)


_FUNCTIONS = publish(__name__, "JAX arrays", _call)
globals().update(_FUNCTIONS)
__all__ = [*_FUNCTIONS]
