"""What the bridges to autograd, MyGrad and PyTensor promise beyond values and gradients."""
import numpy as np
import pytest

import infiniop_cy as iop


@pytest.fixture
def masks(monkeypatch):
    """The output_mask of every conv_backward."""
    from infiniop_cy.bridges._functions import FUNCTIONS
    seen = []

    def watched(*arrays, output_mask, **options):
        seen.append(output_mask)
        return iop.conv_backward(*arrays, output_mask=output_mask, **options)
    monkeypatch.setitem(FUNCTIONS[-1].__dict__, "backward", watched)
    return seen


X, W, B = np.ones((1, 2, 5)), np.ones((3, 2, 2)), np.ones(3)


def test_autograd(masks):
    autograd = pytest.importorskip("autograd", reason="autograd is not installed")
    from infiniop_cy.bridges.autograd import conv, gelu
    gradients = autograd.grad(lambda w, b: gelu(conv(X, w, b)).sum(), argnum=(0, 1))(W, B)
    assert masks == [(False, True, True)]
    assert [g.shape for g in gradients] == [W.shape, B.shape]
    assert autograd.grad(gelu)(0.0) == 0.5
    mixed = autograd.grad(lambda x: (gelu(x) * np.ones(3)).sum())(np.zeros(3, np.float32))  # in float64 from there on
    assert (mixed.dtype, mixed.tolist()) == (np.float32, [0.5] * 3)
    with pytest.raises(NotImplementedError, match="gelu: a second derivative"):
        autograd.grad(autograd.grad(gelu))(0.5)


def test_mygrad(masks):
    mygrad = pytest.importorskip("mygrad", reason="mygrad is not installed")
    from infiniop_cy.bridges.mygrad import conv
    w = mygrad.tensor(W)
    conv(X, w, B).sum().backward()
    assert masks == [(False, True, False)]
    assert np.array_equal(w.grad, np.full(W.shape, 4.0))


def test_pytensor(masks):
    pytensor = pytest.importorskip("pytensor", reason="pytensor is not installed")
    from infiniop_cy.bridges.pytensor import conv, gelu
    x, w = pytensor.tensor.tensor3("x"), pytensor.tensor.tensor3("w")
    out = conv(x, w, padding="same")
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        gradient = pytensor.function([x, w], pytensor.grad(gelu(out).sum(), w))
        assert gradient(X, W).shape == W.shape
        assert masks == [(False, True, False)]  # that of x is no part of the graph
        shape = pytensor.function([x, w], out.shape, mode="FAST_RUN" if not pytensor.config.cxx else None)
    assert shape(X, W).tolist() == [1, 3, 5]


def test_pytensor_by_its_default_linker():
    pytensor = pytest.importorskip("pytensor", reason="pytensor is not installed")
    from infiniop_cy.bridges.pytensor import silu
    x = pytensor.tensor.vector("x")
    with pytensor.config.change_flags(mode="Mode"):
        gradient = pytensor.function([x], pytensor.grad(silu(x).sum(), x))
    assert np.array_equal(gradient(B), iop.silu_backward(np.ones(3), B))
