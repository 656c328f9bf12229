"""What can be checked: a Python function, a C library, a program, or one of the presets. Loaded in its own process.

A candidate has
    offers(operator, parameters)   None, or why it cannot compute that
    call(call, inputs, outputs)    {output: array or None}; both are arrays in shared memory by name
    facts()                        a dict: "out", whether it writes to arrays that it is given; "returns", whether it
                                   may, but need not, be given these; "files", what it consists of, as far as
                                   that is known; "threads", whether a call takes their number
                                   (False: OpenMP's setting does; None: nothing does);
                                   "asymmetric", whether padding may differ by side; "float parameters", whether it
                                   gets parameters rounded to float32; "some gradients", whether those of a
                                   convolution may be left out; "elsewhere", whether it is another process that computes
    damage                         where it can tell: (property, sentence) pairs on the last call
"""
import collections
import importlib
import inspect
import os
import sys
from dataclasses import dataclass

import numpy as np

from infiniop_cy.check import frameworks
from infiniop_cy.check.calls import CONV_OUTPUTS, outputs_named

KEPT = 6  # arrays that were returned: those of two calls at least, as some take turns between two buffers


@dataclass(frozen=True)
class Spec:
    """Which candidate: kind is python, preset, library or program; target its name, path or command line."""

    kind: str
    target: str
    symbols: str | None = None   # of a C library: the operator's name in its symbols
    one_form: bool = False       # of these: whether they compute the form asked for, and have no V2 to choose one
    arrays: str = "numpy"        # what a Python function takes: numpy, torch, cupy or jax
    device: str | None = None    # where torch or JAX arrays lie

    def __str__(self):
        return self.target


def load(spec):
    """The candidate of a Spec."""
    if spec.kind == "python":
        return PythonFunction(spec)
    if spec.kind == "preset":
        from infiniop_cy.check import presets
        return presets.load(spec.target)
    if spec.kind == "library":
        from infiniop_cy.check.library import Library
        return Library(spec)
    from infiniop_cy.check.program import Program
    return Program(spec)


def outputs_of(operator, returned):
    """{output: what was returned for it}: an array, but three (or two) for the gradients of a convolution."""
    if operator != "conv_backward":
        return {outputs_named(operator)[0]: returned}
    if isinstance(returned, dict):
        return {name: returned.get(name) for name in CONV_OUTPUTS}
    returned = tuple(returned)
    return dict(zip(CONV_OUTPUTS, returned + (None,) * (3 - len(returned))))


def _not_its_own(value, inputs, returned):
    """Why a NumPy array that was returned is not the caller's to keep and to change, or None. returned: by the calls
    before, whose caller may have kept it."""
    if not isinstance(value, np.ndarray):
        return None
    if type(value) is not np.ndarray:
        return f"is a {type(value).__name__}"
    if not value.flags.writeable:
        return "is read-only"
    shared = [name for name, array in inputs.items() if np.may_share_memory(value, array)]
    shared += ["the result of a call before"] * any(np.may_share_memory(value, other) for other in returned)
    return f"shares memory with {shared[0]}" if shared else None


class PythonFunction:
    """`module:function`, called as f(grad_output, input, **parameters), f(grad_output, input, weight, stride=,
    padding=, dilation=, groups=), or f(input, weight[, bias], stride=, ...). It may take out= and num_threads=."""

    def __init__(self, spec):
        module, _, name = spec.target.partition(":")
        if not name:
            raise ValueError(f"{spec.target}: expected module:function, or a preset")
        sys.path.insert(0, os.getcwd())
        self.module, self.function = module, importlib.import_module(module)
        for part in name.split("."):
            self.function = getattr(self.function, part)
        self.arrays = frameworks.Arrays(spec.arrays, spec.device)
        try:
            taken = inspect.signature(self.function).parameters.values()
            self.names = {p.name for p in taken if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
            self.any_name = any(p.kind is p.VAR_KEYWORD for p in taken)
            self.needs_out = any(p.name == "out" and p.default is p.empty for p in taken)
        except (ValueError, TypeError):  # a ufunc or a builtin tells nothing
            self.names, self.any_name, self.needs_out = set(), False, False
        self.returned = collections.deque(maxlen=KEPT)

    def facts(self):
        out = "out" in self.names and self.arrays.name == "numpy"
        modules = {self.module, getattr(self.function, "__module__", None)} & sys.modules.keys()
        return {"out": out, "returns": out and not self.needs_out, "threads": "num_threads" in self.names,
                "own array": self.arrays.name == "numpy" and not (out and self.needs_out),
                "some gradients": "output_mask" in self.names,
                "files": [file for file in (getattr(sys.modules[name], "__file__", None) for name in modules) if file]}

    def offers(self, operator, parameters):
        if self.any_name:
            return None
        missing = [name for name in parameters if name not in self.names]
        return f"the function takes no {', '.join(missing)}" if missing else None

    def call(self, call, inputs, outputs):
        self.damage = []
        keywords = {name: value for name, value in call.parameters.items() if self.any_name or name in self.names}
        if "padding" in keywords and all(a == b for a, b in keywords["padding"]):
            keywords["padding"] = tuple(a for a, _ in keywords["padding"])
        if call.threads is not None and "num_threads" in self.names:
            keywords["num_threads"] = call.threads
        names = outputs_named(call.operator)
        if len(names) > 1 and "output_mask" in self.names:
            keywords["output_mask"] = tuple(name in outputs for name in names)
        if call.into:
            keywords["out"] = tuple(map(outputs.get, names)) if len(names) > 1 else outputs[names[0]]
        returned = self.function(*(self.arrays.give(a) for a in inputs.values()), **keywords)
        if call.into:
            return outputs
        taken = outputs_of(call.operator, returned)
        if self.arrays.name == "numpy":
            self.damage = [("own array", f"{name} {said}") for name, value in taken.items()
                           for said in [_not_its_own(value, inputs, self.returned)] if said]
            self.returned.extend(value for value in taken.values() if isinstance(value, np.ndarray))
        return {name: None if value is None else self.arrays.take(value) for name, value in taken.items()}
