"""The quick way of a call and the general one are one: the same results, the same errors."""
import numpy as np
import pytest
from rotation import each_case

import infiniop_cy as iop
from infiniop_cy.testing import GRADIENTS, random_values, same_bits


def operator_of(case):
    return getattr(iop, case.operator.name)


@each_case(n=[0, 1, 1000, 5000, 70000],  # few: under the GIL; many: in several threads
           options=[{}, {"num_threads": 1}, {"num_threads": 2}, {"device": None}, {"device": "cpu"}, {"out": None}])
def test_quick_is_general(case, n, options, rng):
    inputs = case.random(rng, (n,), "float32")
    operator = operator_of(case)
    expected = operator.general(*inputs, **case.parameters, **options)
    assert same_bits(operator(*inputs, **case.parameters, **options), expected)
    by_name = dict(zip(case.operator.inputs, inputs))
    assert same_bits(operator(**by_name, **case.parameters, **options), expected)
    assert same_bits(operator.__call__(*inputs, **case.parameters, **options), expected)


@each_case()
def test_quick_out_of_a_forward_function(case, rng):
    inputs = case.random(rng, (3, 700), "float64")
    outs = np.zeros((2, 3, 700))
    operator = operator_of(case)
    for call, out in zip((operator, operator.general), outs):
        assert call(*inputs, **case.parameters, out=out) is out
    assert same_bits(*outs)
    assert same_bits(operator(*inputs, **case.parameters, out=inputs[-1]), outs[0])


@each_case(cases=GRADIENTS, accumulate=[False, True])
def test_quick_out(case, accumulate, rng):
    g, x, old = (random_values(rng, (3, 700), "float64") for _ in range(3))
    outs = old.copy(), old.copy()
    operator = operator_of(case)
    assert operator(g, x, **case.parameters, out=outs[0], accumulate=accumulate) is outs[0]
    assert operator.general(g, x, **case.parameters, out=outs[1], accumulate=accumulate) is outs[1]
    assert same_bits(*outs)


def test_parameters_by_position_and_as_other_numbers(rng):
    g, x = random_values(rng, (50,), "float32"), random_values(rng, (50,), "float32")
    expected = iop.leaky_relu_backward.general(g, x, negative_slope=2.0)
    for slope in (2.0, 2, np.float32(2), np.int8(2)):
        assert same_bits(iop.leaky_relu_backward(g, x, slope), expected)
        assert same_bits(iop.leaky_relu_backward(g, x, negative_slope=slope), expected)


def test_keywords_are_compared_by_value(rng):
    """A name made at run time is another object than the one in the code."""
    g, x = random_values(rng, (50,), "float32"), random_values(rng, (50,), "float32")
    name = "".join(["appro", "ximate"])
    assert same_bits(iop.gelu_backward(g, x, **{name: "".join(["ta", "nh"])}),
                     iop.gelu_backward(g, x, approximate="tanh"))


def test_a_subclass_may_define_call():
    class Doubled(type(iop.relu_backward)):
        def __call__(self, g, x):
            return 2 * super().__call__(g, x)

    g = np.ones(3, np.float32)
    assert Doubled(iop.relu_backward.definition)(g, g).tolist() == [2, 2, 2]


@pytest.mark.parametrize(("arguments", "keywords", "exception"), [
    ((), {}, TypeError), ((1,), {}, TypeError), ((1, 2, 3, 4), {}, TypeError), ((1, 2), {"no_such": 1}, TypeError),
    ((1, 2, 0.1), {"negative_slope": 0.1}, TypeError), ((1, 2), {"input": 3}, TypeError),
    ((1, 2), {"negative_slope": "x"}, ValueError), ((1, 2), {"num_threads": True}, ValueError),
    ((1, 2), {"num_threads": 0}, ValueError), ((1, 2), {"accumulate": True}, ValueError),
    ((1, 2), {"negative_slope": -1.0, "self_is_result": True}, ValueError)], ids=str)
def test_wrong_calls_fail_alike(arguments, keywords, exception):
    """1, 2, ... stand for arrays as far as they are the first two."""
    arrays = (np.ones(5, np.float32),) * 2
    arguments = (*arrays[:len(arguments)], *arguments[2:])
    with pytest.raises(exception) as quick:
        iop.leaky_relu_backward(*arguments, **keywords)
    with pytest.raises(exception) as general:
        iop.leaky_relu_backward.general(*arguments, **keywords)
    assert str(quick.value) == str(general.value)
