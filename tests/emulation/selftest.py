"""Tests of the emulation itself: pytest tests/emulation/selftest.py

EMULATION_REAL_PYTHON may name a Python that has numpy and real PyCUDA, EMULATION_HEADERS a folder with cuda.h.
"""

import os
import shutil
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

REAL_NVCC = shutil.which("nvcc")
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import emulation
from emulation import selftest_sources as sources

NVCC = str(HERE / "nvcc")


@pytest.fixture(scope="session")
def drv(tmp_path_factory):
    emulation.install(tmp_path_factory.mktemp("emulation"))
    import pycuda.driver as driver

    driver.init()
    return driver


@pytest.fixture(scope="session")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")

    def compile_one(name):
        source = folder / f"{name}.cu"
        if not source.exists():
            source.write_text(getattr(sources, name))
            subprocess.run([NVCC, "-cubin", "-arch=sm_90", "-std=c++17", source, "-o", folder / name], check=True)
        return (folder / name).read_bytes()

    return compile_one


class Gpu:
    """A pushed context with a module of the test kernels."""

    def __init__(self, drv, image):
        self.drv = drv
        self.module = drv.module_from_buffer(image)

    def array(self, values):
        memory = self.drv.mem_alloc(values.nbytes)
        self.drv.memcpy_htod(memory, values)
        return memory

    def get(self, memory, count, dtype=np.float32):
        out = np.empty(count, dtype)
        self.drv.memcpy_dtoh(out, memory)
        return out

    def launch(self, name, a, b, c, n, grid=(1, 1), block=(256, 1, 1), stream=None, shared=0):
        function = self.module.get_function(name).prepare(["32s"])
        arguments = struct.pack("QQQq", int(a), int(b), int(c), n)
        function.prepared_async_call(grid, block, stream, arguments, shared_size=shared)


@pytest.fixture
def context(drv):
    context = drv.Device(0).retain_primary_context()
    context.push()
    yield context
    context.synchronize()
    emulation.set_schedule(None)
    drv.Context.pop()
    context.detach()


@pytest.fixture
def gpu(drv, context, images):
    gpu = Gpu(drv, images("BASIC"))
    yield gpu
    del gpu.module


@pytest.fixture(params=["forward", "reverse", "random"])
def schedule(request, drv):
    emulation.set_schedule(request.param)
    yield request.param
    emulation.set_schedule(None)


def floats(n):
    return np.random.default_rng(n).random(n, dtype=np.float32)


@pytest.mark.parametrize("n", [1, 255, 256, 1000, 100_003])
def test_add(gpu, schedule, n):
    a, b = floats(n), floats(n + 1)[:n].copy()
    da, db, dc = gpu.array(a), gpu.array(b), gpu.drv.mem_alloc(4 * n)
    gpu.launch("add", da, db, dc, n, ((n + 255) // 256, 1))
    np.testing.assert_array_equal(gpu.get(dc, n), a * 2 + b)


def test_new_memory_is_nan_in_every_format(gpu):
    memory = gpu.drv.mem_alloc(64)
    for dtype in (np.float16, np.float32, np.float64):
        assert np.isnan(gpu.get(memory, 64 // np.dtype(dtype).itemsize, dtype)).all()


@pytest.mark.parametrize("n", [1000, 1024, 5000])
def test_writing_past_the_end_is_caught(gpu, n):
    da, dc = gpu.array(floats(n + 512)), gpu.drv.mem_alloc(4 * n)
    gpu.launch("add", da, da, dc, n + 1, ((n + 256) // 256, 1))
    with pytest.raises(gpu.drv.LogicError, match="illegal memory access"):
        gpu.drv.Context.synchronize()
    assert f"byte {4 * n}" in emulation.last_error_text()
    assert "add" in emulation.last_error_text()
    gpu.drv.Context.synchronize()  # reported once
    gpu.launch("add", da, da, dc, n, ((n + 255) // 256, 1))
    assert not np.isnan(gpu.get(dc, n)).any()


def test_reading_past_the_end(gpu):
    da, db = gpu.array(floats(1024)), gpu.array(floats(1024))
    dc = gpu.drv.mem_alloc(4 * 2048)
    gpu.launch("add", da, db, dc, 1025, (5, 1))
    with pytest.raises(gpu.drv.LogicError):
        gpu.drv.Context.synchronize()
    assert "block (4, 0, 0), thread (0, 0, 0)" in emulation.last_error_text()
    short = gpu.array(floats(1000))  # ends in slack: no fault, but what is read there is NaN
    gpu.launch("add", short, db, dc, 1001, (4, 1))
    assert np.isnan(gpu.get(dc, 1001)[1000])


def test_freed_memory_is_a_fault(gpu):
    da, dc = gpu.array(floats(256)), gpu.drv.mem_alloc(1024)
    address = int(dc)
    dc.free()
    gpu.launch("add", da, da, address, 256)
    with pytest.raises(gpu.drv.LogicError):
        gpu.drv.Context.synchronize()
    with pytest.raises(gpu.drv.LogicError, match="invalid argument"):
        gpu.drv.memcpy_dtoh(np.empty(4, np.float32), address)


def test_host_pointer_as_argument(gpu):
    a, dc = floats(256), gpu.drv.mem_alloc(1024)
    gpu.launch("add", a.ctypes.data, dc, dc, 256)
    with pytest.raises(gpu.drv.LogicError):
        gpu.drv.Context.synchronize()
    assert "host memory" in emulation.last_error_text()


def test_copies_are_checked_at_the_call(gpu):
    memory = gpu.drv.mem_alloc(100)
    with pytest.raises(gpu.drv.LogicError, match="invalid argument"):
        gpu.drv.memcpy_htod(memory, np.zeros(101, np.uint8))
    with pytest.raises(gpu.drv.LogicError, match="invalid argument"):
        gpu.drv.memset_d8(int(memory) + 50, 0, 51)


def test_barriers(gpu, schedule):
    a = floats(256)
    da, dc = gpu.array(a), gpu.drv.mem_alloc(1024)
    for name, shared in (("reverse_good", 0), ("reverse_dynamic", 1024)):
        gpu.launch(name, da, 0, dc, 0, shared=shared)
        np.testing.assert_array_equal(gpu.get(dc, 256), a[::-1])
    gpu.launch("reverse_bad", da, 0, dc, 0)
    assert (gpu.get(dc, 256) != a[::-1]).any()
    gpu.launch("warp_unsynced", da, 0, dc, 0)
    assert (gpu.get(dc, 256) != a.reshape(8, 32)[:, ::-1].ravel()).any()


def test_shared_memory_holds_no_old_values(gpu):
    da, dc = gpu.array(floats(256)), gpu.drv.mem_alloc(1024)
    gpu.launch("reverse_good", da, 0, dc, 0)
    gpu.launch("half_written", da, 0, dc, 0)
    assert np.isnan(gpu.get(dc, 256)).all()


def test_dynamic_shared_memory_has_an_end(gpu):
    da, dc = gpu.array(floats(256)), gpu.drv.mem_alloc(1024)
    for bytes_given in (512, 1020):
        gpu.launch("reverse_dynamic", da, 0, dc, 0, shared=bytes_given)
        with pytest.raises(gpu.drv.LogicError):
            gpu.drv.Context.synchronize()


@pytest.mark.parametrize("n", [1, 31, 64, 100])
def test_transpose(gpu, schedule, n):
    a = floats(n * n).reshape(n, n)
    da, dc = gpu.array(a), gpu.drv.mem_alloc(a.nbytes)
    gpu.launch("transpose", da, 0, dc, n, ((n + 31) // 32, (n + 31) // 32), (32, 8, 1))
    np.testing.assert_array_equal(gpu.get(dc, n * n).reshape(n, n), a.T)


def test_block_sums(gpu, schedule):
    a = np.arange(1000, dtype=np.float32)
    da, dc = gpu.array(a), gpu.drv.mem_alloc(16)
    gpu.launch("sums", da, 0, dc, 1000, (4, 1))
    np.testing.assert_array_equal(gpu.get(dc, 4), [a[i : i + 256].sum() for i in range(0, 1000, 256)])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("divergent_exit", "thread 3 has ended"),
        ("divergent_barriers", "line"),
        ("lane_missing", "warp function"),
        ("trap", "thread (5, 0, 0): __trap"),
        ("divide", "division by zero"),
        ("overflow", "stack overflow"),
    ],
)
def test_faults_of_threads(gpu, schedule, name, words):
    da, dc = gpu.array(floats(256)), gpu.drv.mem_alloc(1024)
    gpu.launch(name, da, 0, dc, 0, block=(64, 1, 1))
    with pytest.raises(gpu.drv.LaunchError):
        gpu.drv.Context.synchronize()
    assert words in emulation.last_error_text()
    gpu.launch("reverse_good", da, 0, dc, 0)
    gpu.drv.Context.synchronize()


@pytest.mark.parametrize("name", ["misaligned", "outside_array"])
def test_accesses_that_the_compiler_checks(gpu, name):
    dc = gpu.drv.mem_alloc(4096)
    gpu.launch(name, dc, 0, dc, 1, block=(32, 1, 1))
    with pytest.raises(gpu.drv.LogicError, match="misaligned"):
        gpu.drv.Context.synchronize()
    assert name in emulation.last_error_text()


def test_shuffles(gpu, schedule):
    a = floats(32)
    da, dc = gpu.array(a), gpu.drv.mem_alloc(4 * 224)
    gpu.launch("shuffles", da, 0, dc, 0, block=(32, 1, 1))
    out, lane = gpu.get(dc, 224).reshape(7, 32), np.arange(32)
    np.testing.assert_array_equal(out[0], a[5])
    np.testing.assert_array_equal(out[1], a[np.where(lane + 3 < 32, lane + 3, lane)])
    np.testing.assert_array_equal(out[2], a[np.where(lane % 16 >= 3, lane - 3, lane)])
    np.testing.assert_array_equal(out[3], (a[lane ^ 16].astype(np.float64) + 0.25).astype(np.float32))
    np.testing.assert_array_equal(out[4], sum(1 << i for i in range(0, 16, 3)))
    np.testing.assert_array_equal(out[5], 2)
    np.testing.assert_allclose(out[6], a.sum(dtype=np.float64), rtol=1e-6)


def test_launch_limits(gpu):
    da = gpu.array(floats(256))
    add = gpu.module.get_function("add")
    assert add.max_threads_per_block == 256
    with pytest.raises(gpu.drv.LaunchError):
        gpu.launch("add", da, da, da, 0, block=(257, 1, 1))
    for wrong in (
        {"block": (1025, 1, 1)}, {"block": (1, 1, 65)}, {"grid": (0, 1)}, {"grid": (1, 65536)},
        {"shared": 48 * 1024 + 1},
    ):  # fmt: skip
        with pytest.raises(gpu.drv.LogicError, match="invalid argument"):
            gpu.launch("transpose", da, da, da, 0, **wrong)
    add.prepare(["31s"])
    with pytest.raises(gpu.drv.LogicError, match="invalid argument"):
        add.prepared_call((1, 1), (1, 1, 1), bytes(31))
    dynamic = gpu.drv.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
    add.set_attribute(dynamic, 227 * 1024)
    assert add.get_attribute(dynamic) == 227 * 1024
    add.prepare(["32s"]).prepared_call((1, 1), (1, 1, 1), bytes(32), shared_size=227 * 1024)
    with pytest.raises(gpu.drv.LogicError):
        add.set_attribute(dynamic, 227 * 1024 + 1)


def test_names_and_parameters(gpu):
    with pytest.raises(gpu.drv.LogicError, match="not found"):
        gpu.module.get_function("mangled")
    gpu.module.get_function("_Z7mangled8Pointers")
    dc = gpu.array(floats(8))
    two = gpu.module.get_function("two").prepare(["P", "i"])
    two.prepared_call((1, 1), (32, 1, 1), dc, 4)
    assert (gpu.get(dc, 8)[:4] == 2).all()
    assert (gpu.get(dc, 8)[4:] != 2).all()
    scale = gpu.module.get_function("scale").prepare(["24s"])
    scale.prepared_call((2, 1), (32, 1, 1), struct.pack("QQfi", int(dc), int(dc), 3.0, 8))
    assert (gpu.get(dc, 8)[:4] == 6).all()


def test_subnormals_whatever_the_caller_has_set(gpu):
    a = np.full(32, 2.0**-140, np.float32)
    da, dc = gpu.array(a), gpu.drv.mem_alloc(128)
    gpu.launch("subnormal", da, 0, dc, 0, block=(32, 1, 1))
    np.testing.assert_array_equal(gpu.get(dc, 32), a / 2)


def test_garbage_is_no_module(drv, context, images):
    good = images("BASIC")
    broken = bytearray(good)
    broken[len(good) // 2] ^= 1
    for image in (b"", b"\x7fELF", b"x" * 1000, good[:100], good[: len(good) // 2], good[:-8], bytes(broken)):
        with pytest.raises(drv.RuntimeError, match="no kernel image"):
            drv.module_from_buffer(image + b"\0")
    drv.module_from_buffer(good)


def test_module_for_another_device(drv, context, tmp_path):
    (tmp_path / "k.cu").write_text(sources.HALVES)
    for architecture, runs in (("sm_80", False), ("sm_90", True), ("sm_100", False)):
        subprocess.run([NVCC, "-cubin", "-arch", architecture, "k.cu", "-o", "k.cubin"], check=True, cwd=tmp_path)
        if runs:
            drv.module_from_buffer((tmp_path / "k.cubin").read_bytes())
        else:
            with pytest.raises(drv.RuntimeError):
                drv.module_from_buffer((tmp_path / "k.cubin").read_bytes())


def test_canary_of_a_copy_back(gpu):
    n = 1000
    da, dc = gpu.array(floats(n)), gpu.drv.mem_alloc(4 * n)
    gpu.launch("add", da, da, dc, n + 20, (4, 1))  # NaN from slack onto slack
    with pytest.raises(gpu.drv.LogicError):
        gpu.drv.Context.synchronize()


def test_the_host_cannot_touch_device_memory():
    code = f"""
        import sys, ctypes, tempfile
        sys.path.insert(0, {str(HERE.parent)!r})
        import emulation
        emulation.install(tempfile.mkdtemp())
        import pycuda.driver as drv
        drv.init()
        context = drv.Device(0).retain_primary_context()
        context.push()
        memory = drv.mem_alloc(16)
        drv.memset_d8(memory, 0, 16)
        context.synchronize()
        ctypes.string_at(int(memory), 16)
    """
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True)
    assert result.returncode == -11


def test_two_devices(drv, gpu, images):
    assert drv.Device.count() == 2
    other = drv.Device(1).retain_primary_context()
    here = gpu.array(floats(256))
    other.push()
    there = Gpu(drv, images("BASIC"))
    a = there.array(np.ones(256, np.float32))
    c = drv.mem_alloc(1024)
    there.launch("add", a, a, c, 256)
    assert (there.get(c, 256) == 3).all()
    there.launch("add", a, a, here, 256)
    with pytest.raises(drv.LogicError):
        drv.Context.synchronize()
    assert "another context" in emulation.last_error_text()
    with pytest.raises(drv.LogicError):
        gpu.launch("add", a, a, c, 256)  # a function of the first device
    drv.memcpy_dtod(c, here, 1024)
    np.testing.assert_array_equal(there.get(c, 256), floats(256))
    del there.module, a, c
    drv.Context.pop()
    other.detach()


@pytest.mark.skipif(REAL_NVCC is None, reason="no nvcc of its own")
@pytest.mark.parametrize("name", ["BASIC", "HALVES", "PRODUCTS"])
def test_real_nvcc_takes_the_sources(name, tmp_path):
    source = tmp_path / "k.cu"
    source.write_text(getattr(sources, name))
    subprocess.run([REAL_NVCC, "-cubin", "-arch=sm_90", "-std=c++17", source, "-o", tmp_path / "k"], check=True)


@pytest.mark.skipif("EMULATION_REAL_PYTHON" not in os.environ, reason="EMULATION_REAL_PYTHON is not set")
def test_real_pycuda(tmp_path):
    python, headers = os.environ["EMULATION_REAL_PYTHON"], os.environ.get("EMULATION_HEADERS")
    subprocess.run([python, HERE / "selftest_pycuda.py", tmp_path, headers or ""], check=True, cwd=tmp_path)
