"""Operators with their parameters, dtypes, shapes and memory layouts to try them on."""
from dataclasses import dataclass, field

import numpy as np

import infiniop_cy as iop
from infiniop_cy.dtypes import STORAGE, numpy_dtype
from infiniop_cy.operators import OPERATORS, Operator

DTYPES = tuple(STORAGE)


@dataclass(frozen=True)
class Case:
    """One operator with one choice of parameters."""

    operator: Operator
    parameters: dict = field(default_factory=dict)

    def __call__(self, *inputs, **keywords):
        """The result for (grad_output, input), or (input,) of a forward function."""
        return getattr(iop, self.operator.name)(*inputs, **self.parameters, **keywords)

    @property
    def count(self):
        """How many inputs a call takes."""
        return len(self.operator.inputs)

    def random(self, rng, shape, dtype, scale=3.0):
        """Random inputs of one shape."""
        return tuple(random_values(rng, shape, dtype, scale) for _ in range(self.count))

    def __str__(self):
        given = ",".join(f"{name}={value}" for name, value in self.parameters.items())
        return f"{self.operator.name}({given})" if given else self.operator.name


def _cases(operator):
    """The defaults, every choice, and for numbers a second value."""
    yield Case(operator)
    for parameter in operator.parameters:
        if parameter.choices:
            others = [value for value in parameter.choices if value != parameter.default]
        elif isinstance(parameter.default, bool):
            others = [not parameter.default]
        else:
            others = [parameter.second]
        for value in others:
            yield Case(operator, {parameter.name: value})


CASES = tuple(case for operator in OPERATORS for case in _cases(operator))
GRADIENTS = tuple(case for case in CASES if case.operator.backward)

SHAPES = {
    "0-d": (),
    "empty": (3, 0, 2),
    "one": (1,),
    "tail": (67,),
    "size-1 axes": (1, 5, 1, 7),
    "matrix": (37, 53),
    "4-d": (2, 3, 5, 7),
    "long rows": (5, 1031),
    "parallel": (3, 211, 157),  # past the parallel threshold, no multiple of a chunk
}


def dtype_of(name):
    """The NumPy dtype, bfloat16 included."""
    dtype = numpy_dtype(name)
    if isinstance(dtype, str):
        raise ModuleNotFoundError("infiniop_cy.testing needs ml_dtypes: pip install 'infiniop_cy[test]'")
    return dtype


def random_values(rng, shape, dtype, scale=3.0):
    """Normally distributed, never 0 (where piecewise operators have their kink)."""
    values = np.asarray(rng.normal(0, scale, shape))
    values = np.where(np.abs(values) < 1e-3, 0.5, values)
    return values.astype(dtype_of(dtype))


def _every_other(values):
    holder = np.zeros(tuple(2 * n for n in values.shape), values.dtype)
    view = holder[(*(slice(1, None, 2) for _ in values.shape), ...)]
    view[...] = values
    return view


def _reversed(values):
    flip = (*(slice(None, None, -1) for _ in values.shape), ...)
    return values[flip].copy(order="C")[flip]


def _padded_rows(values):
    if values.ndim == 0:
        return values.copy()
    holder = np.zeros((*values.shape[:-1], values.shape[-1] + 3), values.dtype)
    holder[..., :values.shape[-1]] = values
    return holder[..., :values.shape[-1]]


def _rotated(values):
    """The last axis outermost in memory, as NHWC is to NCHW."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(values, -1, 0)), 0, -1) if values.ndim else values.copy()


def _channels_last(values):
    """Axis 1 innermost: NHWC for the shape NCHW."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(values, 1, -1)), -1, 1) if values.ndim > 1 else values.copy()


def _odd_offset(values):
    """One element past an aligned start."""
    holder = np.zeros(values.size + 1, values.dtype)
    holder[1:] = values.ravel()
    return holder[1:].reshape(values.shape)


def _last_axis_reversed(values):
    return values[..., ::-1].copy(order="C")[..., ::-1] if values.ndim else values.copy()


# name: function giving an array with the same values in another place
LAYOUTS = {
    "contiguous": np.array,
    "transposed": lambda values: np.array(values, order="F"),
    "rotated": _rotated,
    "channels last": _channels_last,
    "every other": _every_other,
    "reversed": _reversed,
    "padded rows": _padded_rows,
    "odd offset": _odd_offset,
}
MORE_LAYOUTS = {"last axis reversed": _last_axis_reversed}  # which arrange() knows, too


def arrange(values, layout):
    """`values` in the memory layout of that name."""
    result = (LAYOUTS | MORE_LAYOUTS)[layout](values)
    assert (result.shape, result.dtype) == (values.shape, values.dtype)
    return result
