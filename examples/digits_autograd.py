"""The network of train_digits.py on autograd: a forward pass is all there is to write.

    python examples/digits_autograd.py

Prints the accuracy on handwritten digits that it never learned from, and fails below 97 %.
"""
import sys

import autograd.numpy as np
from autograd import grad
from autograd.misc.optimizers import adam
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import infiniop_cy as iop
from infiniop_cy.bridges.autograd import conv, gelu, leaky_relu, relu, sigmoid

SHAPES = {"conv": [(16, 1, 3, 3), (32, 16, 3, 3)], "dense": [(512, 64), (64, 10)]}
BATCH = 32


def start(random):
    """(weight, bias) of each layer: He's initialization."""
    weights = [random.normal(0, np.sqrt(2 / np.prod(shape[1:])), shape) for shape in SHAPES["conv"]]
    weights += [random.normal(0, np.sqrt(2 / shape[0]), shape) for shape in SHAPES["dense"]]
    return [(w.astype(np.float32), np.zeros(len(w) if w.ndim == 4 else w.shape[1], np.float32)) for w in weights]


def network(layers, images):
    """Ten probabilities for each image."""
    (w1, b1), (w2, b2), (w3, b3), (w4, b4) = layers
    x = gelu(conv(images, w1, b1, padding=1), approximate="tanh")
    x = leaky_relu(conv(x, w2, b2, stride=2, padding=1), 0.1)
    x = relu(np.reshape(x, (len(images), -1)) @ w3 + b3)
    return sigmoid(x @ w4 + b4)


def train(epochs=20, samples=None, seed=0):
    """The share of test digits that are read right, after each epoch."""
    digits = load_digits()
    images, tests, labels, expected = train_test_split(
        (digits.images[:samples, None] / 16).astype(np.float32), digits.target[:samples], test_size=0.2,
        random_state=seed, stratify=digits.target[:samples])
    random = np.random.default_rng(seed)
    batches = -(-len(images) // BATCH)
    order, accuracy = [], []

    def loss(layers, step):
        if step % batches == 0:
            order[:] = np.array_split(random.permutation(len(images)), batches)
        chosen = order[step % batches]
        return np.sum((network(layers, images[chosen]) - np.eye(10, dtype=np.float32)[labels[chosen]])**2) / len(chosen)

    def report(layers, step, _):
        if step % batches == batches - 1:
            accuracy.append(np.mean(np.argmax(network(layers, tests), axis=1) == expected))

    with iop.threads(1):  # of batches this small
        adam(grad(loss), start(random), callback=report, num_iters=epochs * batches, step_size=2e-3)
    return accuracy


if __name__ == "__main__":
    accuracy = train()
    print(f"{accuracy[-1]:.1%} of the test digits right after {len(accuracy)} epochs")
    sys.exit(int(accuracy[-1] < 0.97))
