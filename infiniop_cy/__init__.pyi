# Types of the public names. An operator added to operators.py adds two lines: its function and its descriptor.
from collections.abc import Sequence
from types import TracebackType
from typing import (
    Any,
    Literal,
    NamedTuple,
    Protocol,
    Self,
    SupportsFloat,
    SupportsIndex,
    TypeAlias,
    TypeVar,
    overload,
    type_check_only,
)

import numpy as np
from numpy.typing import ArrayLike, NDArray

from infiniop_cy.core._core import TensorDescriptor as TensorDescriptor
from infiniop_cy.core._core import threads as threads
from infiniop_cy.status import BadParam as BadParam
from infiniop_cy.status import BadTensorDtype as BadTensorDtype
from infiniop_cy.status import BadTensorShape as BadTensorShape
from infiniop_cy.status import BadTensorStrides as BadTensorStrides
from infiniop_cy.status import DeviceArchitectureNotSupported as DeviceArchitectureNotSupported
from infiniop_cy.status import DeviceNotFound as DeviceNotFound
from infiniop_cy.status import DeviceNotInitialized as DeviceNotInitialized
from infiniop_cy.status import DeviceTypeNotSupported as DeviceTypeNotSupported
from infiniop_cy.status import InfiniopError as InfiniopError
from infiniop_cy.status import InsufficientWorkspace as InsufficientWorkspace
from infiniop_cy.status import InternalError as InternalError
from infiniop_cy.status import NotImplementedOperator as NotImplementedOperator
from infiniop_cy.status import NullPointer as NullPointer
from infiniop_cy.status import Status as Status

__version__: str

_T = TypeVar("_T", bound=np.generic)
_Out = TypeVar("_Out", bound=NDArray[Any])
_PerAxis: TypeAlias = SupportsIndex | Sequence[SupportsIndex]
_Padding: TypeAlias = (
    SupportsIndex | Sequence[SupportsIndex | tuple[SupportsIndex, SupportsIndex]] | Literal["same", "valid"]
)
_Approximate: TypeAlias = Literal["none", "tanh"]

@type_check_only
class _CudaArray(Protocol):
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...

_Data: TypeAlias = NDArray[Any] | _CudaArray | SupportsIndex  # an array, or an address

# ---- functions

# One overload each for: out given, which is returned; arrays of one dtype, which the result has; whatever
# NumPy makes an array of; arrays on a GPU. Without out there is nothing to accumulate into.

@type_check_only
class _Elementwise(Protocol):
    __name__: str
    @overload
    def __call__(
        self, grad_output: ArrayLike, input: ArrayLike, *,
        out: _Out, accumulate: bool = False, device: str | None = None, num_threads: SupportsIndex | None = None,
    ) -> _Out: ...
    @overload
    def __call__(
        self, grad_output: NDArray[_T], input: NDArray[_T], *,
        out: None = None, accumulate: Literal[False] = False, device: str | None = None,
        num_threads: SupportsIndex | None = None,
    ) -> NDArray[_T]: ...
    @overload
    def __call__(
        self, grad_output: ArrayLike, input: ArrayLike, *,
        out: None = None, accumulate: Literal[False] = False, device: str | None = None,
        num_threads: SupportsIndex | None = None,
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self, grad_output: _CudaArray, input: _CudaArray, *,
        out: _CudaArray | None = None, accumulate: bool = False, device: str | None = None,
        num_threads: SupportsIndex | None = None,
    ) -> Any: ...

@type_check_only
class _Gelu(Protocol):
    __name__: str
    @overload
    def __call__(
        self, grad_output: ArrayLike, input: ArrayLike, *, approximate: _Approximate = "none",
        out: _Out, accumulate: bool = False, device: str | None = None, num_threads: SupportsIndex | None = None,
    ) -> _Out: ...
    @overload
    def __call__(
        self, grad_output: NDArray[_T], input: NDArray[_T], *, approximate: _Approximate = "none",
        out: None = None, accumulate: Literal[False] = False, device: str | None = None,
        num_threads: SupportsIndex | None = None,
    ) -> NDArray[_T]: ...
    @overload
    def __call__(
        self, grad_output: ArrayLike, input: ArrayLike, *, approximate: _Approximate = "none",
        out: None = None, accumulate: Literal[False] = False, device: str | None = None,
        num_threads: SupportsIndex | None = None,
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self, grad_output: _CudaArray, input: _CudaArray, *, approximate: _Approximate = "none",
        out: _CudaArray | None = None, accumulate: bool = False, device: str | None = None,
        num_threads: SupportsIndex | None = None,
    ) -> Any: ...

@type_check_only
class _LeakyRelu(Protocol):
    __name__: str
    @overload
    def __call__(
        self, grad_output: ArrayLike, input: ArrayLike, negative_slope: SupportsFloat = 0.01, *,
        self_is_result: bool = False,
        out: _Out, accumulate: bool = False, device: str | None = None, num_threads: SupportsIndex | None = None,
    ) -> _Out: ...
    @overload
    def __call__(
        self, grad_output: NDArray[_T], input: NDArray[_T], negative_slope: SupportsFloat = 0.01, *,
        self_is_result: bool = False, out: None = None, accumulate: Literal[False] = False, device: str | None = None,
        num_threads: SupportsIndex | None = None,
    ) -> NDArray[_T]: ...
    @overload
    def __call__(
        self, grad_output: ArrayLike, input: ArrayLike, negative_slope: SupportsFloat = 0.01, *,
        self_is_result: bool = False, out: None = None, accumulate: Literal[False] = False, device: str | None = None,
        num_threads: SupportsIndex | None = None,
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self, grad_output: _CudaArray, input: _CudaArray, negative_slope: SupportsFloat = 0.01, *,
        self_is_result: bool = False, out: _CudaArray | None = None, accumulate: bool = False,
        device: str | None = None, num_threads: SupportsIndex | None = None,
    ) -> Any: ...

relu_backward: _Elementwise
gelu_backward: _Gelu
leaky_relu_backward: _LeakyRelu
sigmoid_backward: _Elementwise

# None where output_mask left a gradient out; `| Any` spares everybody else an assertion.
class ConvGradients(NamedTuple):
    grad_input: NDArray[Any] | Any
    grad_weight: NDArray[Any] | Any
    grad_bias: NDArray[Any] | Any

def conv_backward(
    grad_output: ArrayLike | _CudaArray, input: ArrayLike | _CudaArray, weight: ArrayLike | _CudaArray, *,
    stride: _PerAxis = 1, padding: _Padding = 0, dilation: _PerAxis = 1, groups: SupportsIndex = 1,
    output_mask: Sequence[bool] = (True, True, True),
    out: Sequence[NDArray[Any] | _CudaArray | None] | None = (None, None, None),
    accumulate: bool = False, device: str | None = None, num_threads: SupportsIndex | None = None,
) -> ConvGradients: ...

def conv(
    input: ArrayLike | _CudaArray, weight: ArrayLike | _CudaArray, bias: ArrayLike | _CudaArray | None = None, *,
    stride: _PerAxis = 1, padding: _Padding = 0, dilation: _PerAxis = 1, groups: SupportsIndex = 1,
    out: NDArray[Any] | None = None, device: str | None = None, num_threads: SupportsIndex | None = None,
) -> NDArray[Any]: ...

# ---- devices and descriptors

class Handle:
    device: str
    device_id: int
    def __init__(self, device: str = "cpu", index: SupportsIndex | None = None) -> None: ...
    @property
    def backend(self) -> Any: ...
    def destroy(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...

def available_devices() -> list[str]: ...
def empty_workspace(handle: Handle, size: SupportsIndex) -> Any: ...

@type_check_only
class _OperatorDescriptor:
    operator: str
    device: str
    device_id: int
    @property
    def plan(self) -> Any: ...
    @property
    def workspace_size(self) -> int: ...
    def destroy(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...

@type_check_only
class _ElementwiseDescriptor(_OperatorDescriptor):
    row: Any
    parameters: dict[str, Any]
    def __init__(
        self, handle: Handle, grad_input: TensorDescriptor, input: TensorDescriptor, grad_output: TensorDescriptor,
    ) -> None: ...
    def calculate(
        self, workspace: _Data | None, grad_input: _Data, input: _Data, grad_output: _Data, stream: Any = None
    ) -> None: ...

class ReluBackwardDescriptor(_ElementwiseDescriptor): ...
class SigmoidBackwardDescriptor(_ElementwiseDescriptor): ...

class GeluBackwardDescriptor(_ElementwiseDescriptor):
    def __init__(
        self, handle: Handle, grad_input: TensorDescriptor, input: TensorDescriptor, grad_output: TensorDescriptor, *,
        approximate: _Approximate = "none",
    ) -> None: ...

class LeakyReluBackwardDescriptor(_ElementwiseDescriptor):
    def __init__(
        self, handle: Handle, grad_input: TensorDescriptor, input: TensorDescriptor, grad_output: TensorDescriptor, *,
        negative_slope: SupportsFloat = 0.01, self_is_result: bool = False,
    ) -> None: ...

class ConvBackwardDescriptor(_OperatorDescriptor):
    def __init__(
        self, handle: Handle, grad_output: TensorDescriptor, input: TensorDescriptor, weight: TensorDescriptor,
        bias: TensorDescriptor | None, pads: _PerAxis, strides: _PerAxis, dilations: _PerAxis, groups: SupportsIndex,
    ) -> None: ...
    def explain(self) -> str: ...
    def calculate(
        self, workspace: _Data | None, grad_input: _Data | None, grad_weight: _Data | None, grad_bias: _Data | None,
        grad_output: _Data, input: _Data, weight: _Data, stream: Any = None,
    ) -> None: ...

class ConvDescriptor(_OperatorDescriptor):
    def __init__(
        self, handle: Handle, output: TensorDescriptor, input: TensorDescriptor, weight: TensorDescriptor,
        bias: TensorDescriptor | None, pads: _PerAxis, strides: _PerAxis, dilations: _PerAxis, groups: SupportsIndex,
    ) -> None: ...
    def explain(self) -> str: ...
    def calculate(
        self, workspace: _Data | None, output: _Data, input: _Data, weight: _Data, bias: _Data | None,
        stream: Any = None,
    ) -> None: ...

def get_include() -> str: ...
def show_config() -> None: ...
