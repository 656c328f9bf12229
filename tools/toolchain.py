"""The compiler that builds the extension: whether it is there, what it compiles for, and whether it has OpenMP.

Everything is asked of the compiler itself, with the flags that the build will give it: it may be a cross-compiler,
whose target is not this machine. setup.py loads this file by its path, since a build knows no packages of the checkout.
"""
import os
import pathlib
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from typing import NamedTuple

COMPILER_HINT = """
infiniop_cy: {problem}
It is compiled by gcc or clang. Install one:
  Debian, Ubuntu   apt install g++              Fedora, RHEL   dnf install gcc-c++
  Alpine           apk add g++ linux-headers    macOS          xcode-select --install
  Windows          the clang of MSYS2, with CC=clang, CXX=clang++ and DIST_EXTRA_CONFIG=.ci/mingw.cfg
or name one that is there: CC=clang CXX=clang++
"""

OPENMP_HINT = """
infiniop_cy: this compiler does not build with OpenMP (-fopenmp), so every call will run on one thread.
  Debian, Ubuntu with clang: apt install libomp-dev      macOS: brew install libomp
Set INFINIOP_CY_OPENMP=0 to silence this message.
"""

OPENMP_PROBE = "#include <omp.h>\nint probe() { return omp_get_max_threads(); }\n"


class Target(NamedTuple):
    """What a compiler compiles for; "" where it is none of these."""

    system: str   # "linux", "darwin", "windows"
    machine: str  # "x86_64", "aarch64"


def user_flags():
    """The user's own flags, which go after all of ours but those that an instruction set is compiled with."""
    return [flag for name in ("CPPFLAGS", "CFLAGS", "CXXFLAGS") for flag in shlex.split(os.environ.get(name, ""))]


def use_one_architecture():
    """Let a Python of macOS that is made for two kinds of CPU compile for the one that it runs on: the instruction
    sets have flags of their own. ARCHFLAGS="-arch x86_64" names another one."""
    name = sysconfig.get_platform()
    if sys.platform == "darwin" and name.endswith("universal2"):
        flags = os.environ.setdefault("ARCHFLAGS", f"-arch {platform.machine()}").split()
        os.environ.setdefault("_PYTHON_HOST_PLATFORM", name.replace("universal2", flags[-1]))


def command_of(compiler):
    """The command that setuptools compiles C++ by, with all of its flags; or raise SystemExit with what to install."""
    command = getattr(compiler, "compiler_so_cxx", None)
    if command is None:  # Microsoft's, which knows neither vectors of GNU C nor its flags
        raise SystemExit(COMPILER_HINT.format(problem=f"{type(compiler).__name__} cannot compile it."))
    if not shutil.which(command[0]):
        raise SystemExit(COMPILER_HINT.format(problem=f"there is no C++ compiler: {command[0]!r} is not on PATH."))
    return command


def _run_on_nothing(command, flags):
    """What a compiler makes of an empty source."""
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "empty.cpp")
        pathlib.Path(source).touch()
        return subprocess.run([*command, *user_flags(), *flags, source], capture_output=True, text=True, check=False)


def known_flags(command, flags):
    """Those of these flags that a compiler accepts."""
    return [flag for flag in flags if _run_on_nothing(command, [flag, "-E"]).returncode == 0]


def target_of(command):
    """Target of a compiler by the macros that it predefines."""
    ran = _run_on_nothing(command, ["-dM", "-E"])
    if ran.returncode:
        words = ran.stderr.strip().splitlines()[:3]
        raise SystemExit(COMPILER_HINT.format(problem=f"{shlex.join(command[:3])} fails: {' '.join(words)}"))
    macros = {words[1] for words in map(str.split, ran.stdout.splitlines()) if len(words) > 1}

    def first(names):
        return next((name for macro, name in names.items() if macro in macros), "")
    return Target(first({"__linux__": "linux", "__APPLE__": "darwin", "_WIN32": "windows"}),
                  first({"__x86_64__": "x86_64", "__aarch64__": "aarch64"}))


def openmp_flags(compiler, target):
    """(flags to compile by, flags to link by) with OpenMP; both empty where there is none, after a word about it."""
    if os.environ.get("INFINIOP_CY_OPENMP") == "0":
        return [], []
    ways = [(["-fopenmp"], ["-fopenmp"])]
    if target.system == "darwin":  # Apple's clang hides it, and has no library of its own
        ways.append((["-Xpreprocessor", "-fopenmp"], ["-lomp"]))
    for flags, links in ways:
        if _builds(compiler, flags, links):
            return flags, links
    print(OPENMP_HINT, file=sys.stderr)
    return [], []


def _builds(compiler, flags, links):
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "probe.cpp")
        with open(source, "w") as file:
            file.write(OPENMP_PROBE)
        try:
            objects = compiler.compile([source], output_dir=folder, extra_postargs=[*flags, *user_flags()])
            compiler.link_shared_object(objects, os.path.join(folder, "probe.so"), target_lang="c++",
                                        extra_postargs=links)
        except Exception:  # distutils has one class per compiler and step
            return False
    return True
