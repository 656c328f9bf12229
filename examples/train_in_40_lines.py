"""
Train a network in 40 lines
===========================

A convolutional network learns to read handwritten digits: forward, backward and the step, with nothing but NumPy and
infiniop_cy. No tape records what happens: each line of the backward pass is a line of the forward pass, differentiated.

The data are scikit-learn's 1,797 digits of 8×8 pixels, which come with it: ``pip install scikit-learn matplotlib``.
"""
# %%
# Data
# ----
# Images are (N, channels, height, width). One in five is kept for the test and never learned from.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import infiniop_cy as iop

digits = load_digits()
images, labels = (digits.images[:, None] / 16).astype(np.float32), digits.target
random = np.random.default_rng(0)
order = random.permutation(len(images))
train, test = order[360:], order[:360]

# %%
# Three layers
# ------------
# Two convolutions, the second of which halves the image, and one with a kernel as large as what is left: a dense layer,
# with one score for each digit. The weights' scale is He's, which keeps the size of what passes through about the same.


def layer(channels_out, channels_in, kernel):
    scale = np.sqrt(2 / (channels_in * kernel**2))
    weight = random.normal(0, scale, (channels_out, channels_in, kernel, kernel))
    return weight.astype(np.float32), np.zeros(channels_out, np.float32)


parameters = layer(16, 1, 3), layer(32, 16, 3), layer(10, 32, 4)
(w1, b1), (w2, b2), (w3, b3) = parameters
momentum = [[np.zeros_like(array) for array in pair] for pair in parameters]

# %%
# Forward
# -------
# What the gradients will need is returned, too: the inputs of all that is not linear.


def forward(x):
    a1 = iop.conv(x, w1, b1, padding=1)
    h1 = iop.gelu(a1)
    a2 = iop.conv(h1, w2, b2, padding=1, stride=2)
    h2 = iop.gelu(a2)
    return a1, h1, a2, h2, iop.conv(h2, w3, b3)[:, :, 0, 0]


# %%
# Backward
# --------
# The same in reverse. A ``..._backward`` takes the gradient of what came out, then what went in. The first layer leaves
# out the gradient of the images, which nobody needs.


def backward(x, a1, h1, a2, h2, grad_scores):
    g3 = iop.conv_backward(grad_scores[:, :, None, None], h2, w3)
    g = iop.gelu_backward(g3.grad_input, a2)
    g2 = iop.conv_backward(g, h1, w2, padding=1, stride=2)
    g = iop.gelu_backward(g2.grad_input, a1)
    g1 = iop.conv_backward(g, x, w1, padding=1, output_mask=(False, True, True))
    return [(g.grad_weight, g.grad_bias) for g in (g1, g2, g3)]


# %%
# Learn
# -----
# The loss is the cross entropy of a softmax, whose gradient is the probabilities minus one for the right digit. The
# step is gradient descent with momentum. It writes into the arrays, so forward() sees the new weights.
losses = []
for _ in range(12):
    for batch in np.array_split(random.permutation(train), 45):
        *kept, scores = forward(images[batch])
        probabilities = np.exp(scores - scores.max(axis=1, keepdims=True))
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        right = np.arange(len(batch)), labels[batch]
        losses.append(-np.mean(np.log(probabilities[right])))
        probabilities[right] -= 1
        gradients = backward(images[batch], *kept, probabilities / len(batch))
        for arrays, means, grads in zip(parameters, momentum, gradients):
            for array, mean, grad in zip(arrays, means, grads):
                mean += 0.1 * (grad - mean)
                array -= 0.5 * mean

# %%
# Read
# ----
# Run it again, with any number of threads: the weights are the same to the bit (see :doc:`/reproducible`).
read = forward(images[test])[-1].argmax(axis=1)
accuracy = np.mean(read == labels[test])
print(f"{accuracy:.1%} of {len(test)} test digits are read right")
assert accuracy > 0.95

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
left.semilogy(losses, linewidth=0.8)
left.set(xlabel="step", ylabel="cross entropy", title="Loss")
right.imshow(w1[:, 0].reshape(2, 8, 3, 3).transpose(0, 2, 1, 3).reshape(6, 24), cmap="gray")
right.set(title="What the first layer looks for")
right.axis("off")
plt.show()

# %%
# Next
# ----
# ``examples/network.py`` makes layers and Adam of this, in forty lines more, and ``examples/train_digits.py`` trains
# such a network in any of the four dtypes.
