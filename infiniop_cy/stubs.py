"""Types that follow from the table of operators: elementwise.pyi, and a stub for each bridge. Run by setup.py."""

_HEAD = """\
# Written from operators.py by stubs.py when the package is built.
from types import TracebackType
from typing import (
    Any,
    Literal,
    Protocol,
    Self,
    SupportsFloat,
    SupportsIndex,
    TypeAlias,
    TypeVar,
    overload,
    type_check_only,
)

from numpy import generic
from numpy.typing import ArrayLike, NDArray

from infiniop_cy import Handle
from infiniop_cy.core._core import TensorDescriptor

_T = TypeVar("_T", bound=generic)
_Out = TypeVar("_Out", bound=NDArray[Any])

@type_check_only
class _CudaArray(Protocol):
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...

_Data: TypeAlias = NDArray[Any] | _CudaArray | SupportsIndex  # an array, or an address

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

# One overload each: out given, which is returned; arrays of one dtype, which the result has; whatever NumPy makes an
# array of; arrays on a GPU. Without out there is nothing to accumulate into.
"""
# type of the inputs, of out, of accumulate, of the result
_OVERLOADS = (("ArrayLike", "_Out", "bool = False", "_Out"),
              ("NDArray[_T]", "None = None", "Literal[False] = False", "NDArray[_T]"),
              ("ArrayLike", "None = None", "Literal[False] = False", "NDArray[Any]"),
              ("_CudaArray", "_CudaArray | None = None", "bool = False", "Any"))
_CALL = """\
    @overload
    def __call__(
        self, {arguments},
    ) -> {result}: ...
"""
_DESCRIPTOR = """\
class {name}(_OperatorDescriptor):
    definition: Any
    parameters: dict[str, Any]
    def __init__(
        self, handle: Handle, {arguments},
    ) -> None: ...
    def calculate(
        self, workspace: _Data | None, {data}, stream: Any = None
    ) -> None: ...

"""


def _typed(parameter):
    """A parameter with its type and default."""
    if parameter.choices:
        kind = f"Literal[{', '.join(map(repr, parameter.choices))}]"
    else:
        kind = "bool" if isinstance(parameter.default, bool) else "SupportsFloat"
    return f"{parameter.name}: {kind} = {parameter.default!r}"


def _protocol(operator):
    """The overloads of a function's call."""
    calls = ""
    for array, out, accumulate, result in _OVERLOADS:
        words = [f"{name}: {array}" for name in operator.inputs]
        words += [_typed(p) for p in operator.parameters if p.positional] + ["*"]
        words += [_typed(p) for p in operator.parameters if not p.positional] + [f"out: {out}"]
        words += [f"accumulate: {accumulate}"] * operator.backward
        words += ["device: str | None = None", "num_threads: SupportsIndex | None = None"]
        calls += _CALL.format(arguments=", ".join(words), result=result)
    return calls


def render(operators):
    """The text of elementwise.pyi. Operators that are called alike share a protocol."""
    protocols, functions, descriptors = {}, "", ""
    for operator in operators:
        protocol = protocols.setdefault(_protocol(operator), f"_{operator.class_name}")
        functions += f"{operator.name}: {protocol}\n"
        words = [f"{name}: TensorDescriptor" for name in operator.tensors]
        words += ["*"] * bool(operator.parameters) + [_typed(p) for p in operator.parameters]
        descriptors += _DESCRIPTOR.format(
            name=operator.class_name + "Descriptor", arguments=", ".join(words),
            data=", ".join(f"{name}: _Data" for name in operator.tensors))
    calls = "".join(f"@type_check_only\nclass {name}(Protocol):\n    __name__: str\n{text}\n"
                    for text, name in protocols.items())
    return f"{_HEAD}\n{calls}{functions}\n{descriptors}"


# name: (import, what its functions take and return)
_BRIDGES = {
    "autograd": ("from typing import Any as Array", "Array"),
    "jax": ("import jax", "jax.Array"),
    "mygrad": ("import mygrad", "mygrad.Tensor"),
    "pytensor": ("from pytensor.tensor.variable import TensorVariable", "TensorVariable"),
    "torch": ("import torch", "torch.Tensor"),
}
_BRIDGE_HEAD = """\
# Written from operators.py by stubs.py when the package is built.
from typing import Literal, SupportsFloat, SupportsIndex

{library}

from infiniop_cy import _Padding, _PerAxis

"""
_BRIDGE_CONV = """\
def conv(
    input: {array}, weight: {array}, bias: {array} | None = None, *,
    stride: _PerAxis = 1, padding: _Padding = 0, dilation: _PerAxis = 1, groups: SupportsIndex = 1,
    num_threads: SupportsIndex | None = None,
) -> {array}: ...
"""
_MODULES = "".join(f"\nclass Conv{n}d(torch.nn.Conv{n}d): ...\n" for n in (1, 2, 3))


def render_bridges(operators):
    """{name of a bridge: text of its stub}."""
    stubs = {}
    for name, (library, array) in _BRIDGES.items():
        text = _BRIDGE_HEAD.format(library=library)
        for operator in operators:
            if not operator.backward:
                words = [f"input: {array}", *(_typed(p) for p in operator.parameters if p.positional), "*",
                         *(_typed(p) for p in operator.parameters if not p.positional),
                         "num_threads: SupportsIndex | None = None"]
                text += f"def {operator.name}({', '.join(words)}) -> {array}: ...\n"
        stubs[name] = text + _BRIDGE_CONV.format(array=array) + _MODULES * (name == "torch")
    return stubs
