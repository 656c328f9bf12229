"""Kernels on disk: compiled once, written whole, compiled again where they do not load; clear words where they cannot
be compiled."""
import os
import pathlib
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import infiniop_cy as iop
from infiniop_cy.backends import cuda_build
from infiniop_cy.core import _core

TESTS = pathlib.Path(__file__).parent.parent


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("INFINIOP_CY_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compiled(monkeypatch):
    """Names of what the compiler was asked for."""
    from pycuda import compiler
    calls, compile = [], compiler.compile

    def counting(source, **keywords):
        calls.append(keywords["arch"])
        return compile(source, **keywords)
    monkeypatch.setattr(compiler, "compile", counting)
    return calls


def cubin(**changed):
    return cuda_build.cubin(**{"op": "op", "name": "relu_backward", "dtype": "float32", "capability": 90} | changed)


def test_once_per_formula_dtype_and_architecture(cache, compiled):
    images = [cubin() for _ in range(3)]
    assert images[0] == images[1] == images[2]
    assert compiled == ["sm_90"]
    cubin(dtype="float64")
    cubin(name="sigmoid_backward")
    cubin(capability=80)
    cubin()
    assert compiled == ["sm_90", "sm_90", "sm_90", "sm_80"]
    assert len(list(cache.iterdir())) == 4
    cubin(fresh=True)
    assert len(compiled) == 5
    assert len(list(cache.iterdir())) == 4


def test_sources_and_options_are_in_the_name():
    path, source, options, folders = _core.cuda_build_request("gelu_backward", "bfloat16", 86)
    assert pathlib.Path(path).name.startswith("gelu_backward-bfloat16-sm_86-")
    assert pathlib.Path(source).name == "elementwise.cu"
    assert "--fmad=false" in options
    assert {"-DINFINIOP_T=bfloat16", "-DINFINIOP_FORMULA=gelu", "-DINFINIOP_DIRECTION=gradient_of"} <= set(options)
    assert all(pathlib.Path(folder).is_dir() for folder in folders)
    conv = _core.cuda_build_request("conv_backward", "float64", 86)
    assert (pathlib.Path(conv[1]).name, conv[2][-1]) == ("conv_backward.cu", "-DINFINIOP_T=double")


@pytest.mark.parametrize(("variables", "folder"), [
    ({"INFINIOP_CY_CACHE_DIR": "/a/b"}, "/a/b"), ({"XDG_CACHE_HOME": "/x"}, "/x/infiniop_cy"),
    ({"HOME": "/h"}, "/h/.cache/infiniop_cy")])
def test_where_the_cache_is(variables, folder, monkeypatch):
    for name in ("INFINIOP_CY_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert str(pathlib.Path(_core.cuda_build_request("relu_backward", "float32", 90)[0]).parent) == folder


def test_nobody_reads_half_a_file(cache, monkeypatch):
    """Eight threads compile the same module: every one gets all of it, and no part is left behind."""
    start = threading.Barrier(8)

    def one(_):
        start.wait()
        return cubin()
    with ThreadPoolExecutor(8) as pool:
        images = set(pool.map(one, range(8)))
    assert len(images) == 1
    assert [path.suffix for path in cache.iterdir()] == [".cubin"]


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch, compiled):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("INFINIOP_CY_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert cubin() == cubin()
    assert len(compiled) == 2


def run(script, **environment):
    """In a process that has loaded no kernels yet; its standard output."""
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
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(preamble) + textwrap.dedent(script)], check=False,
                         env={**os.environ, "TESTS": str(TESTS), **environment}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_what_does_not_load_is_compiled_again(cache):
    """Garbage, half a file, and an empty one in the cache."""
    script = """
        assert relu() == [1, 0, 3]
        print(len(list(cache.iterdir())))
        """
    assert run(script) == "1\n"
    path, = cache.iterdir()
    image = path.read_bytes()
    for broken in (b"not machine code", image[:len(image) // 2], b""):
        path.write_bytes(broken)
        assert run(script) == "1\n"
        assert path.read_bytes()[:4] == image[:4]


def test_a_filled_cache_needs_no_compiler(cache, tmp_path):
    run("relu()")
    bare = str(pathlib.Path(sys.executable).parent)
    script = """
        os.environ["PATH"] = {bare!r}
        os.environ.pop("CUDA_HOME", None)
        from infiniop_cy.backends import cuda_build
        cuda_build.find_nvcc = lambda: "no-nvcc-here"
        assert relu() == [1, 0, 3]
        try:
            iop.sigmoid_backward(g, x, device="cuda")
        except iop.InternalError as error:
            assert "sigmoid_backward: the kernels of sigmoid_backward for float32 need a CUDA compiler" in str(error)
            assert "no-nvcc-here" in str(error) and str(cache) in str(error), error
            print("done")
        """
    assert run(script.replace("{bare!r}", repr(bare))) == "done\n"


def test_the_compilers_words_are_in_the_error(cache, monkeypatch):
    request = _core.cuda_build_request

    def broken(*arguments):
        path, source, options, folders = request(*arguments)
        return path, source, [*options, "-DINFINIOP_T=no_such_type"], folders
    monkeypatch.setattr(_core, "cuda_build_request", broken)
    with pytest.raises(iop.InternalError,
                       match=r"(?s)op: the kernels of relu_backward for float32 do not compile.*no_such_type"):
        cubin()
    assert not cache.exists() or not list(cache.iterdir())


def test_too_old_a_device(cache):
    with pytest.raises(iop.DeviceArchitectureNotSupported, match=r"compute capability 6\.1, expected at least 7\.5"):
        cubin(capability=61)
