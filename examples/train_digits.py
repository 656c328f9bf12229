"""Train a small convolutional network on real handwritten digits, with every gradient from infiniop_cy.

The data are the 1,797 handwritten digits of scikit-learn's load_digits, 8x8 pixels each. The forward pass is plain
NumPy; the backward pass is written out by hand, layer by layer, and uses all five operators of the library:

    input (1, 8, 8) -> conv 3x3 -> gelu -> conv 3x3, stride 2 -> leaky_relu -> dense -> relu -> dense -> sigmoid

There is no automatic differentiation: each layer has a forward() that keeps its input and a backward() that turns
grad_output, the gradient of the loss with respect to the layer's output, into grad_input, the same for its input.

    python examples/train_digits.py                      # float32
    python examples/train_digits.py --dtype bfloat16     # 16-bit activations, gradients and weights

Prints the accuracy on digits that the network never saw, writes a picture, and fails below 97 %.
"""
import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

import infiniop_cy as iop

DTYPES = ("float32", "float64", "bfloat16", "float16")
REQUIRED_ACCURACY = 0.97
BATCH_SIZE = 64
LEARNING_RATE = 3e-3
# Gradients of float16 below 6e-8 would vanish, so the loss is multiplied by this, and the weights' gradients divided.
LOSS_SCALE = {"float16": 1024.0}


def storage_dtype(name):
    """The NumPy dtype of activations, gradients and weights."""
    if name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise SystemExit("bfloat16 needs the package ml_dtypes: pip install ml_dtypes") from None
    return np.dtype(ml_dtypes.bfloat16)


class Context:
    """What all layers share: the dtypes, the random numbers, and the calls of infiniop_cy, which it counts."""

    def __init__(self, dtype="float32", device=None, seed=0):
        self.storage = storage_dtype(dtype)
        self.compute = np.dtype("float64" if dtype == "float64" else "float32")
        self.loss_scale = LOSS_SCALE.get(dtype, 1.0)
        self.random = np.random.default_rng(seed)
        self.device, self.calls = device, Counter()

    def call(self, operator, *arrays, **parameters):
        self.calls[operator.__name__] += 1
        return operator(*arrays, device=self.device, **parameters)


class Parameter:
    """A weight or bias: a master copy in compute precision, updated by Adam, and a rounded one for the layers."""

    def __init__(self, context, initial):
        self.context = context
        self.master = initial.astype(context.compute)
        self.stored = self.master.astype(context.storage)
        self.mean, self.square = np.zeros_like(self.master), np.zeros_like(self.master)

    def update(self, gradient, rate, step, decay=(0.9, 0.999)):
        gradient = gradient.astype(self.context.compute) / self.context.loss_scale
        self.mean += (1 - decay[0]) * (gradient - self.mean)
        self.square += (1 - decay[1]) * (gradient**2 - self.square)
        mean, square = self.mean / (1 - decay[0]**step), self.square / (1 - decay[1]**step)
        self.master -= rate * mean / (np.sqrt(square) + 1e-8)
        self.stored = self.master.astype(self.context.storage)


class Layer:
    """forward() computes in float32 (float64 for float64) and rounds the result to the storage dtype."""

    def __init__(self, context):
        self.context = context

    def forward(self, input):
        self.input = input
        return self.function(input.astype(self.context.compute)).astype(self.context.storage)


class Gelu(Layer):
    def function(self, x):
        return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * x * (1 + 0.044715 * x * x)))

    def backward(self, grad_output):
        return self.context.call(iop.gelu_backward, grad_output, self.input, approximate="tanh")


class LeakyRelu(Layer):
    negative_slope = 0.1

    def function(self, x):
        return np.where(x > 0, x, x * self.negative_slope)

    def backward(self, grad_output):
        return self.context.call(iop.leaky_relu_backward, grad_output, self.input, self.negative_slope)


class Relu(Layer):
    def function(self, x):
        return np.maximum(x, 0)

    def backward(self, grad_output):
        return self.context.call(iop.relu_backward, grad_output, self.input)


class Sigmoid(Layer):
    def function(self, x):
        return (1 + np.tanh(x / 2)) / 2  # 1 / (1 + exp(-x)) without overflow

    def backward(self, grad_output):
        return self.context.call(iop.sigmoid_backward, grad_output, self.input)


class Flatten(Layer):
    def forward(self, input):
        self.shape = input.shape
        return input.reshape(len(input), -1)

    def backward(self, grad_output):
        return grad_output.reshape(self.shape)


class Weighted(Layer):
    """A layer with weight and bias. backward() leaves their gradients in grad_weight and grad_bias."""

    def __init__(self, context, weight_shape):
        super().__init__(context)
        deviation = np.sqrt(2 / np.prod(weight_shape[1:]))
        self.weight = Parameter(context, context.random.normal(0, deviation, weight_shape))
        self.bias = Parameter(context, np.zeros(weight_shape[0]))

    def update(self, rate, step):
        self.weight.update(self.grad_weight, rate, step)
        self.bias.update(self.grad_bias, rate, step)


class Conv(Weighted):
    """A 3x3 convolution; input is (N, channels, height, width)."""

    def __init__(self, context, channels_in, channels_out, stride=1, is_first=False):
        super().__init__(context, (channels_out, channels_in, 3, 3))
        self.geometry = {"stride": stride, "padding": 1}
        self.is_first = is_first  # the gradient of the images is not needed

    def function(self, x):
        stride = self.geometry["stride"]
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::stride, ::stride]
        weight, bias = self.weight.stored.astype(x.dtype), self.bias.stored.astype(x.dtype)
        return np.moveaxis(np.tensordot(windows, weight, axes=((1, 4, 5), (1, 2, 3))) + bias, -1, 1)

    def backward(self, grad_output):
        grad_input, self.grad_weight, self.grad_bias = self.context.call(
            iop.conv_backward, grad_output, self.input, self.weight.stored,
            output_mask=(not self.is_first, True, True), **self.geometry)
        return grad_input


class Dense(Weighted):
    """output = input @ weight.T + bias; input is (N, features)."""

    def __init__(self, context, features_in, features_out):
        super().__init__(context, (features_out, features_in))

    def function(self, x):
        return x @ self.weight.stored.astype(x.dtype).T + self.bias.stored.astype(x.dtype)

    def backward(self, grad_output):
        # A dense layer is a convolution with a kernel of one pixel on an image of one pixel: (N, C) -> (N, C, 1).
        grad_input, grad_weight, self.grad_bias = self.context.call(
            iop.conv_backward, grad_output[..., None], self.input[..., None], self.weight.stored[..., None])
        self.grad_weight = grad_weight[..., 0]
        return grad_input[..., 0]


class Network:
    def __init__(self, context):
        self.context = context
        self.layers = [
            Conv(context, 1, 16, is_first=True), Gelu(context),
            Conv(context, 16, 32, stride=2), LeakyRelu(context), Flatten(context),
            Dense(context, 32 * 4 * 4, 64), Relu(context),
            Dense(context, 64, 10), Sigmoid(context)]

    def forward(self, images):
        """Ten probabilities per image, one per digit."""
        output = images.astype(self.context.storage)
        for layer in self.layers:
            output = layer.forward(output)
        return output.astype(self.context.compute)

    def learn(self, images, labels, rate, step):
        """One step of training on one batch. Returns the loss: the squared error of an image's ten probabilities."""
        error = self.forward(images) - np.eye(10)[labels]
        grad_output = (2 * error / len(images) * self.context.loss_scale).astype(self.context.storage)
        for layer in reversed(self.layers):
            grad_output = layer.backward(grad_output)
        for layer in self.layers:
            if isinstance(layer, Weighted):
                layer.update(rate, step)
        return float(np.sum(error**2) / len(images))

    def predict(self, images):
        return np.argmax(self.forward(images), axis=1)


def shifted(images, random):
    """Each image moved by -1, 0 or 1 pixel along both axes, so that every epoch sees slightly different digits."""
    windows = sliding_window_view(np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1))), (8, 8), axis=(2, 3))
    rows, columns = random.integers(0, 3, (2, len(images)))
    return windows[np.arange(len(images)), :, rows, columns]


@dataclass
class Result:
    test_images: np.ndarray
    test_labels: np.ndarray
    calls: Counter
    predicted: np.ndarray = None
    losses: list = field(default_factory=list)            # one per epoch, like the next two
    train_accuracies: list = field(default_factory=list)
    test_accuracies: list = field(default_factory=list)
    seconds: float = 0.0


def train(dtype="float32", device=None, seed=0, epochs=25, samples=None, report=lambda result: None):
    """Train on four fifths of the digits (of the first `samples`, if given), test on the others; calls report after
    each epoch. The test digits play no part in training: what counts is the network after the last epoch."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    start = time.perf_counter()
    digits = load_digits()
    images, labels = digits.images[:samples, None] / 16, digits.target[:samples]
    images, test_images, labels, test_labels = train_test_split(
        images, labels, test_size=0.2, stratify=labels, random_state=seed)
    context = Context(dtype, device, seed)
    network = Network(context)
    result = Result(test_images[:, 0], test_labels, context.calls)
    batches = -(-len(images) // BATCH_SIZE)
    for epoch in range(epochs):
        losses = []
        for batch in np.array_split(context.random.permutation(len(images)), batches):
            step = epoch * batches + len(losses) + 1
            rate = LEARNING_RATE * (1 + np.cos(np.pi * step / (epochs * batches))) / 2  # falls to 0
            losses.append(network.learn(shifted(images[batch], context.random), labels[batch], rate, step))
        result.predicted = network.predict(test_images)
        result.losses.append(float(np.mean(losses)))
        result.train_accuracies.append(float(np.mean(network.predict(images) == labels)))
        result.test_accuracies.append(float(np.mean(result.predicted == test_labels)))
        result.seconds = time.perf_counter() - start
        report(result)
    return result
