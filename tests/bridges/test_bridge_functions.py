"""Every function of every bridge: its values are the library's, its gradients pass the framework's own checker."""
import inspect

import numpy as np
import pytest
from frameworks import FRAMEWORKS

import infiniop_cy as iop
from infiniop_cy.operators import ROWS
from infiniop_cy.testing import CASES, dtype_of

CONVOLUTIONS = {  # shape of input, of weight, whether there is a bias, parameters
    "plain": ((2, 3, 5, 4), (4, 3, 3, 2), True, {}),
    "no bias, everything": ((2, 4, 7, 6), (6, 2, 3, 2), False,
                            {"stride": 2, "padding": ((1, 0), (2, 1)), "dilation": (2, 1), "groups": 2}),
    "one axis, same": ((3, 2, 9), (2, 2, 4), True, {"padding": "same", "num_threads": 1}),
    "three axes": ((1, 2, 3, 4, 3), (2, 2, 2, 2, 2), True, {"stride": [1, 2, 1], "padding": 1}),
}


each_elementwise = pytest.mark.parametrize("case", [case for case in CASES if not case.operator.backward], ids=str)
each_convolution = pytest.mark.parametrize("case", CONVOLUTIONS)


@pytest.fixture(scope="module", params=FRAMEWORKS)
def framework(request):
    return FRAMEWORKS[request.param](request.param)


def tensors_of(case, dtype="float64"):
    """The arrays of a convolution: input, weight, perhaps bias."""
    random = np.random.default_rng(8)
    of_input, of_weight, has_bias, parameters = CONVOLUTIONS[case]
    shapes = [of_input, of_weight, (of_weight[0],)][:2 + has_bias]
    return [random.normal(size=shape).astype(dtype_of(dtype)) for shape in shapes], parameters


def test_every_function_is_there(framework):
    names = {row.name for row in ROWS} | {"conv"}
    assert names <= set(framework.bridge.__all__)
    for name in names:
        function, original = getattr(framework.bridge, name), getattr(iop, name)
        assert function.__name__ == name
        assert f"infiniop_cy.{name}" in function.__doc__
        kept = [p for p in inspect.signature(original).parameters.values() if p.name not in ("out", "device")]
        assert list(inspect.signature(function).parameters.values()) == kept


@each_elementwise
def test_elementwise_values(framework, case):
    function = getattr(framework.bridge, case.operator.name)
    for dtype in framework.dtypes:
        x = np.linspace(-9, 9, 40).reshape(5, 8).astype(dtype_of(dtype))
        expected = case(x)
        value = framework.give(function(framework.take(x), **case.parameters))
        assert value.dtype == x.dtype
        assert np.array_equal(value, expected)


@each_elementwise
def test_elementwise_gradients(framework, case):
    """At points from -4 to 4, none nearer than finite differences reach to where a function has no derivative."""
    def function(x):
        return getattr(framework.bridge, case.operator.name)(x, **case.parameters)
    points = np.linspace(-4, 4, 12) + 0.017
    assert all(np.abs(points - kink).min() > 0.01 for kink in case.operator.row.kinks)
    framework.check(function, points.reshape(3, 4))


@each_convolution
def test_conv_values(framework, case):
    for dtype in framework.dtypes:
        arrays, parameters = tensors_of(case, dtype)
        expected = iop.conv(*arrays, **parameters)
        value = framework.give(framework.bridge.conv(*map(framework.take, arrays), **parameters))
        assert value.dtype == expected.dtype
        assert np.array_equal(value, expected)


@each_convolution
def test_conv_gradients(framework, case):
    arrays, parameters = tensors_of(case)

    def function(*tensors):
        return framework.bridge.conv(*tensors, **parameters)
    framework.check(function, *arrays)


def test_what_is_wrong_is_said_in_the_library_s_words(framework):
    x = framework.take(np.ones((1, 2, 4), np.float32))
    w = framework.take(np.ones((1, 3, 2), np.float32))
    with pytest.raises(iop.BadTensorShape, match=r"conv: weight has length 3 on axis 1, expected 2"):
        framework.give(framework.bridge.conv(x, w))
    with pytest.raises(iop.BadParam, match="approximate is 'erf'"):
        framework.give(framework.bridge.gelu(x, approximate="erf"))
    with pytest.raises(TypeError, match="beta"):
        framework.bridge.gelu(x, beta=2)
    with pytest.raises(TypeError, match="input"):
        framework.bridge.gelu()
