"""Operators of neural networks and their gradients on NumPy arrays.

    >>> import numpy as np
    >>> import infiniop_cy as iop
    >>> iop.relu_backward(np.float32([1, 2, 3]), np.float32([-1, 0, 1]))
    array([0., 0., 3.], dtype=float32)

Functions: two per row of operators.py, relu and relu_backward, and conv and conv_backward. Descriptors: Handle,
TensorDescriptor and a ...Descriptor class per operator. See README.md.
"""
try:
    from infiniop_cy.core._core import TensorDescriptor, threads
except ModuleNotFoundError as error:
    if error.name != "infiniop_cy.core._core":
        raise
    from infiniop_cy.unbuilt import explanation
    raise ImportError(explanation()) from None
from infiniop_cy.capi import get_include
from infiniop_cy.config import show_config
from infiniop_cy.descriptors import ConvBackwardDescriptor, ConvDescriptor
from infiniop_cy.devices import Handle, available_devices, empty_workspace
from infiniop_cy.elementwise import *  # noqa: F403
from infiniop_cy.elementwise import __all__ as _elementwise
from infiniop_cy.functions import ConvGradients, conv, conv_backward
from infiniop_cy.status import (
    BadParam,
    BadTensorDtype,
    BadTensorShape,
    BadTensorStrides,
    DeviceArchitectureNotSupported,
    DeviceNotFound,
    DeviceNotInitialized,
    DeviceTypeNotSupported,
    InfiniopError,
    InsufficientWorkspace,
    InternalError,
    NotImplementedOperator,
    NullPointer,
    Status,
)

__all__ = [
    *_elementwise, "conv", "conv_backward", "ConvGradients", "threads",
    "Handle", "available_devices", "TensorDescriptor", "ConvDescriptor", "ConvBackwardDescriptor", "empty_workspace",
    "Status", "InfiniopError", "InternalError", "NotImplementedOperator", "BadParam", "NullPointer",
    "DeviceTypeNotSupported", "DeviceNotFound", "DeviceNotInitialized", "DeviceArchitectureNotSupported",
    "BadTensorDtype", "BadTensorShape", "BadTensorStrides", "InsufficientWorkspace",
    "get_include", "show_config",
]

# What other libraries call the same.
_ELSEWHERE = {"swish": "silu", "swish_backward": "silu_backward", "convolution": "conv",
              "convolution_backward": "conv_backward", "set_num_threads": "threads", "num_threads": "threads"}


def __getattr__(name):
    if name == "__version__":  # importlib.metadata takes as long to import as all of this package
        from importlib.metadata import version
        return version("infiniop_cy")
    if name.startswith("_"):  # Python's own questions
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from difflib import get_close_matches
    close = get_close_matches(_ELSEWHERE.get(name, name), __all__, n=1)
    suggestion = f". Did you mean: {close[0]!r}?" if close else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{suggestion}")
