"""CUDA on the host, for tests: a libcuda.so.1 that runs kernels on the CPU, an nvcc that makes them, a small pycuda.

Faults that a device may hide are errors here: out-of-bounds accesses, divergent barriers, missing waits. README.md
says what each part is for.
"""

import ctypes
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from . import stubs

HERE = Path(__file__).resolve().parent
NAME = "libcuda.so.1"

_library = None


def _sources():
    return [HERE / "libcuda.cpp", HERE / "stubs.py", HERE / "include" / "emulation_runtime.h",
            *sorted((HERE / "libcuda").glob("*.h"))]  # fmt: skip


def build(folder, headers=None):
    """The path of the library in folder, compiled if it is missing or older than its sources.

    headers: a folder with cuda.h, for stubs of every other driver function, as real PyCUDA is linked to them.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / NAME
    newest = max(path.stat().st_mtime for path in _sources())
    mark = folder / "headers.txt"
    known = mark.read_text() if mark.exists() else ""
    wanted = str(headers or "")
    if library.exists() and library.stat().st_mtime >= newest and known == wanted:
        return library
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = Path(scratch) / NAME
        extra = Path(scratch) / "stubs.cpp"
        extra.write_text(stubs.source(headers) if headers else "")
        command = [*shlex.split(os.environ.get("CXX", "g++")), "-std=c++17", "-O2", "-fPIC", "-shared"]
        command += ["-fvisibility=hidden", "-ffp-contract=off", f"-Wl,-soname,{NAME}"]
        command += [str(HERE / "libcuda.cpp"), str(extra)]
        subprocess.run([*command, "-o", str(made), "-ldl", "-lpthread"], check=True)
        # Another process may build at the same time: the last whole library wins.
        os.replace(made, library)
        (Path(scratch) / "headers.txt").write_text(wanted)
        os.replace(Path(scratch) / "headers.txt", mark)
    return library


def install_driver_only(folder, headers=None):
    """Puts the library in the place of libcuda.so.1 and nvcc first on PATH: real PyCUDA finds both."""
    global _library
    if _library is None:
        _library = ctypes.CDLL(str(build(folder, headers)), mode=ctypes.RTLD_GLOBAL)
        _library.emulation_pending.restype = ctypes.c_ulonglong
        _library.emulation_last_error_text.restype = ctypes.c_char_p
        os.environ["EMULATION_FOLDER"], os.environ["EMULATION_PYTHON"] = str(Path(folder).resolve()), sys.executable
        os.environ["PATH"] = str(HERE) + os.pathsep + os.environ.get("PATH", "")
    return _library


def install(folder):
    """The driver and nvcc, and the small pycuda of this folder before any other."""
    library = install_driver_only(folder)
    if str(HERE) not in sys.path:
        sys.path.insert(0, str(HERE))
    return library


def library():
    """The installed library."""
    if _library is None:
        raise RuntimeError("emulation.install has not been called")
    return _library


def set_schedule(name):
    """The order of threads between barriers: forward, reverse or random; None: EMULATION_SCHEDULE decides."""
    if library().emulation_set_schedule((name or "").encode()):
        raise ValueError(f"no such schedule: {name}")


def pending():
    """How many operations are queued and have not run, on all streams; events and waits do not count."""
    return library().emulation_pending()


def counts():
    """Calls so far, and what is allocated now."""
    numbers = (ctypes.c_ulonglong * 7)()
    library().emulation_counts(numbers)
    names = ("launches", "copies", "synchronisations", "allocations_alive", "bytes_alive", "bytes_returned",
             "pool_allocations")
    return dict(zip(names, numbers))


def last_error_text():
    """What the emulation found at the last fault: kernel, block, thread and what it did."""
    return library().emulation_last_error_text().decode()
