"""NVIDIA handles of the C API, in a process without Python."""
import os
import subprocess

import numpy as np
import pytest

from infiniop_cy.capi import get_include, infini_root

SOURCE = os.path.join(os.path.dirname(__file__), "client.cpp")


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    return build_client(tmp_path_factory.mktemp("client"))


def build_client(folder):
    program = folder / "client"
    library = f"{infini_root()}/lib"
    subprocess.run([os.environ.get("CXX", "g++"), "-std=c++17", SOURCE, f"-I{get_include()}", f"-L{library}",
                    "-linfiniop", "-linfinirt", f"-Wl,-rpath,{library}", "-o", program], check=True)
    return program


def run_client(client, cache, **environment):
    folder = os.environ.get("EMULATION_FOLDER", "")
    libraries = {"LD_LIBRARY_PATH": f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"} if folder else {}
    return subprocess.run([client], capture_output=True, text=True, check=False, timeout=120,
                          env={**os.environ, **libraries, "INFINIOP_CY_CACHE_DIR": str(cache), **environment})


def test_client(client, tmp_path):
    """Elementwise and convolution, the kernels compiled by the library itself; the second run needs no compiler."""
    first = run_client(client, tmp_path)
    assert (first.returncode, first.stderr) == (0, "")
    lines = first.stdout.splitlines()
    assert lines[0] == "relu 0 0 3"
    assert lines[1] == "grad_weight 9 12 bias 4"
    assert lines[2] == "output 4.5 8.5 11.5 10.5"
    assert lines[3] == "stale 3 host 3"
    assert len([name for name in os.listdir(tmp_path) if name.endswith(".cubin")]) == 2
    assert not [name for name in os.listdir(tmp_path) if not name.endswith(".cubin")]
    second = run_client(client, tmp_path, INFINIOP_CY_NVCC="/no-nvcc-here")
    assert (second.returncode, second.stdout) == (0, first.stdout)


def test_without_a_compiler(client, tmp_path):
    """INTERNAL_ERROR, and the compiler's words in a file beside where the kernels would be."""
    ran = run_client(client, tmp_path, INFINIOP_CY_NVCC="/no-nvcc-here")
    assert ran.returncode == 10 + 1


def test_python_and_c_share_the_cache(client, tmp_path, monkeypatch):
    from infiniop_cy.backends.cuda_build import cubin
    from infiniop_cy.core._core import device_capability
    monkeypatch.setenv("INFINIOP_CY_CACHE_DIR", str(tmp_path))
    for name in ("relu_backward", "conv"):
        cubin("op", name, "float32", device_capability(0))
    assert run_client(client, tmp_path, INFINIOP_CY_NVCC="/no-nvcc-here").returncode == 0


def test_runtime_counts_and_refuses(client, tmp_path):
    """No driver: no device of that kind."""
    if "EMULATION_FOLDER" not in os.environ:
        pytest.skip("the driver of this machine cannot be made to fail")
    ran = run_client(client, tmp_path, EMULATION_INIT_ERROR="100")
    assert ran.returncode == 1
    assert np.array_equal([5], [int(ran.stdout)])  # DEVICE_TYPE_NOT_SUPPORTED
