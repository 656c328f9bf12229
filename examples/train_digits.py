"""Train a small convolutional network on real handwritten digits, with every gradient from infiniop_cy.

The data are the 1,797 handwritten digits of scikit-learn's load_digits, 8x8 pixels each. The forward pass is plain
NumPy; the backward pass is written out by hand, layer by layer, and uses all five operators of the library:

    image -> conv 3x3 -> gelu -> conv 3x3, stride 2 -> leaky_relu -> dense -> relu -> dense -> sigmoid

There is no automatic differentiation: each layer has a forward() that keeps its input and a backward() that turns
grad_output, the gradient of the loss with respect to the layer's output, into grad_input, the same for its input.

    python examples/train_digits.py                      # float32
    python examples/train_digits.py --dtype bfloat16     # 16-bit activations, gradients and weights

Prints the accuracy on digits that the network never learned from, draws a picture, and fails below 97 %.
"""
import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

import infiniop_cy as iop

REQUIRED_ACCURACY = 0.97
BATCH_SIZE = 32
LEARNING_RATE = 3e-3


class Context:
    """What all layers share: the dtypes, the random numbers, and the calls of infiniop_cy, which it counts."""

    def __init__(self, dtype, device, seed):
        if dtype == "bfloat16":
            try:
                import ml_dtypes  # noqa: F401 (from here on NumPy knows the name "bfloat16")
            except ImportError:
                raise SystemExit("bfloat16 needs the package ml_dtypes: pip install ml_dtypes") from None
        self.storage = np.dtype(dtype)  # of activations, gradients, and the weights that layers use
        self.compute = np.dtype("float64" if dtype == "float64" else "float32")  # of all arithmetic in NumPy
        self.random = np.random.default_rng(seed)
        self.device, self.calls = device, Counter()

    def call(self, operator, *arrays, **parameters):
        self.calls[operator.__name__] += 1
        return operator(*arrays, device=self.device, **parameters)


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


class Parameter:
    """A weight or bias: a master copy in compute precision, updated by Adam, and `stored`, rounded for the layers."""

    def __init__(self, context, initial):
        self.context, self.master = context, initial.astype(context.compute)
        self.stored = self.master.astype(context.storage)
        self.mean, self.square = np.zeros_like(self.master), np.zeros_like(self.master)

    def update(self, gradient, rate, step):
        gradient = gradient.astype(self.context.compute)
        self.mean += 0.1 * (gradient - self.mean)
        self.square += 0.001 * (gradient**2 - self.square)
        self.master -= rate * self.mean / (1 - 0.9**step) / (np.sqrt(self.square / (1 - 0.999**step)) + 1e-8)
        self.stored = self.master.astype(self.context.storage)


class Weighted(Layer):
    """A layer with weight and bias. Its backward() keeps their gradients in grad_weight and grad_bias."""

    def __init__(self, context, *weight_shape):
        super().__init__(context)
        deviation = np.sqrt(2 / np.prod(weight_shape[1:]))
        self.weight = Parameter(context, context.random.normal(0, deviation, weight_shape))
        self.bias = Parameter(context, np.zeros(weight_shape[0]))

    def update(self, rate, step):
        self.weight.update(self.grad_weight, rate, step)
        self.bias.update(self.grad_bias, rate, step)


class Conv(Weighted):
    """A 3x3 convolution of (N, channels_in, height, width) with one pixel of padding."""

    def __init__(self, context, channels_in, channels_out, stride=1, is_first=False):
        super().__init__(context, channels_out, channels_in, 3, 3)
        self.stride, self.is_first = stride, is_first

    def function(self, x):
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::self.stride, ::self.stride]
        weight, bias = self.weight.stored.astype(x.dtype), self.bias.stored.astype(x.dtype)
        return np.moveaxis(np.tensordot(windows, weight, axes=((1, 4, 5), (1, 2, 3))) + bias, -1, 1)

    def backward(self, grad_output):
        grad_input, self.grad_weight, self.grad_bias = self.context.call(
            iop.conv_backward, grad_output, self.input, self.weight.stored, stride=self.stride, padding=1,
            output_mask=(not self.is_first, True, True))  # nothing needs the gradient of the images
        return grad_input


class Dense(Weighted):
    """output = input @ weight.T + bias, with input of shape (N, features_in)."""

    def __init__(self, context, features_in, features_out):
        super().__init__(context, features_out, features_in)

    def function(self, x):
        return x @ self.weight.stored.astype(x.dtype).T + self.bias.stored.astype(x.dtype)

    def backward(self, grad_output):
        # A dense layer is a convolution, with a kernel of one pixel, of an image of one pixel: (N, C) -> (N, C, 1).
        grad_input, grad_weight, self.grad_bias = self.context.call(
            iop.conv_backward, grad_output[..., None], self.input[..., None], self.weight.stored[..., None])
        self.grad_weight = grad_weight[..., 0]
        return grad_input[..., 0]


class Network:
    """Ten probabilities per image, one per digit. The loss is the squared error of an image's ten probabilities."""

    def __init__(self, context):
        self.context = context
        self.layers = [Conv(context, 1, 16, is_first=True), Gelu(context),
                       Conv(context, 16, 32, stride=2), LeakyRelu(context), Flatten(context),
                       Dense(context, 32 * 4 * 4, 64), Relu(context),
                       Dense(context, 64, 10), Sigmoid(context)]

    def forward(self, images):
        output = images.astype(self.context.storage)
        for layer in self.layers:
            output = layer.forward(output)
        return output.astype(self.context.compute)

    def learn(self, images, labels, rate, step):
        """One step of training on one batch. Returns the mean loss."""
        error = self.forward(images) - np.eye(10)[labels]
        grad_output = (2 * error / len(images)).astype(self.context.storage)
        for layer in reversed(self.layers):
            grad_output = layer.backward(grad_output)
        for layer in self.layers:
            if isinstance(layer, Weighted):
                layer.update(rate, step)
        return np.sum(error**2) / len(images)

    def predict(self, images):
        return np.argmax(self.forward(images), axis=1)


def shifted(images, random):
    """Each image moved by -1, 0 or 1 pixel along both axes, so that every epoch sees slightly different digits."""
    windows = sliding_window_view(np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1))), (8, 8), axis=(2, 3))
    row, column = random.integers(0, 3, (2, len(images)))
    return windows[np.arange(len(images)), :, row, column]


def train(dtype="float32", device=None, seed=0, epochs=30, samples=None, report=lambda result: None):
    """Train on four fifths of the digits (of the first `samples`, if given) and test on the others.

    The test digits play no part in training: what counts is the network after the last epoch. Calls report(result)
    after each epoch; the result has a list entry per epoch in losses, train_accuracy and test_accuracy.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from threadpoolctl import threadpool_limits  # comes with scikit-learn

    start = time.perf_counter()
    digits = load_digits()
    images, test_images, labels, test_labels = train_test_split(
        digits.images[:samples, None] / 16, digits.target[:samples], test_size=0.2, random_state=seed,
        stratify=digits.target[:samples])
    context = Context(dtype, device, seed)
    network = Network(context)
    result = SimpleNamespace(losses=[], train_accuracy=[], test_accuracy=[], calls=context.calls,
                             test_images=test_images[:, 0], test_labels=test_labels)
    batches = -(-len(images) // BATCH_SIZE)
    # Batches this small gain nothing from more threads; NumPy's and the library's would only wait for each other.
    with iop.threads(1), threadpool_limits(1, "blas"):
        for epoch in range(epochs):
            losses = []
            for batch in np.array_split(context.random.permutation(len(images)), batches):
                step = epoch * batches + len(losses) + 1
                rate = LEARNING_RATE * (1 + np.cos(np.pi * step / (epochs * batches))) / 2  # falls to 0
                losses.append(network.learn(shifted(images[batch], context.random), labels[batch], rate, step))
            result.predicted = network.predict(test_images)
            result.losses.append(np.mean(losses))
            result.train_accuracy.append(np.mean(network.predict(images) == labels))
            result.test_accuracy.append(np.mean(result.predicted == test_labels))
            result.seconds = time.perf_counter() - start
            report(result)
    return result


def draw(result, title, path):
    """A PNG with the loss, the accuracies, and the test digits that the network got wrong."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    epochs = range(1, len(result.losses) + 1)
    figure = plt.figure(figsize=(11, 6.5), layout="constrained")
    figure.suptitle(title, fontsize=14)
    curves, digits = figure.subfigures(2, 1, height_ratios=(5, 2), hspace=0.05)
    left, right = curves.subplots(1, 2)
    left.semilogy(epochs, result.losses, ".-", color="tab:red")
    left.set(title="Loss on shifted training digits", ylabel="squared error per digit")
    right.plot(epochs, 100 * np.array(result.train_accuracy), ".-", label="training digits")
    right.plot(epochs, 100 * np.array(result.test_accuracy), ".-", label="test digits")
    right.axhline(100 * REQUIRED_ACCURACY, color="gray", linestyle="--", label="required of the test digits")
    right.set(title="Accuracy", ylabel="right (%)", ylim=(max(0, min(85, 100 * result.test_accuracy[-1] - 5)), 100.5))
    right.legend(loc="lower right")
    for axes in (left, right):
        axes.set(xlabel="epoch", xlim=(0, len(epochs) + 1))
        axes.grid(alpha=0.3)
    wrong, = np.nonzero(result.predicted != result.test_labels)
    shown = wrong[:10]
    digits.suptitle(f"The {len(wrong)} wrong of {len(result.predicted)} test digits"
                    + (f" (the first {len(shown)})" if len(wrong) > len(shown) else ""))
    for i, axes in zip(shown, digits.subplots(1, max(1, len(shown)), squeeze=False).flat):
        axes.imshow(result.test_images[i], cmap="gray_r", vmin=0, vmax=1)
        axes.set_title(f"is {result.test_labels[i]}, read as {result.predicted[i]}", fontsize=9)
    for axes in digits.axes:
        axes.axis("off")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(arguments=None):
    from rich.progress import Progress

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64", "bfloat16", "float16"),
                        help="of activations, gradients and weights (default: %(default)s)")
    parser.add_argument("--device", help="where infiniop_cy computes: cpu, cuda, cuda:1, auto (default: cpu)")
    parser.add_argument("--seed", type=int, default=0, help="of split, weights and shifts (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=30, help="passes over the digits (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "output",
                        help="folder for the picture (default: examples/output)")
    options = parser.parse_args(arguments)
    if options.epochs < 1 or options.seed < 0:
        parser.error("expected --epochs of at least 1 and --seed of at least 0")
    with Progress() as progress:
        task = progress.add_task("training", total=options.epochs)

        def report(result):
            text = f"loss {result.losses[-1]:.4f}, {result.test_accuracy[-1]:.1%} right"
            progress.update(task, advance=1, description=text)

        try:
            result = train(options.dtype, options.device, options.seed, options.epochs, report=report)
        except (iop.DeviceTypeNotSupported, iop.DeviceNotFound) as error:
            sys.exit(f"error: {error}")
    accuracy = result.test_accuracy[-1]
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / f"digits-{options.dtype}-seed{options.seed}.png"
    draw(result, f"Handwritten digits, {options.dtype}: {accuracy:.1%} of the test digits right", path)
    print(f"test accuracy {accuracy:.2%} ({np.sum(result.predicted == result.test_labels)} of {len(result.predicted)}) "
          f"after {result.seconds:.1f} s")
    for name, count in sorted(result.calls.items()):
        print(f"{count:7,} calls of iop.{name}")
    print(f"picture: {path}")
    if accuracy < REQUIRED_ACCURACY:
        sys.exit(f"error: test accuracy {accuracy:.2%} is below {REQUIRED_ACCURACY:.0%}")


if __name__ == "__main__":
    main()
