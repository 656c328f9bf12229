"""The example of examples/ learns: a short run on a part of its digits, all of its layers by this library."""
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import infiniop_cy as iop

pytest.importorskip("sklearn", reason="the examples need scikit-learn")

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
LAYERS = {"conv": 4, "relu": 1, "gelu": 1, "leaky_relu": 1, "sigmoid": 1}


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    import train_digits
    return train_digits


class Counting:
    """infiniop_cy, whose calls are counted by name."""

    def __init__(self):
        self.calls = Counter()

    def __getattr__(self, name):
        def call(*arguments, **named):
            self.calls[name] += 1
            return getattr(iop, name)(*arguments, **named)
        return call


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_training_on_a_few_digits_learns(example, dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    reported = []
    result = example.train(dtype, seed=0, epochs=25, samples=500, report=lambda r: reported.append(r.losses[-1]))
    assert reported == result.losses
    assert len(reported) == 25
    assert result.losses[-1] < result.losses[0] / 3
    assert result.test_accuracy[-1] > 0.8  # guessing: 0.1


def test_every_layer_is_computed_by_the_library_in_both_directions(example, monkeypatch):
    import network
    counting = Counting()
    monkeypatch.setattr(network, "iop", counting)
    example.train(epochs=2, samples=200)
    steps = 2 * -(-160 // example.BATCH_SIZE)
    predictions = 2 * 2
    assert counting.calls == {name: count for layer, n in LAYERS.items() for name, count in (
        (layer, n * (steps + predictions)), (f"{layer}_backward", n * steps))}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_weights_are_the_same_for_every_number_of_threads(example, monkeypatch, dtype):
    """And from run to run; with batches that are large enough for several threads."""
    monkeypatch.setattr(example, "BATCH_SIZE", 400)
    weights = []
    for threads in (1, 2, 3, 3):
        with iop.threads(threads):
            weights.append(example.train(dtype, epochs=2, samples=1000).network.weights)
    assert np.any(weights[0])
    for other in weights[1:]:
        assert weights[0].tobytes() == other.tobytes()


def gradients_of(example, dtype, images, labels):
    """A new network after one batch, and the loss."""
    network = example.digits_network(dtype, np.random.default_rng(0))
    return network, example.learn(network, images, labels)


def test_float16_gradients_agree_with_float64(example):
    """One step: the gradients of each layer's weights."""
    images = np.random.default_rng(1).random((16, 1, 8, 8))
    half, double = ([layer.grad_weight.astype(np.float64) for layer in network.layers if hasattr(layer, "grad_weight")]
                    for network, _ in (gradients_of(example, dtype, images, np.arange(16) % 10)
                                       for dtype in ("float16", "float64")))
    assert len(half) == 4
    for a, b in zip(half, double):
        assert np.linalg.norm(a - b) < 0.02 * np.linalg.norm(b)


def test_gradients_agree_with_finite_differences(example):
    """The chain of layers, in float64: an error in any forward() or backward() shows here."""
    random = np.random.default_rng(2)
    images, labels = random.random((4, 1, 8, 8)), np.array([3, 1, 4, 1])
    network, _ = gradients_of(example, "float64", images, labels)
    exact, start = network.gradients.copy(), network.weights.copy()
    pieces = [piece for layer in network.layers if hasattr(layer, "weight") for piece in (layer.weight, layer.bias)]
    assert sum(piece.size for piece in pieces) == start.size
    first = 0
    for piece in pieces:
        direction = np.zeros_like(start)
        direction[first:first + piece.size] = random.normal(size=piece.size)
        first += piece.size
        losses = []
        for sign in (1, -1):
            network.weights[...] = start + sign * 1e-6 * direction
            losses.append(example.learn(network, images, labels))
        assert exact @ direction == pytest.approx((losses[0] - losses[1]) / 2e-6, rel=1e-4, abs=1e-9)


def test_too_few_epochs_exit_with_status_1_and_a_picture(example, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    pytest.importorskip("rich")
    train = example.train
    monkeypatch.setattr(example, "train", lambda *args, **named: train(*args, samples=200, **named))
    with pytest.raises(SystemExit, match="below 97%"):
        example.main(["--epochs", "1", "--output", str(tmp_path)])
    assert (tmp_path / "digits-float32-seed0.png").stat().st_size > 10_000


def test_bfloat16_without_ml_dtypes_says_what_to_install(example, monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(SystemExit, match="pip install ml_dtypes"):
        example.train("bfloat16", epochs=1)
