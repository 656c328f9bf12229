"""Strides, paddings and dilations up to 63 bits, beside small ones: what pixels meet is counted in Python's integers,
which do not overflow. On the CPU, whose algorithms multiply them with channels and bytes."""
import numpy as np
import pytest

import infiniop_cy as iop
from infiniop_cy.testing import LAYOUTS

FAR = (2**30 - 1, 2**30 + 1, 2**31, 2**40, 2**50, 2**58, 2**59, 2**60, 2**61, 2**62, 2**62 + 3, 2**63 - 2**21,
       2**63 - 2)
NAMES = "output", "grad_input", "grad_weight"


def drawn_axis(rng):
    """(pixels, taps, stride, dilation, padding before, after, outputs), some of them far, of few outputs."""
    while True:
        size, kernel, *numbers = (int(n) for n in rng.integers((1, 1, 1, 1, 0, 0), (6, 4, 4, 4, 3, 3)))
        for _ in range(int(rng.choice([0, 2, 2]))):
            numbers[rng.integers(4)] = min(int(rng.choice(FAR)) + int(rng.integers(-3, 4)), 2**63 - 1)
        stride, dilation, before, after = numbers
        if rng.random() < 0.3:
            after = max(0, stride - before)
        padded, reach = size + before + after, dilation * (kernel - 1) + 1
        if reach <= padded < 2**63 and (padded - reach) // stride < 6:
            return size, kernel, stride, dilation, before, after, (padded - reach) // stride + 1


def reference(g, x, w, axes, groups):
    """(output, grad_input, grad_weight) of two axes, tap by tap."""
    results = np.zeros(g.shape), np.zeros(x.shape), np.zeros(w.shape)
    cin, cout = w.shape[1], w.shape[0] // groups
    met = [[(o, k, o * stride + k * dilation - before) for o in range(outputs) for k in range(kernel)
            if 0 <= o * stride + k * dilation - before < size]
           for size, kernel, stride, dilation, before, _, outputs in axes]
    for y, ky, row in met[0]:
        for z, kz, column in met[1]:
            for group in range(groups):
                of_in, of_out = (slice(group * n, group * n + n) for n in (cin, cout))
                pixel, weight, gradient = x[:, of_in, row, column], w[of_out, :, ky, kz], g[:, of_out, y, z]
                results[0][:, of_out, y, z] += pixel @ weight.T
                results[1][:, of_in, row, column] += gradient @ weight
                results[2][of_out, :, ky, kz] += gradient.T @ pixel
    return results


@pytest.mark.parametrize("block", range(4))
def test_far_pixels(block):
    for seed in range(100 * block, 100 * block + 100):
        rng = np.random.default_rng(seed)
        axes = drawn_axis(rng), drawn_axis(rng)
        groups = int(rng.choice([1, 1, 2, 16]))
        cin, cout = (1, int(rng.choice([1, 2]))) if groups == 16 else (
            int(rng.choice([0, 1, 3, 8, 16, 32])), int(rng.choice([1, 2, 8, 16, 24])))
        sizes, kernel, stride, dilation, before, after, outputs = zip(*axes)
        batch = int(rng.integers(1, 3))
        x, w, g = (rng.integers(-2, 3, shape).astype(np.float32) for shape in (
            (batch, groups * cin, *sizes), (groups * cout, cin, *kernel), (batch, groups * cout, *outputs)))
        keywords = {"stride": stride, "dilation": dilation, "padding": tuple(zip(before, after)), "groups": groups}
        want = reference(g, x, w, axes, groups)
        for lay in np.array, LAYOUTS["channels last"]:
            for threads in 1, 2:
                output, *gradients = (lay(np.full(a.shape, 7, np.float32)) for a in want)
                iop.conv(lay(x), lay(w), out=output, num_threads=threads, **keywords)
                iop.conv_backward(lay(g), lay(x), lay(w), out=(*gradients, None), num_threads=threads,
                                  output_mask=(True, True, False), **keywords)
                for name, a, b in zip(NAMES, (output, *gradients), want):
                    assert np.array_equal(a, b), f"{name}, seed {seed}: {x.shape} {w.shape} {keywords}"


@pytest.mark.parametrize("lay", [np.array, LAYOUTS["channels last"]])
def test_many_pixels_without_channels(lay):
    """Work for several threads, of which none has anything to add."""
    g, x, w = (lay(np.ones(shape, np.float32)) for shape in ((1, 33, 128, 128), (1, 0, 128, 128), (33, 0, 1, 1)))
    output = lay(np.full(g.shape, 7, np.float32))
    iop.conv(x, w, out=output, num_threads=2)
    assert not output.any()
    assert [a.shape for a in iop.conv_backward(g, x, w, num_threads=2)] == [x.shape, w.shape, (33,)]
