"""A candidate that is a C library with the infiniop ABI."""
import numpy as np

from infiniop_cy.capi.client import Library as Client
from infiniop_cy.capi.client import MissingSymbol
from infiniop_cy.operators import BY_NAME


class Library:
    """Descriptors are made and destroyed around every call."""

    def __init__(self, spec):
        self.client, self.symbols, self.one_form = Client(spec.target), spec.symbols, spec.one_form
        for name in ("infiniopCreateHandle", "infiniopCreateTensorDescriptor", "infiniopDestroyTensorDescriptor"):
            self.client.function(name)

    def facts(self):
        return {"out": True, "threads": False, "asymmetric": False, "float parameters": True}

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
        if call.operator == "conv_backward":
            given = call.parameters
            if any(a != b for a, b in given["padding"]):
                raise NotImplementedError("the ABI pads alike on both sides")
            self.client.conv(tuple(outputs.values()), *arrays, given["stride"], [a for a, _ in given["padding"]],
                             given["dilation"], given["groups"], self.symbols)
        else:
            out = outputs["grad_input"]
            arrays = (np.broadcast_to(a, out.shape) for a in arrays)
            self.client.elementwise(call.operator, call.parameters, out, *arrays, given=self.symbols,
                                    one_form=self.one_form)
        return outputs
