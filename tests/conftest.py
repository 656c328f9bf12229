"""Fixtures of all tests, and the device that they run on.

    --device=cpu         the default
    --device=cuda        the GPU of this machine, through PyCUDA
    --device=emulated    a GPU emulated on the host: a stand-in for PyCUDA over a stand-in for the driver (emulation/)
    --device=emulated-driver   the same driver under the real PyCUDA

On another device than the CPU the tests of DEVICE_SUITE run, each call made there (device_mirror.py), and those of
tests/cuda.
"""
import gc
import os
import pathlib
import sys

# The reference's small products lose more to waking BLAS threads than they gain.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import settings

HERE = pathlib.Path(__file__).parent
DEVICES = ("cpu", "cuda", "emulated", "emulated-driver")
DEVICE_SUITE = ("test_conformance.py", "test_properties.py", "test_special_values.py", "test_leaky_dtypes.py",
                "test_accuracy.py", "test_conv.py", "test_conv_forward.py", "test_errors.py", "test_descriptors.py",
                "test_numbers.py")
# What an emulated GPU runs for the operators beyond the sample of rotation.py: formulas, and the plainest ways in.
FOR_EVERY_FORMULA = ("test_values", "test_layout", "test_every_16_bit_input", "test_error_in_ulp",
                     "test_host_and_device_arrays_agree")
FOR_CPU_THREADS = ("parallel", "parallel-tiny-images", "parallel-few-outputs", "parallel-long-kernel")
# Convolutions that are long for what the CPU's tiles are: an emulated GPU computes their values, and leaves everything
# else to those of several of its own tiles (many-channels, many-columns, grouped-tiles, wide-3d).
LONG_FOR_THE_CPU = ("tall-image", "channels-over-tasks", "far-taps", "deep", "parallel-stride")
OF_VALUES = ("test_exact", "test_accuracy")
EMULATION_FOLDER = HERE.parent / "build/emulation"

# Examples are derived from the test alone: a failure in CI is the failure at home.
settings.register_profile("default", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("default")


def pytest_addoption(parser):
    parser.addoption("--device", choices=DEVICES, default="cpu", help="where the operators run")


def pytest_configure(config):
    device = config.getoption("--device")
    if device == "cpu":
        return
    if device.startswith("emulated"):
        os.environ["INFINIOP_CY_CACHE_DIR"] = str(EMULATION_FOLDER / "cache")
        sys.path.insert(0, str(HERE))
        import emulation
        # so that one emulation takes the large tiles of convolutions wherever they fit, and the other the small ones
        os.environ.setdefault("EMULATION_MULTIPROCESSORS", "1" if device == "emulated" else "132")
        if device == "emulated":
            emulation.install(EMULATION_FOLDER / "tier1")
        else:  # PyCUDA wants every function that its headers name
            toolkit = os.environ.get("CUDA_HOME", "/usr/local/cuda")
            emulation.install_driver_only(EMULATION_FOLDER / "tier2", f"{toolkit}/include")
    import device_mirror

    import infiniop_cy as iop
    from infiniop_cy.devices import cuda_problem
    if cuda_problem():
        raise pytest.UsageError(f"--device {device}: {cuda_problem()}")
    device_mirror.DEVICE = "cuda"
    from infiniop_cy.operators import BY_NAME
    for name in (*BY_NAME, "conv", "conv_backward"):
        setattr(iop, name, device_mirror.MirroredFunction(getattr(iop, name)))


def pytest_sessionstart():
    from infiniop_cy.core import _core
    _core.count_lateness(False)  # so that calls on several threads are that, however busy the machine is


def pytest_ignore_collect(collection_path, config):
    on_cpu = config.getoption("--device") == "cpu"
    if collection_path == HERE / "cuda":
        return on_cpu or None
    if collection_path == HERE / "bridges":
        return None if on_cpu else True
    if collection_path.parent == HERE and collection_path.name.startswith("test_"):
        return None if on_cpu or collection_path.name in DEVICE_SUITE else True
    return None


def pytest_collection_modifyitems(config, items):
    """What only gives CPU threads enough work, or repeats what the sample of operators shows, would keep an emulated
    GPU busy for minutes."""
    if config.getoption("--device").startswith("emulated"):
        from rotation import in_full

        from infiniop_cy.testing import Case

        def is_repetition(item, case):
            return isinstance(case, Case) and not in_full(case) and item.originalname not in FOR_EVERY_FORMULA

        def is_convolution_of_doubles(item):  # the code is that of float32, whose tiles are more
            of_every_device = item.path.parent == HERE and item.path.name.startswith("test_conv")
            return of_every_device and item.callspec.params.get("dtype") == "float64"

        def is_left_out(item, case):
            of_values = item.originalname in OF_VALUES
            return str(case) in FOR_CPU_THREADS or is_repetition(item, case) \
                or (not of_values and (str(case) in LONG_FOR_THE_CPU or is_convolution_of_doubles(item)))
        left_out = [item for item in items if hasattr(item, "callspec")
                    and is_left_out(item, item.callspec.params.get("case"))]
        config.hook.pytest_deselected(items=left_out)
        kept = set(items) - set(left_out)
        items[:] = [item for item in items if item in kept]


def pytest_collection_finish():
    """Ten thousand cases are no garbage: no collection needs to go through them."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter, config):
    """How many cases of the CPU's suite a device ran, to compare with the same line of the CPU's run."""
    reports = [report for name in ("passed", "failed", "skipped") for report in terminalreporter.stats.get(name, ())]
    shared = sum(pathlib.PurePath(report.fspath).name in DEVICE_SUITE for report in reports)
    terminalreporter.write_line(f"on {config.getoption('--device')}: {shared} cases that run on every device, "
                                f"{len(reports) - shared} others")


@pytest.fixture
def rng():
    return np.random.default_rng(20240)


@pytest.fixture(scope="session")
def on_emulation(request):
    return request.config.getoption("--device").startswith("emulated")


@pytest.fixture(scope="session")
def on_gpu(request):
    return request.config.getoption("--device") != "cpu"
