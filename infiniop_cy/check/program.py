"""A candidate that is any program: arrays go in and come out as .npy files, bfloat16 as its bits in uint16.

In the command line {inputs} and {outputs} stand for the files' paths, one argument each: grad_output, input (and
weight) in, grad_input (and grad_weight, grad_bias) out; of conv input, weight (and bias) in, output out. {parameters}
is one JSON object, {operator} the operator's name.
"""
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import tempfile

import numpy as np

from infiniop_cy.check.calls import CONVOLUTIONS, Died
from infiniop_cy.dtypes import numpy_dtype


def last_line(file):
    """The last line that was written to a binary file, at most 160 characters."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - 1000))
    lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1].strip()[:160] if lines else ""


class Program:
    def __init__(self, spec):
        self.words = shlex.split(spec.target)
        if "{inputs}" not in self.words or "{outputs}" not in self.words:
            raise ValueError(f"--command {spec.target!r}: expected the words {{inputs}} and {{outputs}} in it")
        self.takes_parameters = any("{parameters}" in word for word in self.words)

    def facts(self):
        words = (shutil.which(self.words[0]) or self.words[0], *self.words[1:])
        return {"out": False, "threads": False, "elsewhere": True, "files": list(filter(os.path.isfile, words))}

    def offers(self, operator, parameters):
        if parameters and not self.takes_parameters and operator not in CONVOLUTIONS:
            return "the command line has no {parameters}"
        return None

    def call(self, call, inputs, outputs):
        with tempfile.TemporaryDirectory() as folder:
            paths = {name: str(pathlib.Path(folder) / f"{name}.npy") for name in (*inputs, *outputs)}
            for name, array in inputs.items():
                np.save(paths[name], array.view(np.uint16) if array.dtype.name == "bfloat16" else array)
            line = []
            for word in self.words:
                if word in ("{inputs}", "{outputs}"):
                    line += [paths[name] for name in (inputs if word == "{inputs}" else outputs)]
                else:
                    line.append(word.replace("{operator}", call.operator).replace(
                        "{parameters}", json.dumps(call.parameters)))
            with tempfile.TemporaryFile() as said:  # as much as it likes to
                code = subprocess.run(line, stdin=subprocess.DEVNULL, stdout=said, stderr=said, check=False).returncode
                words = f" ({last_line(said)})" if last_line(said) else ""
            if code < 0:
                raise Died(f"the program was killed by {signal.Signals(-code).name}{words}")
            if code:
                raise RuntimeError(f"the program ended with exit code {code}{words}")
            return {name: self._load(paths[name], outputs[name]) for name in outputs}

    def _load(self, path, like):
        if not pathlib.Path(path).exists():
            return None
        array = np.load(path)
        if like.dtype.name == "bfloat16" and array.dtype.itemsize == 2 and array.dtype != np.float16:
            return array.view(numpy_dtype("bfloat16"))
        return array
