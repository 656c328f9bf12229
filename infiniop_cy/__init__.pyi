# Types of the public names. elementwise.pyi, written from operators.py when the package is built, has those of the
# elementwise operators.
from collections.abc import Sequence
from types import TracebackType
from typing import (
    Any,
    Literal,
    NamedTuple,
    Self,
    SupportsIndex,
    TypeAlias,
)

from numpy.typing import ArrayLike, NDArray

from infiniop_cy.core._core import TensorDescriptor as TensorDescriptor
from infiniop_cy.core._core import threads as threads
from infiniop_cy.elementwise import *  # noqa: F403
from infiniop_cy.elementwise import _CudaArray, _Data, _OperatorDescriptor
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

_PerAxis: TypeAlias = SupportsIndex | Sequence[SupportsIndex]
_Padding: TypeAlias = (
    SupportsIndex | Sequence[SupportsIndex | tuple[SupportsIndex, SupportsIndex]] | Literal["same", "valid"]
)

# ---- functions

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
