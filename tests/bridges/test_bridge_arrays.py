"""The frameworks' arrays as arguments of the library's own functions, which return NumPy arrays."""
import numpy as np
import pytest
from frameworks import FRAMEWORKS

import infiniop_cy as iop
from infiniop_cy.core import _core
from infiniop_cy.testing import dtype_of


@pytest.mark.parametrize("name", ["jax", "mygrad", "torch"])
def test_arrays_of_the_host_are_taken_without_a_copy(name):
    framework = FRAMEWORKS[name](name)
    for dtype in framework.dtypes:
        x = np.linspace(-3, 3, 24).reshape(2, 3, 4).astype(dtype_of(dtype))
        given = framework.take(x)
        headers = [_core.host_input(given, "gelu", "input") for _ in range(2)]
        assert headers[0].ctypes.data == headers[1].ctypes.data
        result = iop.gelu_backward(given, given)
        assert type(result) is np.ndarray
        assert np.array_equal(result, iop.gelu_backward(x, x))
        assert np.array_equal(iop.conv(given, framework.take(x[:, :, :2])), iop.conv(x, x[:, :, :2]))
        with pytest.raises(TypeError, match="expected a plain ndarray"):
            iop.gelu(x, out=given)


def test_what_is_no_array_of_the_host_is_refused_and_the_bridge_is_named():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    with pytest.raises(TypeError, match=r"input is a Tensor that cannot be .* use tensor\.detach\(\).*bridges\.torch"):
        iop.relu(torch.ones(2, requires_grad=True))
    with pytest.raises(iop.DeviceTypeNotSupported, match="lies on device meta"):
        iop.relu(torch.ones(2, device="meta"))
    t = torch.zeros(2)
    assert iop.relu(torch.ones(2), out=np.from_dlpack(t)).tolist() == t.tolist() == [1, 1]


def test_jax_tracers_are_refused_and_its_results_are_no_output():
    jax = pytest.importorskip("jax", reason="jax is not installed")
    with pytest.raises(TypeError, match=r"relu: input is a .*Tracer without values here; infiniop_cy\.bridges\.jax"):
        jax.jit(iop.relu)(np.ones(2, np.float32))
    with pytest.raises(iop.BadParam, match="out is read-only"):
        iop.relu(np.ones(2, np.float32), out=np.asarray(jax.numpy.ones(2)))


def test_boxes_of_autograd_are_refused_and_the_bridge_is_named():
    autograd = pytest.importorskip("autograd", reason="autograd is not installed")
    with pytest.raises(iop.BadTensorDtype, match=r"relu: input is a ArrayBox, expected an array; .*bridges\.autograd"):
        autograd.grad(lambda x: iop.relu(x).sum())(np.ones(2))


def test_variables_of_pytensor_are_refused_and_the_bridge_is_named():
    pytensor = pytest.importorskip("pytensor", reason="pytensor is not installed")
    with pytest.raises(TypeError, match=r"bridges\.pytensor"):
        iop.relu(pytensor.tensor.vector())
