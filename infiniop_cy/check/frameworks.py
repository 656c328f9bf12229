"""NumPy arrays as those of torch, CuPy and JAX, and back; bfloat16 by its bits where a framework needs that."""
import numpy as np

from infiniop_cy.dtypes import numpy_dtype


def to_torch(array):
    """The same memory, strides included; negative strides, which torch does not have, by a copy."""
    import torch
    if any(stride < 0 for stride in array.strides):
        array = array.copy()
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def to_jax(array):
    import jax
    jax.config.update("jax_enable_x64", True)
    return jax.numpy.asarray(array)


def to_cupy(array):
    import cupy
    return cupy.asarray(array)


GIVE = {"numpy": lambda array: array, "torch": to_torch, "jax": to_jax, "cupy": to_cupy}


def to_numpy(value):
    """A NumPy array of what a candidate returned, from any framework and device."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach"):  # torch
        value = value.detach().cpu().contiguous()
        if str(value.dtype) == "torch.bfloat16":
            import torch
            return value.view(torch.int16).numpy().view(numpy_dtype("bfloat16"))
        return value.numpy()
    if hasattr(value, "get") and hasattr(value, "__cuda_array_interface__"):  # CuPy
        return value.get()
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
        return np.from_dlpack(value)
    return np.asarray(value)


class Arrays:
    """One framework's arrays, on one device."""

    def __init__(self, name, device):
        if name not in GIVE:
            raise ValueError(f"--arrays {name}: expected one of {', '.join(GIVE)}")
        self.name, self.device = name, device

    def give(self, array):
        value = GIVE[self.name](array)
        if self.device and self.name == "torch":
            return value.to(self.device)
        if self.device and self.name == "jax":
            import jax
            return jax.device_put(value, jax.devices(self.device)[0])
        return value

    def take(self, value):
        return to_numpy(value)
