"""The two directions of a convolution, as the properties see them: their arrays, and what is right."""
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from infiniop_cy.check.calls import CONVOLUTIONS
from infiniop_cy.testing.cases import dtype_of
from infiniop_cy.testing.conv import reference_conv_backward, reference_conv_forward


def _gradients(arrays, geometry):
    return reference_conv_backward(*arrays, *geometry)


def _output(arrays, geometry):
    """Of input and weight, and of a bias where there is one."""
    result = reference_conv_forward(*arrays[:2], *geometry)
    for bias in arrays[2:]:
        result += bias.astype(float).reshape(-1, *(1,) * (result.ndim - 2))
    return (result,)


def _spoil_gradient(arrays):
    g, x, _ = arrays
    g[1, 0, 2, 3], g[2, 5, 4, 6], x[0, 1, 3, 4] = np.nan, np.inf, np.inf


def _spoil_input(arrays):
    x = arrays[0]
    x[1, 0, 2, 3], x[2, 3, 4, 6] = np.nan, np.inf


@dataclass(frozen=True)
class Direction:
    """shapes(case): of all inputs. exact(arrays, geometry): all outputs in float64. terms(case): the summands of an
    element of each output, at most. batched: how many inputs, the first ones, have samples; the first output has.
    spoil(arrays): writes NaN and inf to samples 1 and 2, and to sample 0 only what is no term of its first output."""

    name: str
    shapes: Callable
    exact: Callable
    terms: Callable
    batched: int
    spoil: Callable
    biased: bool = False  # whether the last input is a bias, which may be left out

    @property
    def outputs(self):
        return CONVOLUTIONS[self.name].outputs

    def without_bias(self):
        """The same for a candidate that takes none."""
        return replace(self, shapes=lambda case: self.shapes(case)[:-1], biased=False)

    def integers(self, case, dtype, rng):
        """The case's arrays; partial sums stay exact even in bfloat16 where there are few terms."""
        most = 8 if dtype_of(dtype).itemsize > 2 else 2
        return tuple(rng.integers(-most, most + 1, shape).astype(dtype_of(dtype)) for shape in self.shapes(case))

    def normal(self, case, dtype, rng):
        """The case's arrays, of normally distributed numbers."""
        return tuple(rng.standard_normal(shape).astype(dtype_of(dtype)) for shape in self.shapes(case))


DIRECTIONS = {direction.name: direction for direction in (
    Direction("conv", lambda case: (*case.shapes[1:], (case.cout,)), _output,
              lambda case: (case.shapes[2][1] * int(np.prod(case.kernel)) + 1,), 1, _spoil_input, True),
    Direction("conv_backward", lambda case: case.shapes, _gradients, lambda case: case.terms, 2, _spoil_gradient),
)}
