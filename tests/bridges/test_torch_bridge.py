"""What the bridge to torch promises beyond values and gradients."""
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import infiniop_cy as iop
from infiniop_cy.bridges import torch as bridge
from infiniop_cy.bridges._functions import FUNCTIONS
from infiniop_cy.testing import dtype_of


def numbers(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(7)).to(dtype)


def bits(tensor):
    """A tensor as a NumPy array, bfloat16 included."""
    if tensor.dtype == torch.bfloat16:
        return tensor.detach().view(torch.int16).numpy().view(dtype_of("bfloat16"))
    return tensor.detach().numpy()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_gradients_of_16_bits_are_the_library_s(dtype):
    x, w, b = (t.requires_grad_() for t in (numbers(2, 3, 6, 5, dtype=dtype), numbers(4, 3, 3, 3, dtype=dtype),
                                            numbers(4, dtype=dtype)))
    out = bridge.gelu(bridge.conv(x, w, b, stride=2, padding=1), approximate="tanh")
    g = numbers(*out.shape, dtype=dtype)
    out.backward(g)
    inner = iop.conv(bits(x), bits(w), bits(b), stride=2, padding=1)
    expected = iop.conv_backward(iop.gelu_backward(bits(g), inner, approximate="tanh"), bits(x), bits(w), stride=2,
                                 padding=1)
    for tensor, gradient in zip((x, w, b), expected):
        assert tensor.grad.dtype == dtype
        assert np.array_equal(bits(tensor.grad), gradient)


class Seen:
    """Stands for an operator, and keeps what it was given and what it gave."""

    def __init__(self, operator):
        self.operator, self.calls = operator, []

    def __call__(self, *arrays, **options):
        result = self.operator(*arrays, **options)
        self.calls.append((arrays, options, result))
        return result


@pytest.fixture
def seen(monkeypatch):
    """The operators of conv, watched."""
    watched = Seen(iop.conv), Seen(iop.conv_backward)
    for name, operator in zip(("forward", "backward"), watched):
        monkeypatch.setitem(FUNCTIONS[-1].__dict__, name, operator)
    return watched


@pytest.mark.parametrize("layout", [lambda t: t, lambda t: t.to(memory_format=torch.channels_last),
                                    lambda t: t.transpose(2, 3), lambda t: t[:, :, ::2]],
                         ids=["contiguous", "channels last", "transposed", "sliced"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_nothing_is_copied(seen, layout, dtype):
    x = layout(numbers(2, 4, 8, 8, dtype=dtype)).requires_grad_()
    w = numbers(3, 4, 2, 2, dtype=dtype)
    out = bridge.conv(x, w)
    grad, = torch.autograd.grad(out.sum(), x)  # the sum's own gradient has stride 0
    (arrays, _, result), = seen[0].calls
    assert [a.ctypes.data for a in arrays[:2]] == [x.data_ptr(), w.data_ptr()]
    assert arrays[0].strides == tuple(step * x.element_size() for step in x.stride())
    assert out.data_ptr() == result.ctypes.data
    (arrays, options, gradients), = seen[1].calls
    assert arrays[0].strides == (0, 0, 0, 0)
    assert arrays[1].ctypes.data == x.data_ptr()
    assert options == {"output_mask": (True, False, False)}
    assert grad.data_ptr() == gradients.grad_input.ctypes.data


def test_only_what_is_needed_is_computed(seen):
    x, w, b = numbers(1, 2, 4), numbers(3, 2, 2).requires_grad_(), numbers(3).requires_grad_()
    bridge.conv(x, w, b).sum().backward()
    assert seen[1].calls[0][1]["output_mask"] == (False, True, True)
    with torch.no_grad():
        assert not bridge.conv(x, w, b).requires_grad
    assert len(seen[1].calls) == 1


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_modules_are_torch_s_with_other_kernels(axes):
    theirs = getattr(torch.nn, f"Conv{axes}d")(4, 6, 3, stride=2, padding=1, dilation=1, groups=2, dtype=torch.float64)
    ours = getattr(bridge, f"Conv{axes}d")(4, 6, 3, stride=2, padding=1, dilation=1, groups=2, dtype=torch.float64)
    ours.load_state_dict(theirs.state_dict())
    x = numbers(2, 4, *(7,) * axes, dtype=torch.float64)
    gradients = []
    for module in (theirs, ours):
        out = torch.nn.Sequential(module, torch.nn.GELU())(x)
        gradients.append([out, *torch.autograd.grad(out.square().sum(), module.parameters())])
    for expected, got in zip(*gradients):
        torch.testing.assert_close(got, expected)


def test_module_with_other_padding_is_refused():
    with pytest.raises(NotImplementedError, match="padding_mode is 'reflect'"):
        bridge.Conv2d(1, 1, 3, padding=1, padding_mode="reflect")(numbers(1, 1, 4, 4))


def test_a_second_derivative_is_refused():
    x = numbers(3).requires_grad_()
    gradient, = torch.autograd.grad(bridge.gelu(x).sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="gelu: a second derivative"):
        gradient.sum().backward()


def test_transforms_of_functions():
    x, w = numbers(5, 2, 4, 4), numbers(3, 2, 2, 2)

    def loss(convolution, activation):
        return lambda w, x: activation(convolution(x[None], w)).square().sum()
    got, expected = (torch.func.vmap(torch.func.grad(loss(*functions)), (None, 0))(w, x) for functions in
                     ((bridge.conv, bridge.silu), (torch.nn.functional.conv2d, torch.nn.functional.silu)))
    torch.testing.assert_close(got, expected)


def test_transforms_of_empty_batches():
    x, w = numbers(0, 2, 1, 5), numbers(3, 1, 2)
    assert torch.func.vmap(lambda x: bridge.conv(x, w))(x).shape == (0, 2, 3, 4)
    gradients = torch.func.vmap(torch.func.grad(lambda w, x: bridge.conv(x, w).sum()), (None, 0))(w, x)
    assert gradients.shape == (0, 3, 1, 2)


def test_module_takes_one_sample_without_an_axis():
    layer, x = bridge.Conv1d(2, 3, 2), numbers(2, 5)
    torch.testing.assert_close(layer(x), torch.nn.functional.conv1d(x, layer.weight, layer.bias))


def test_tensors_to_be_negated_are_refused():
    """Views whose memory has the opposite sign."""
    x = torch.complex(torch.ones(3), torch.ones(3)).conj().imag
    with pytest.raises(TypeError, match=r"relu: input is a tensor that is yet to be negated.* call resolve_neg"):
        iop.relu(x)
    assert iop.relu(x.resolve_neg()).tolist() == [0, 0, 0]


def test_compiled_module_computes_the_same():
    layer = bridge.Conv2d(2, 3, 3)
    x = numbers(1, 2, 5, 5)

    def loss(x):
        return bridge.mish(layer(x) + 1).sum()
    expected = torch.autograd.grad(loss(x), layer.weight)
    got = torch.autograd.grad(torch.compile(loss, backend="eager")(x), layer.weight)
    assert torch.equal(got[0], expected[0])


def test_tensors_elsewhere_are_refused():
    with pytest.raises(iop.DeviceTypeNotSupported, match="device meta, expected cpu or cuda"):
        bridge.relu(torch.ones(2, device="meta"))
    with pytest.raises(iop.BadTensorDtype, match="relu: input has dtype int64"):
        bridge.relu(torch.ones(2, dtype=torch.int64))
