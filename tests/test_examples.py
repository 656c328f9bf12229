"""The example of examples/ learns: a short run on a part of its digits, every gradient from this library."""
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the examples need scikit-learn")

SCRIPT = Path(__file__).resolve().parents[1] / "examples" / "train_digits.py"
OPERATORS = {"relu_backward", "gelu_backward", "leaky_relu_backward", "sigmoid_backward", "conv_backward"}


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("train_digits", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
    steps = 25 * -(-400 // example.BATCH_SIZE)
    assert result.calls == {name: steps * (4 if name == "conv_backward" else 1) for name in OPERATORS}


def test_training_is_reproducible(example):
    first, second = (example.train(epochs=1, samples=200) for _ in range(2))
    assert first.losses == second.losses
    assert np.array_equal(first.predicted, second.predicted)


def test_float16_gradients_agree_with_float64(example):
    """One step: the gradients of all weights."""
    gradients = {}
    for dtype in ("float16", "float64"):
        context = example.Context(dtype, None, 0)
        network = example.Network(context)
        images = np.random.default_rng(1).random((16, 1, 8, 8))
        network.learn(images, np.arange(16) % 10, 0.0, 1)
        gradients[dtype] = [layer.grad_weight.astype(np.float64) for layer in network.layers
                            if hasattr(layer, "grad_weight")]
    assert len(gradients["float16"]) == 4
    for half, double in zip(gradients["float16"], gradients["float64"]):
        assert np.linalg.norm(half - double) < 0.02 * np.linalg.norm(double)


def test_gradients_agree_with_finite_differences(example):
    """The chain of layers, in float64: an error in any backward() shows here."""
    context = example.Context("float64", None, 0)
    network = example.Network(context)
    random = np.random.default_rng(2)
    images, labels = random.random((4, 1, 8, 8)), np.array([3, 1, 4, 1])
    network.learn(images, labels, 0.0, 1)
    for layer in network.layers:
        if not hasattr(layer, "grad_weight"):
            continue
        for parameter, gradient in ((layer.weight, layer.grad_weight), (layer.bias, layer.grad_bias)):
            direction = random.normal(size=gradient.shape)
            losses = []
            for sign in (1, -1):
                parameter.stored = parameter.master + sign * 1e-6 * direction
                losses.append(np.sum((network.forward(images) - np.eye(10)[labels]) ** 2) / 4)
            parameter.stored = parameter.master
            numerical = (losses[0] - losses[1]) / 2e-6
            assert np.sum(gradient * direction) == pytest.approx(numerical, rel=1e-4, abs=1e-9)


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
