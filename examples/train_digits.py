"""Train a small convolutional network on real handwritten digits: every layer, forward and backward, by infiniop_cy.

The data are the 1,797 handwritten digits of scikit-learn's load_digits, 8x8 pixels each; network.py has the layers:

    image -> conv 3x3 -> gelu -> conv 3x3, stride 2 -> leaky_relu -> dense -> relu -> dense -> sigmoid

    python examples/train_digits.py                      # float32
    python examples/train_digits.py --dtype bfloat16     # 16-bit activations, gradients and weights

Prints the accuracy on digits that the network never learned from, draws a picture, and fails below 97 %.
"""
import argparse
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from network import Activation, Adam, Conv, Network
from numpy.lib.stride_tricks import sliding_window_view

REQUIRED_ACCURACY = 0.97
BATCH_SIZE = 32
LEARNING_RATE = 3e-3


def digits_network(dtype, random):
    """From images (N, 1, 8, 8) to (N, 10, 1, 1): for each digit, how probable it is."""
    if dtype == "bfloat16":
        try:
            import ml_dtypes  # noqa: F401 (from here on NumPy knows the name "bfloat16")
        except ImportError:
            raise SystemExit("bfloat16 needs the package ml_dtypes: pip install ml_dtypes") from None
    return Network([
        Conv(1, 16, kernel=3, padding=1, needs_grad_input=False),
        Activation("gelu", approximate="tanh"),
        Conv(16, 32, kernel=3, padding=1, stride=2),
        Activation("leaky_relu", negative_slope=0.1),
        Conv(32, 64, kernel=4),  # of 4x4 pixels: dense
        Activation("relu"),
        Conv(64, 10, kernel=1),
        Activation("sigmoid"),
    ], dtype, random)


def probabilities(network, images):
    """(N, 10), in float32 or better: squares of small errors vanish in 16 bits."""
    output = network.forward(images.astype(network.weights.dtype))[:, :, 0, 0]
    return output.astype(np.result_type(output, np.float32))


def learn(network, images, labels):
    """The gradients of one batch, in network.gradients. Returns the loss: the squared error of an image's ten
    probabilities, a mean over the batch."""
    error = probabilities(network, images) - np.eye(10, dtype=np.float32)[labels]
    network.backward((2 / len(images) * error).astype(network.weights.dtype)[:, :, None, None])
    return np.sum(error * error) / len(images)


def predict(network, images):
    return np.argmax(probabilities(network, images), axis=1)


def shifted(images, random):
    """Each image moved by -1, 0 or 1 pixel along both axes, so that every epoch sees slightly different digits."""
    windows = sliding_window_view(np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1))), (8, 8), axis=(2, 3))
    row, column = random.integers(0, 3, (2, len(images)))
    return windows[np.arange(len(images)), :, row, column]


def train(dtype="float32", seed=0, epochs=30, samples=None, report=lambda result: None):
    """Train on four fifths of the digits (of the first `samples`, if given) and test on the others.

    The test digits play no part in training: what counts is the network after the last epoch. Calls report(result)
    after each epoch; the result has a list entry per epoch in losses, train_accuracy and test_accuracy.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    start = time.perf_counter()
    digits = load_digits()
    images, test_images, labels, test_labels = train_test_split(
        digits.images[:samples, None] / 16, digits.target[:samples], test_size=0.2, random_state=seed,
        stratify=digits.target[:samples])
    random = np.random.default_rng(seed)
    network = digits_network(dtype, random)
    optimizer = Adam(network)
    result = SimpleNamespace(losses=[], train_accuracy=[], test_accuracy=[], network=network,
                             test_images=test_images[:, 0], test_labels=test_labels)
    batches = -(-len(images) // BATCH_SIZE)
    for _ in range(epochs):
        losses = []
        for batch in np.array_split(random.permutation(len(images)), batches):
            losses.append(learn(network, shifted(images[batch], random), labels[batch]))
            progress = (optimizer.steps + 1) / (epochs * batches)
            optimizer.step(LEARNING_RATE * (1 + np.cos(np.pi * progress)) / 2)  # falls to 0
        result.predicted = predict(network, test_images)
        result.losses.append(np.mean(losses))
        result.train_accuracy.append(np.mean(predict(network, images) == labels))
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

        result = train(options.dtype, options.seed, options.epochs, report=report)
    accuracy = result.test_accuracy[-1]
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / f"digits-{options.dtype}-seed{options.seed}.png"
    draw(result, f"Handwritten digits, {options.dtype}: {accuracy:.1%} of the test digits right", path)
    print(f"test accuracy {accuracy:.2%} ({np.sum(result.predicted == result.test_labels)} of {len(result.predicted)}) "
          f"after {result.seconds:.1f} s")
    print(f"picture: {path}")
    if accuracy < REQUIRED_ACCURACY:
        sys.exit(f"error: test accuracy {accuracy:.2%} is below {REQUIRED_ACCURACY:.0%}")


if __name__ == "__main__":
    main()
