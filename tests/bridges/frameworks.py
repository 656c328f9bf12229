"""The frameworks as the tests of the bridges see them: arrays in and out, and the framework's own gradient checker."""
import importlib

import numpy as np
import pytest


class Framework:
    """One framework and its bridge. take: an array as the framework's; give: the reverse; check: compare a function's
    gradients with finite differences, by the framework's own checker, and raise where they differ."""

    dtypes = ("float16", "float32", "float64")

    def __init__(self, name):
        self.name = name
        self.library = pytest.importorskip(name, reason=f"{name} is not installed")
        self.bridge = importlib.import_module(f"infiniop_cy.bridges.{name}")

    def take(self, array):
        return array

    def give(self, value):
        return np.asarray(value)


class Autograd(Framework):
    def check(self, function, *arrays):
        from autograd.test_util import check_grads
        check_grads(function, modes=["rev"], order=1)(*arrays)


class Jax(Framework):
    dtypes = ("float16", "bfloat16", "float32", "float64")

    def __init__(self, name):
        super().__init__(name)
        self.library.config.update("jax_enable_x64", True)

    def take(self, array):
        return self.library.numpy.asarray(array)

    def check(self, function, *arrays):
        from jax.test_util import check_grads
        check_grads(function, arrays, order=1, modes=["rev"])


class Mygrad(Framework):
    def take(self, array):
        return self.library.tensor(array)

    def check(self, function, *arrays):
        """MyGrad's checker is no part of its package: central differences along random directions."""
        random = np.random.default_rng(5)
        weights = random.normal(size=function(*arrays).shape)
        tensors = [self.take(array) for array in arrays]
        (weights * function(*tensors)).sum().backward()
        for i, tensor in enumerate(tensors):
            step = 1e-6 * random.normal(size=tensor.shape)
            above, below = (np.sum(weights * function(*arrays[:i], arrays[i] + sign * step, *arrays[i + 1:]).data)
                            for sign in (1, -1))
            assert np.sum(tensor.grad * 2 * step) == pytest.approx(above - below, rel=1e-5, abs=1e-12)


class Pytensor(Framework):
    def __init__(self, name):
        super().__init__(name)
        self.library.config.mode = "FAST_COMPILE"  # the graph's other nodes need no compiler

    def take(self, array):
        from pytensor.tensor import as_tensor_variable
        return as_tensor_variable(array)

    def give(self, value):
        return value.eval()

    def check(self, function, *arrays):
        from pytensor.gradient import verify_grad
        verify_grad(function, arrays, rng=np.random.default_rng(3))


class Torch(Framework):
    dtypes = ("float16", "bfloat16", "float32", "float64")

    def take(self, array):
        if array.dtype.name == "bfloat16":
            return self.library.from_numpy(array.view("int16")).view(self.library.bfloat16)
        return self.library.from_numpy(array)

    def give(self, value):
        value = value.detach()
        if value.dtype == self.library.bfloat16:
            import ml_dtypes
            return value.view(self.library.int16).numpy().view(ml_dtypes.bfloat16)
        return value.numpy()

    def check(self, function, *arrays):
        tensors = [self.take(array).requires_grad_() for array in arrays]
        assert self.library.autograd.gradcheck(function, tensors)


FRAMEWORKS = {kind.__name__.lower(): kind for kind in (Autograd, Jax, Mygrad, Pytensor, Torch)}
