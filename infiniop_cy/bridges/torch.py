"""Differentiable functions for torch (pytorch.org), on its tensors, and the convolution modules made of them.

    >>> import torch
    >>> from infiniop_cy.bridges.torch import Conv2d, gelu
    >>> layer = Conv2d(3, 16, 3, padding=1, dtype=torch.float16)      # a torch.nn.Conv2d
    >>> gelu(layer(images)).sum().backward()

CPU tensors are read where they are, whatever their strides, and results are not copied; CUDA tensors take infiniop_cy's
way to a GPU, or are refused with its reasons. First derivatives; torch.func's grad and vmap; torch.compile breaks the
graph around them.
"""
import torch

from infiniop_cy import DeviceTypeNotSupported
from infiniop_cy.bridges._functions import Convolution, publish
from infiniop_cy.dtypes import numpy_dtype


def _array(tensor):
    """A CPU tensor's memory as a NumPy array; CUDA tensors, and what is none, as they are."""
    if not isinstance(tensor, torch.Tensor) or tensor.is_cuda:
        return tensor
    if tensor.device.type != "cpu":
        raise DeviceTypeNotSupported(f"a tensor is on device {tensor.device}, expected cpu or cuda")
    if tensor.dtype == torch.bfloat16:  # which NumPy knows by ml_dtypes and torch does not hand over
        return tensor.detach().view(torch.int16).numpy().view(numpy_dtype("bfloat16"))
    return tensor.detach().numpy()


def _tensor(result):
    """A result as a tensor over the same memory; None and tensors as they are."""
    if result is None or isinstance(result, torch.Tensor):
        return result
    if result.dtype.name == "bfloat16":
        return torch.from_numpy(result.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(result)


class _Bridge(torch.autograd.Function):
    """What both directions share. The arguments are what is fixed, the Function first, and then the tensors."""

    fixed = 2

    @classmethod
    def vmap(cls, info, in_dims, *arguments):
        """An elementwise function takes the batch as a larger tensor, a convolution one part after the other."""
        fixed, tensors = arguments[:cls.fixed], arguments[cls.fixed:]
        parts = [None if t is None else t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)
                 for t, dim in zip(tensors, in_dims[cls.fixed:])]
        if not isinstance(fixed[0], Convolution):
            result = cls.apply(*fixed, *parts)
        elif info.batch_size == 0:  # of parts like one of zeros
            one = cls.apply(*fixed, *(None if t is None else t.new_zeros(t.shape[1:]) for t in parts))
            result = one[None][:0] if isinstance(one, torch.Tensor) else tuple(
                None if each is None else each[None][:0] for each in one)
        else:
            results = [cls.apply(*fixed, *(None if t is None else t[i] for t in parts))
                       for i in range(info.batch_size)]
            result = torch.stack(results) if isinstance(results[0], torch.Tensor) else tuple(
                None if each[0] is None else torch.stack(each) for each in zip(*results))
        return result, (tuple(None if each is None else 0 for each in result) if isinstance(result, tuple) else 0)


class _Forward(_Bridge):
    @staticmethod
    def forward(function, options, *tensors):
        return _tensor(function.forward(*map(_array, tensors), **options))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.function, ctx.options, *tensors = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx, grad_output):
        gradients = _Gradients.apply(ctx.function, ctx.options, ctx.needs_input_grad[2:], grad_output,
                                     *ctx.saved_tensors)
        return None, None, *gradients


class _Gradients(_Bridge):
    """A node of its own, so that whoever differentiates it is told, and does not get 0."""

    fixed = 3

    @staticmethod
    def forward(function, options, needs, grad_output, *tensors):
        return tuple(map(_tensor, function.gradients(needs, _array(grad_output), *map(_array, tensors), **options)))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.function = inputs[0]

    @staticmethod
    def backward(ctx, *_):
        raise ctx.function.first_derivatives_only()


def _call(function, tensors, options):
    return _Forward.apply(function, options, *tensors)


_FUNCTIONS = publish(__name__, "torch tensors", _call)
globals().update(_FUNCTIONS)


class _Convolution:
    """A module of torch.nn whose forward and gradients are this library's. Its parameters, their start values and its
    state dict are torch's. padding_mode: "zeros"."""

    def forward(self, input):
        if input.ndim == self.weight.ndim - 1:  # one sample without an axis for it
            return self.forward(input[None])[0]
        if self.padding_mode != "zeros":
            raise NotImplementedError(f"padding_mode is {self.padding_mode!r}, expected 'zeros'")
        return _FUNCTIONS["conv"](input, self.weight, self.bias, stride=self.stride, padding=self.padding,
                                  dilation=self.dilation, groups=self.groups)


class Conv1d(_Convolution, torch.nn.Conv1d):
    __doc__ = _Convolution.__doc__


class Conv2d(_Convolution, torch.nn.Conv2d):
    __doc__ = _Convolution.__doc__


class Conv3d(_Convolution, torch.nn.Conv3d):
    __doc__ = _Convolution.__doc__


__all__ = ["Conv1d", "Conv2d", "Conv3d", *_FUNCTIONS]
