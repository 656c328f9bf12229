"""Entry points the emulation does not have: a program linked to them loads, a call says "not supported"."""

import re
from pathlib import Path

DECLARED = re.compile(r"CUresult\s+CUDAAPI\s+(\w+)\s*\(")
RENAMED = re.compile(r"#\s*define\s+(cu\w+)\s+(cu\w+)\s*$", re.MULTILINE)
HEADERS = ("cuda.h", "cudaProfiler.h")


def names(folder):
    """Every driver name that the headers of folder declare, versioned ones included."""
    text = "".join((Path(folder) / header).read_text() for header in HEADERS if (Path(folder) / header).exists())
    return sorted(set(DECLARED.findall(text)) | {name for pair in RENAMED.findall(text) for name in pair})


def source(folder):
    """C++ with a weak definition of each: where the emulation has its own, that one wins."""
    lines = [f'extern "C" __attribute__((weak, visibility("default"))) int {name}() {{ return 801; }}'
             for name in names(folder)]  # fmt: skip
    return "\n".join(lines) + "\n"
