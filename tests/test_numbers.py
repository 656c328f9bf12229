"""Python's numbers beside arrays in the CPU's memory, and alone."""
import numpy as np
import pytest

import infiniop_cy as iop
from infiniop_cy.dtypes import numpy_dtype
from infiniop_cy.operators import OPERATORS

WEAK = (2.0, 2, True)


@pytest.mark.parametrize("operator", [o.name for o in OPERATORS if o.backward])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_python_numbers_are_weak(dtype, operator):
    """They take the other input's dtype, as in NumPy 2; NumPy's own numbers keep theirs."""
    dtype = numpy_dtype(dtype)
    call, x = getattr(iop, operator), np.linspace(-2, 3, 7).astype(dtype)
    for number in WEAK:
        same = np.full(7, number, dtype)
        for args, arrays in (((number, x), (same, x)), ((x, number), (x, same))):
            got, expected = call(*args), call(*arrays)
            assert got.dtype == dtype
            assert got.tobytes() == expected.tobytes(), number


def test_a_number_alone_is_float64():
    assert iop.relu(-1.5).dtype == np.float64
    assert iop.sigmoid_backward(1, 0.0) == 0.25
    with pytest.raises(iop.BadTensorDtype, match="input has dtype float32, expected float64"):
        iop.relu_backward(np.float64(1), np.ones(3, np.float32))


def test_mistakes():
    with pytest.raises(iop.BadTensorDtype, match="gelu_backward: input has dtype int64"):
        iop.gelu_backward(1.0, np.ones(3, np.int64))
    with pytest.raises(iop.BadParam, match="relu_backward: grad_output is too large for float32"):
        iop.relu_backward(10**400, np.ones(3, np.float32))
