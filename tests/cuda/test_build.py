"""Kernels on disk: compiled once, kept whole, read only where they can be trusted, compiled again where they do not
load; clear words where they cannot be compiled."""
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import infiniop_cy as iop
from infiniop_cy.__main__ import main
from infiniop_cy.backends import cuda_build
from infiniop_cy.core import _core

TESTS = pathlib.Path(__file__).parent.parent
NONE = "/no-nvcc-here"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("INFINIOP_CY_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """A function that gives the architectures that the compiler was asked for, one after the other."""
    nvcc, asked = tmp_path / "counting-nvcc", tmp_path / "asked"
    asked.touch()
    nvcc.write_text(f"""#!/bin/sh
        case "$*" in *--list-gpu-arch*) ;; *) echo "$3" >> {asked};; esac
        exec {_core.cuda_compiler()} "$@"
        """)
    nvcc.chmod(0o755)
    monkeypatch.setenv("INFINIOP_CY_NVCC", str(nvcc))
    return lambda: asked.read_text().split()


def cubin(**changed):
    return cuda_build.cubin(**{"op": "op", "name": "relu_backward", "dtype": "float32", "capability": 90} | changed)


def run(script, **environment):
    """In a process that has loaded no kernels yet; its standard output."""
    return finish(start(script, **environment))


def start(script, **environment):
    preamble = """
        import os, pathlib, sys
        import numpy as np
        sys.path.insert(0, os.environ["TESTS"])
        if "EMULATION_FOLDER" in os.environ:
            import emulation
            emulation.install(os.environ["EMULATION_FOLDER"])
        import infiniop_cy as iop
        g = np.float32([1, 2, 3])
        x = np.float32([1, -1, 1])
        def relu(**keywords):
            return iop.relu_backward(g, x, device="cuda", **keywords).tolist()
        cache = pathlib.Path(os.environ["INFINIOP_CY_CACHE_DIR"])
        """
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(preamble) + textwrap.dedent(script)], text=True,
                            env={**os.environ, "TESTS": str(TESTS), **environment}, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)


def finish(process):
    out, words = process.communicate(timeout=120)
    assert process.returncode == 0, words
    return out


def test_once_per_formula_dtype_and_architecture(cache, compiled):
    images = [cubin() for _ in range(3)]
    assert images[0] == images[1] == images[2]
    assert compiled() == ["sm_90"]
    cubin(dtype="float64")
    cubin(name="sigmoid_backward")
    cubin(capability=80)
    cubin()
    assert compiled() == ["sm_90", "sm_90", "sm_90", "sm_80"]
    assert len(list(cache.iterdir())) == 4
    cubin(fresh=True)
    assert len(compiled()) == 5
    assert len(list(cache.iterdir())) == 4


def test_sources_and_options_are_in_the_name():
    file, source, options, folders = _core.cuda_build_request("gelu_backward", "bfloat16", 86)
    assert file.startswith("gelu_backward-bfloat16-sm_86-")
    assert _core.cuda_build_request("gelu_backward", "bfloat16", 86, True)[0].startswith(
        "gelu_backward-bfloat16-compute_86-")
    assert pathlib.Path(source).name == "elementwise.cu"
    assert {"--fmad=false", "--prec-div=false"} <= set(options)
    assert "--prec-div=false" not in _core.cuda_build_request("gelu_backward", "float32", 86)[2]
    assert {"-DINFINIOP_T=bfloat16", "-DINFINIOP_FORMULA=gelu", "-DINFINIOP_DIRECTION=gradient_of"} <= set(options)
    assert all(pathlib.Path(folder).is_dir() for folder in folders)
    conv = _core.cuda_build_request("conv", "float64", 86)
    assert (pathlib.Path(conv[1]).name, conv[2][-1]) == ("conv.cu", "-DINFINIOP_T=double")


# ---- where it is, and whom it trusts

@pytest.mark.parametrize(("variables", "folder"), [
    ({"INFINIOP_CY_CACHE_DIR": "/a/b"}, "/a/b"), ({"XDG_CACHE_HOME": "/x"}, "/x/infiniop_cy"),
    ({"HOME": "/h"}, "/h/.cache/infiniop_cy"), ({"XDG_CACHE_HOME": "x", "HOME": "/h"}, "/h/.cache/infiniop_cy"),
    ({}, ""), ({"HOME": ""}, ""), ({"HOME": "."}, "")])
def test_where_the_cache_is(variables, folder, monkeypatch):
    """Nowhere, where the environment names no home: anybody may have filled a folder of the working directory."""
    for name in ("INFINIOP_CY_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert _core.cuda_cache() == folder


def test_without_a_home(tmp_path, monkeypatch, compiled):
    """Kernels are compiled, and kept nowhere."""
    for name in ("INFINIOP_CY_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert cubin() == cubin()
    assert len(compiled()) == 2
    assert not list(pathlib.Path().iterdir())
    assert main(["build-kernels", "--only", "relu_backward"]) == 1


def planted(path, how):
    """Make a file in the cache one that must not be read."""
    image = path.read_bytes()
    if how in ("owned by another", "in a folder of another"):
        if os.geteuid():
            pytest.skip("only root can give files away")
        os.chown(path if how == "owned by another" else path.parent, 12345, -1)
    elif how == "writable by others":
        path.chmod(0o666)
    elif how == "in a folder that others can write":
        path.parent.chmod(0o777)
    elif how == "a link":
        path.rename(path.with_name("elsewhere"))
        path.symlink_to("elsewhere")
    elif how == "a pipe":
        path.unlink()
        os.mkfifo(path)
    else:
        path.write_bytes({
            "garbage": b"not machine code", "empty": b"", "half": image[:len(image) // 2],
            "without its end": image[:-1], "longer": image + b"\0",
            "one bit": image[:1000] + bytes([image[1000] ^ 1]) + image[1001:],
            "without a header": image[32:]}[how])


@pytest.mark.parametrize("how", [
    "garbage", "empty", "half", "without its end", "longer", "one bit", "without a header", "owned by another",
    "in a folder of another", "writable by others", "in a folder that others can write", "a link", "a pipe"])
def test_what_cannot_be_trusted_is_compiled_again(how, cache, compiled):
    """The driver would read past the end of half a file, and run what another user left."""
    image = cubin()
    path, = cache.iterdir()
    assert path.stat().st_mode & 0o777 == 0o644 & ~umask()
    planted(path, how)
    assert cubin() == image
    assert len(compiled()) == 2
    if "folder" not in how:  # and put in its place
        assert not path.is_symlink()
        assert cubin() == image
        assert len(compiled()) == 2
    cache.chmod(0o700)
    os.chown(cache, os.geteuid(), -1)


def umask():
    value = os.umask(0o22)
    os.umask(value)
    return value


def test_a_file_under_another_name_is_not_taken(cache, compiled):
    """The hash knows whose kernels they are: those of sigmoid would load as relu's, which have the same names."""
    cubin(name="sigmoid_backward")
    other, = cache.iterdir()
    shutil.copy(other, cache / _core.cuda_build_request("relu_backward", "float32", 90)[0])
    cubin()
    assert len(compiled()) == 2


def test_words_of_the_compiler_go_through_no_link(cache, tmp_path, monkeypatch):
    """The C API leaves them beside where the kernels would be."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    cache.mkdir()
    log = cache / (_core.cuda_build_request("relu_backward", "float32", _core.device_capability(0))[0] + ".log")
    log.symlink_to(victim)
    from test_c_api import build_client, run_client
    client = build_client(tmp_path)
    assert run_client(client, cache, INFINIOP_CY_NVCC=NONE).returncode == 10 + 1
    assert victim.read_text() == "precious"
    assert not log.is_symlink()
    assert f"INFINIOP_CY_NVCC is {NONE}, which is no program" in log.read_text()
    assert stat.S_ISREG(log.stat().st_mode)


# ---- many at once

def test_threads_compile_once(cache, compiled):
    """Eight threads want the same module: one compiles, every one gets all of it, and nothing else is left behind."""
    barrier = threading.Barrier(8)

    def one(_):
        barrier.wait()
        return cubin()
    with ThreadPoolExecutor(8) as pool:
        images = set(pool.map(one, range(8)))
    assert len(images) == len(compiled()) == 1
    assert [path.suffix for path in cache.iterdir()] == [".cubin"]


def test_processes_compile_once(cache, compiled):
    processes = [start("print(relu())") for _ in range(3)]
    assert [finish(process) for process in processes] == ["[1.0, 0.0, 3.0]\n"] * 3
    assert len(compiled()) == 1
    assert [path.suffix for path in cache.iterdir()] == [".cubin"]


def test_a_lock_of_a_dead_process_holds_nobody_up(cache, compiled):
    cache.mkdir()
    (cache / (_core.cuda_build_request("relu_backward", "float32", 90)[0] + ".lock")).touch()
    cubin()
    assert [path.suffix for path in cache.iterdir()] == [".cubin"]


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch, compiled):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("INFINIOP_CY_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert cubin() == cubin()
    assert len(compiled()) == 2


# ---- which compiler, and which GPU

def test_where_nvcc_is_looked_for(tmp_path, monkeypatch):
    def place(folder):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "nvcc").touch(0o755)
        return str(tmp_path / folder / "nvcc")
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "path"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'empty'}:{tmp_path / 'first'}:{os.defpath}")
    monkeypatch.delenv("INFINIOP_CY_NVCC", raising=False)
    for folder in ("path/bin", "home/bin", "first"):
        expected = place(folder)
        assert _core.cuda_compiler() == expected
    os.chmod(tmp_path / "first/nvcc", 0o644)  # no program
    assert _core.cuda_compiler() == str(tmp_path / "home/bin/nvcc")
    monkeypatch.setenv("INFINIOP_CY_NVCC", NONE)
    assert _core.cuda_compiler() == NONE


def test_what_does_not_load_is_compiled_again(cache, emulator):
    """Whole and ours, but made by a compiler for something else."""
    run("relu()")
    path, = cache.iterdir()
    size = path.stat().st_size
    fake = cache.parent / "fake-nvcc"
    fake.write_text('#!/bin/sh\necho "no machine code" > "$5"\n')
    fake.chmod(0o755)
    path.unlink()
    run("""
        try:
            relu()
        except iop.InternalError as error:
            assert "loading its kernels: CUDA_ERROR_NO_BINARY_FOR_GPU" in str(error), error
        else:
            raise AssertionError
        """, INFINIOP_CY_NVCC=str(fake))
    assert path.stat().st_size < 100
    assert run("print(relu())") == "[1.0, 0.0, 3.0]\n"
    assert path.stat().st_size == size


def test_a_filled_cache_needs_no_compiler(cache):
    run("relu()")
    script = """
        assert relu() == [1, 0, 3]
        try:
            iop.sigmoid_backward(g, x, device="cuda")
        except iop.InternalError as error:
            assert "sigmoid_backward: the kernels of sigmoid_backward for float32 need a CUDA compiler" in str(error)
            assert os.environ["INFINIOP_CY_NVCC"] in str(error) and str(cache) in str(error), error
            print("done")
        """
    assert run(script, INFINIOP_CY_NVCC=NONE) == "done\n"


def test_a_gpu_that_the_compiler_does_not_know(cache, compiled, emulator):
    """PTX for the nearest that it knows, which the driver compiles; kept like machine code."""
    newer = {"EMULATION_CAPABILITY": "13.0", "EMULATION_ARCHITECTURES": "75 90 121 140"}
    assert run("print(relu())", **newer) == "[1.0, 0.0, 3.0]\n"
    assert compiled() == ["sm_130", "compute_121"]
    assert [path.suffix for path in cache.iterdir()] == [".ptx"]
    assert run("print(relu())", **newer, INFINIOP_CY_NVCC=NONE) == "[1.0, 0.0, 3.0]\n"


def test_kernels_of_relatives(cache, emulator):
    """Without a compiler: machine code of the same generation, PTX of an earlier one, never of a later one."""
    assert _core.cuda_image("relu_backward", "float32", 80, exactly="cubin")[0]
    assert _core.cuda_image("relu_backward", "float32", 86, exactly="ptx")[0].startswith(b".version")
    script = """
        try:
            print(relu())
        except iop.InternalError as error:
            print("need a CUDA compiler" in str(error))
        """
    for capability, works in (("8.0", True), ("8.9", True), ("12.0", True), ("7.5", False)):
        ran = run(script, EMULATION_CAPABILITY=capability, INFINIOP_CY_NVCC=NONE)
        assert ran == ("[1.0, 0.0, 3.0]\n" if works else "True\n"), capability


def test_build_kernels(cache, compiled, capsys):
    """One line an image, what is there already not again; words where it is wrong."""
    assert main(["build-kernels", "--arch", "sm_90,9.0", "--only", "gelu_backward"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert lines[-1].startswith(f"4 of 4 modules in {cache}, ")
    assert all(line.startswith("gelu_backward ") and " sm_90: " in line for line in lines[:-1])
    assert main(["build-kernels", "--arch", "90", "--only", "gelu_backward"]) == 0
    assert compiled() == ["sm_90"] * 4
    for wrong, words in (("61", "at least 7.5"), ("x", "x"), ("", "")):
        assert main(["build-kernels", "--arch", wrong]) == 2
        assert words in capsys.readouterr().err
    assert main(["build-kernels", "--only", "no_such_backward"]) == 2
    assert main(["build-kernels", "--arch", "199", "--only", "gelu_backward"]) == 1
    assert "Unsupported gpu architecture 'sm_199'" in capsys.readouterr().out


def test_the_compilers_words_are_in_the_error(cache, tmp_path, monkeypatch):
    broken = tmp_path / "broken-nvcc"
    broken.write_text('#!/bin/sh\necho "these are its words" >&2\nexit 2\n')
    broken.chmod(0o755)
    monkeypatch.setenv("INFINIOP_CY_NVCC", str(broken))
    with pytest.raises(iop.InternalError,
                       match=r"(?s)op: the kernels of relu_backward for float32 .*broken-nvcc: these are its words"):
        cubin()
    assert not list(cache.iterdir())


def test_too_old_a_device(cache):
    with pytest.raises(iop.DeviceArchitectureNotSupported, match=r"compute capability 6\.1, expected at least 7\.5"):
        cubin(capability=61)
