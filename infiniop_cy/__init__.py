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

# What other libraries call the same, without case, underscores and the number of axes.
_ELSEWHERE = {"swish": "silu", "convolution": "conv", "setnumthreads": "threads", "numthreads": "threads",
              "prelu": "leaky_relu", "gelutanh": "gelu", "swishbackward": "silu_backward",
              "convolutionbackward": "conv_backward"}
_SUBMODULES = ("bridges", "capi", "check", "testing")


def _suggestion(name):
    """The public name that was meant, or None."""
    from difflib import get_close_matches
    from re import sub

    def plain(text):
        text = sub("(?<=conv)[123]d", "", text.lower().replace("_", ""))
        return sub("(grad|bwd|prime|derivative)$", "backward", text)

    known = {plain(public): public for public in reversed(__all__)}
    wanted = plain(name)
    close = [_ELSEWHERE[wanted]] if wanted in _ELSEWHERE else get_close_matches(wanted, known, n=1, cutoff=0.7)
    return known.get(close[0], close[0]) if close else None


def __getattr__(name):
    if name == "__version__":  # importlib.metadata takes as long to import as all of this package
        from importlib.metadata import version
        return version("infiniop_cy")
    if name.startswith("_"):  # Python's own questions
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    meant = None if name in _SUBMODULES else _suggestion(name)
    suggestion = f" before `import {__name__}.{name}`" if name in _SUBMODULES \
        else f". Did you mean: {meant!r}?" if meant else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{suggestion}")
