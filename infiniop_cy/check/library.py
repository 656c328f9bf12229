"""A candidate that is a C library with the infiniop ABI."""
import numpy as np

from infiniop_cy.capi import client
from infiniop_cy.capi.client import MissingSymbol
from infiniop_cy.check.arena import CANARY, MARGIN
from infiniop_cy.check.calls import CONV_OUTPUTS, CONVOLUTIONS
from infiniop_cy.operators import BY_NAME


class GuardedClient(client.Library):
    """Workspaces hold NaN, since nobody promised zeros, and lie between known bytes."""

    room = None

    def workspace(self, size):
        if not size:
            return None
        holder = np.full(MARGIN + 64 + size + MARGIN, CANARY, np.uint8)
        start = MARGIN + -(holder.ctypes.data + MARGIN) % 64
        self.room = holder, start, start + size
        holder[start:start + size] = 0xFF
        return holder[start:start + size]

    def overrun(self):
        """What was written outside of the last workspace, or None."""
        if self.room is None:
            return None
        (holder, start, stop), self.room = self.room, None
        outside = np.flatnonzero(np.r_[holder[:start], holder[stop:]] != CANARY)
        if not outside.size:
            return None
        at = int(outside[0])
        where = f"{start - at} bytes before the start" if at < start else f"{at - start + 1} bytes past the end"
        return f"written to {where} of the workspace of {stop - start} bytes"


def _spread(array, shape):
    """Broadcast by stride 0; shapes that do not fit as they are, for the library to refuse."""
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        return array


class Library:
    """Descriptors are made and destroyed around every call."""

    def __init__(self, spec):
        self.path = spec.target
        self.client, self.symbols, self.one_form = GuardedClient(spec.target), spec.symbols, spec.one_form
        for name in ("infiniopCreateHandle", "infiniopCreateTensorDescriptor", "infiniopDestroyTensorDescriptor"):
            self.client.function(name)

    def facts(self):
        return {"out": True, "threads": False, "asymmetric": False, "float parameters": True, "some gradients": True,
                "files": [self.path]}

    def offers(self, operator, parameters):
        try:
            name = self.client.name_of(operator, self.symbols)
            for symbol in (f"infiniopGet{name}WorkspaceSize", f"infiniop{name}", f"infiniopDestroy{name}Descriptor"):
                self.client.function(symbol)
            changed = operator in BY_NAME and any(
                p.choices and parameters.get(p.name, p.default) != p.default for p in BY_NAME[operator].parameters)
            if changed and not self.one_form:
                self.client.function(f"infiniopCreate{name}DescriptorV2")
        except MissingSymbol as error:
            return str(error)
        return None

    def call(self, call, inputs, outputs):
        arrays = tuple(inputs.values())
        if call.operator in CONVOLUTIONS:
            given = call.parameters
            if any(a != b for a, b in given["padding"]):
                raise NotImplementedError("the ABI pads alike on both sides")
            lists = given["stride"], [a for a, _ in given["padding"]], given["dilation"]
            if call.operator == "conv":
                self.client.conv_forward(outputs["output"], *arrays, *(None,) * (3 - len(arrays)), *lists, self.symbols)
            else:
                self.client.conv(tuple(map(outputs.get, CONV_OUTPUTS)), *arrays, *lists, given["groups"], self.symbols)
        else:
            out = outputs["grad_input"]
            arrays = (_spread(a, out.shape) for a in arrays)
            self.client.elementwise(call.operator, call.parameters, out, *arrays, given=self.symbols,
                                    one_form=self.one_form)
        overrun = self.client.overrun()
        self.damage = [("no writes outside", overrun)] if overrun else []
        return outputs
