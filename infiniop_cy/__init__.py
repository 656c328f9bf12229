"""Backward (gradient) operators on NumPy arrays.

    >>> import numpy as np
    >>> import infiniop_cy as iop
    >>> iop.relu_backward(np.float32([1, 2, 3]), np.float32([-1, 0, 1]))
    array([0., 0., 3.], dtype=float32)

Functions: one per row of operators.py, conv and conv_backward. Descriptors: Handle, TensorDescriptor and a
...Descriptor class per operator. See README.md.
"""
from infiniop_cy.capi import get_include
from infiniop_cy.config import show_config
from infiniop_cy.core._core import TensorDescriptor, threads
from infiniop_cy.descriptors import DESCRIPTORS as _DESCRIPTORS
from infiniop_cy.descriptors import ConvBackwardDescriptor, ConvDescriptor
from infiniop_cy.devices import Handle, available_devices, empty_workspace
from infiniop_cy.functions import ELEMENTWISE as _ELEMENTWISE
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

globals().update(_ELEMENTWISE)
globals().update(_DESCRIPTORS)

__all__ = [
    *_ELEMENTWISE, "conv", "conv_backward", "ConvGradients", "threads",
    "Handle", "available_devices", "TensorDescriptor", *_DESCRIPTORS, "ConvDescriptor", "ConvBackwardDescriptor",
    "empty_workspace",
    "Status", "InfiniopError", "InternalError", "NotImplementedOperator", "BadParam", "NullPointer",
    "DeviceTypeNotSupported", "DeviceNotFound", "DeviceNotInitialized", "DeviceArchitectureNotSupported",
    "BadTensorDtype", "BadTensorShape", "BadTensorStrides", "InsufficientWorkspace",
    "get_include", "show_config",
]


def __getattr__(name):
    if name == "__version__":  # importlib.metadata takes as long to import as all of this package
        from importlib.metadata import version
        return version("infiniop_cy")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
