"""Python's numbers beside arrays, wherever these are, and alone."""
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


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("number", [2**63, -2**64, 2**200])
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_large_integers_are_weak(dtype, number):
    """As the floats of their value, infinite ones where the dtype ends before."""
    x = np.ones(3).astype(numpy_dtype(dtype))
    for got, expected in ((iop.relu_backward(number, x), iop.relu_backward(float(number), x)),
                          (iop.silu_backward(x, number), iop.silu_backward(x, float(number)))):
        assert got.dtype == x.dtype
        assert got.tobytes() == expected.tobytes()


def test_a_number_alone_is_float64():
    assert iop.relu(-1.5).dtype == np.float64
    assert iop.sigmoid_backward(1, 0.0) == 0.25
    with pytest.raises(iop.BadTensorDtype, match="input has dtype float32, expected float64"):
        iop.relu_backward(np.float64(1), np.ones(3, np.float32))


MISTAKES = [
    ("beside integers", iop.BadTensorDtype, r"input has dtype int64.*; np.asarray\(input, np.float32\) is one",
     (1.0, np.ones(3, np.int64))),
    ("too large", iop.BadParam, "grad_output is too large for float32", (10**400, np.ones(3, np.float32))),
    ("too large for bfloat16", iop.BadParam, "input is too large for bfloat16",
     (np.ones(3).astype(numpy_dtype("bfloat16")), 2**2000)),
    ("integers alone", iop.BadTensorDtype,
     r"grad_output has dtype int64.*; np.asarray\(grad_output, np.float32\) is one", (1, 2)),
    ("complex", iop.BadTensorDtype, "grad_output has dtype complex128, expected", (1j, np.ones(3, np.float32))),
    ("one of NumPy's", iop.BadTensorDtype, r"input has dtype float32, expected float64 to match grad_output; "
     r"float64 is NumPy's default: np.asarray\(grad_output, input.dtype\)", (np.float64(1), np.ones(3, np.float32))),
    ("none of both", iop.NullPointer, "grad_output is None", (None, 1.0)),
]


@pytest.mark.parametrize(("name", "exception", "message", "args"), MISTAKES, ids=[row[0] for row in MISTAKES])
def test_mistakes(name, exception, message, args):
    with pytest.raises(exception, match=f"gelu_backward: {message}"):
        iop.gelu_backward(*args)


def test_into_a_given_array():
    x = np.linspace(-2, 3, 7, dtype=np.float32)
    out = np.ones(7, np.float32)
    expected = iop.silu_backward(np.float32([3] * 7), x, out=out.copy(), accumulate=True)
    assert iop.silu_backward(3, x, out=out, accumulate=True) is out
    assert np.array_equal(out, expected)
    with pytest.raises(TypeError, match="relu: out is "):
        iop.relu(x, out=1.0)
    with pytest.raises((TypeError, iop.BadTensorShape), match="conv: weight "):
        iop.conv(np.ones((1, 1, 2, 2), np.float32), 2.0)
