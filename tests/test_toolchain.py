"""What the build asks of the compiler, what it says where there is none, and what the module asks of the CPU."""
import importlib.util
import os
import pathlib
import platform
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="not a checkout")


@pytest.fixture(scope="module")
def toolchain():
    spec = importlib.util.spec_from_file_location("toolchain", ROOT / "tools/toolchain.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Compiler:
    """As much of setuptools' as is asked."""

    def __init__(self, *command):
        self.compiler_so_cxx = list(command)


def test_a_missing_compiler_is_named(toolchain):
    with pytest.raises(SystemExit, match=r"there is no C\+\+ compiler: 'no-such-g\+\+' is not on PATH") as stopped:
        toolchain.command_of(Compiler("no-such-g++", "-O2"))
    for remedy in ("apt install g++", "dnf install gcc-c++", "xcode-select --install", "CC=clang CXX=clang++"):
        assert remedy in str(stopped.value)


def test_microsofts_compiler_is_refused(toolchain):
    with pytest.raises(SystemExit, match="object cannot compile it"):
        toolchain.command_of(object())


def test_a_build_without_a_compiler_says_nothing_of_openmp():
    pytest.importorskip("Cython")
    if int(pytest.importorskip("setuptools").__version__.split(".")[0]) < 77:
        pytest.skip("setuptools is older than a build's")
    ran = subprocess.run([sys.executable, "setup.py", "--quiet", "build_ext"], cwd=ROOT, capture_output=True, text=True,
                         env=os.environ | {"CC": "no-such-gcc", "CXX": "no-such-g++"}, check=False)
    assert ran.returncode == 1
    assert "infiniop_cy: there is no C++ compiler: 'no-such-g++' is not on PATH" in ran.stderr
    assert "OpenMP" not in ran.stderr
    assert "Traceback" not in ran.stderr


def fake_compiler(folder, macros):
    """A program that answers -dM -E with these macros."""
    program = folder / "g++"
    program.write_text("#!/bin/sh\n" + "".join(f"echo '#define {macro} 1'\n" for macro in macros))
    program.chmod(0o755)
    return [str(program)]


@pytest.mark.skipif(os.name != "posix", reason="the compilers here are scripts")
@pytest.mark.parametrize(("macros", "expected"), [
    (("__linux__", "__x86_64__"), ("linux", "x86_64")), (("__linux__", "__aarch64__"), ("linux", "aarch64")),
    (("__APPLE__", "__aarch64__"), ("darwin", "aarch64")), (("_WIN32", "__x86_64__"), ("windows", "x86_64")),
    (("__FreeBSD__", "__riscv"), ("", ""))], ids=str)
def test_the_target_is_the_compilers(toolchain, macros, expected, tmp_path):
    """A cross-compiler's, whatever this machine is."""
    assert toolchain.target_of(fake_compiler(tmp_path, macros)) == expected


def test_a_compiler_that_fails_is_quoted(toolchain, tmp_path):
    program = tmp_path / "g++"
    program.write_text("#!/bin/sh\necho 'no licence' >&2\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(SystemExit, match="fails: no licence"):
        toolchain.target_of([str(program)])


@pytest.mark.skipif(not shutil.which("g++"), reason="g++ is not installed")
def test_the_target_of_a_real_compiler(toolchain):
    machine = {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())
    assert toolchain.target_of(["g++"]).machine == machine


@pytest.mark.skipif(os.name != "posix", reason="the compilers here are scripts")
def test_flags_that_a_compiler_does_not_know_are_left_out(toolchain, tmp_path):
    program = tmp_path / "g++"
    program.write_text("#!/bin/sh\ncase $* in *-fno-such*) exit 1;; esac\n")
    program.chmod(0o755)
    assert toolchain.known_flags([str(program)], ["-fone", "-fno-such", "-fanother"]) == ["-fone", "-fanother"]


def test_the_users_flags_in_their_order(toolchain, monkeypatch):
    for name, value in (("CPPFLAGS", "-DA=1"), ("CFLAGS", "-O1 '-DB=x y'"), ("CXXFLAGS", "-O2")):
        monkeypatch.setenv(name, value)
    assert toolchain.user_flags() == ["-DA=1", "-O1", "-DB=x y", "-O2"]


def test_the_best_instruction_set_is_chosen():
    """As Linux names what the CPU has."""
    from infiniop_cy.core import _core
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        pytest.skip("there is no /proc/cpuinfo")
    if platform.machine() != "x86_64":
        pytest.skip("another kind of CPU")
    flags = next(set(line.split()) for line in text.splitlines() if line.startswith("flags"))
    needed = {"amx": {"amx_tile", "amx_bf16", "avx512f"}, "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
              "avx2": {"avx2", "fma", "f16c"}, "generic": set()}
    best = next(isa for isa, features in needed.items() if features <= flags)
    code = "from infiniop_cy.core._core import build_info; print(build_info()['isa'])"
    environment = {name: value for name, value in os.environ.items() if name != "INFINIOP_CY_ISA"}
    chosen = subprocess.run([sys.executable, "-W", "ignore", "-c", code], env=environment, capture_output=True,
                            text=True, check=True).stdout.strip()
    assert best in _core.compiled_isas()
    assert chosen == best
