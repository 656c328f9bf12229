"""What the command asks a candidate to compute; both sides of the process boundary read this."""
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from infiniop_cy.dtypes import numpy_dtype

ELEMENTWISE_OUTPUTS = ("grad_input",)


class Tensors(NamedTuple):
    """The names of an operator's tensors, in the order of its functions."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


# A call has no bias where the convolution has none.
CONVOLUTIONS = {
    "conv": Tensors(("input", "weight", "bias"), ("output",)),
    "conv_backward": Tensors(("grad_output", "input", "weight"), ("grad_input", "grad_weight", "grad_bias"))}
CONV_OUTPUTS = CONVOLUTIONS["conv_backward"].outputs


def outputs_named(operator):
    """The names of its outputs: of an elementwise operator the same one for either direction."""
    return CONVOLUTIONS[operator].outputs if operator in CONVOLUTIONS else ELEMENTWISE_OUTPUTS


class CannotRun(Exception):
    """What the command cannot do, in one line: it exits with 2."""


class Died(Exception):
    """A candidate's own process, where it has one beside that of the worker, ended by a signal."""


@dataclass(frozen=True)
class Placed:
    """Where a tensor lies: `offset` is the byte of its element [0, ..., 0], strides are in bytes."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    def view(self, buffer):
        return np.ndarray(self.shape, numpy_dtype(self.dtype), buffer, self.offset, self.strides)


@dataclass(frozen=True)
class Call:
    """One call. `into`: the candidate writes to the outputs itself (`out=`), rather than returning arrays. guards:
    (first byte, bytes, whether they may be read) of pages of the arena that end the process if it touches them."""

    operator: str
    parameters: dict
    inputs: dict[str, Placed]
    outputs: dict[str, Placed]
    into: bool = False
    threads: int | None = None
    guards: tuple[tuple[int, int, bool], ...] = ()


@dataclass
class Reply:
    """What came of a call. kind: ok, raised (an exception, or a status of a C library), crash, timeout.

    results: the outputs' values; None where the candidate left one out. shapes: (shape, dtype name) that it returned.
    damage: what the call did beside its results, such as inputs that changed, as (property, sentence)."""

    kind: str
    text: str = ""
    results: dict = field(default_factory=dict)
    shapes: dict = field(default_factory=dict)
    damage: list = field(default_factory=list)

    @property
    def ok(self):
        return self.kind == "ok"
