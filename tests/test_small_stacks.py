"""Threads of little stack, and systems that refuse threads: an error or fewer threads, never the end of the process."""
import os
import subprocess
import sys
import textwrap

import pytest

from infiniop_cy.config import config

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="stacks are measured, and limits set, as on Linux")
needs_openmp = pytest.mark.skipif(not config()["openmp"]["runtime"], reason="built without OpenMP")

PREAMBLE = """
import os, resource, threading, time
import numpy as np, infiniop_cy as iop
from infiniop_cy.testing.conv import CONV_CASES, make_case
rng = np.random.default_rng(0)
case = CONV_CASES["parallel"]
data = make_case(case, "float32", rng, integers=False)
wide, rows = rng.standard_normal((300, 700)), rng.standard_normal((700, 300))
t = iop.TensorDescriptor((300, 700), "float64")
op = iop.GeluBackwardDescriptor(iop.Handle("cpu"), t, t, t)
calls = (
    lambda n: iop.conv_backward(*data, **case.keywords, num_threads=n).grad_weight,
    lambda n: iop.gelu_backward(wide, rows.T, num_threads=n),
    lambda n: iop.gelu_backward(wide, wide, num_threads=n),
    lambda n: iop.gelu_backward(wide[::-1, ::2], wide[:, ::2], num_threads=n),
    lambda n: op.calculate(None, np.empty_like(wide), wide, wide) or wide,
)
def all_same(n):
    for call, result in zip(calls, expected):
        try:
            if call(n).tobytes() != result.tobytes():
                return False
        except MemoryError:  # for the result or a workspace, where threads have taken what there was
            pass
    return True
"""


def run(script, **environment):
    code = PREAMBLE + textwrap.dedent(script)
    ran = subprocess.run([sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True,
                         timeout=100, check=False)
    assert (ran.returncode, ran.stdout) == (0, "done\n"), f"{ran.returncode}: {ran.stdout}{ran.stderr}"


@pytest.mark.parametrize("kilobytes", [32, 48, 64, 128])
def test_python_threads_of_little_stack(kilobytes):
    run(f"""
        expected = [call(1) for call in calls]
        seen = []
        def work():
            for call, result in zip(calls, expected):
                try:
                    seen.append(call(1).tobytes() == result.tobytes())
                except iop.InternalError as error:
                    seen.append("bytes of stack left, expected 65536" in str(error) and error.status == 1 and None)
        threading.stack_size({kilobytes} * 1024)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert seen == [{True if kilobytes == 128 else None}] * len(calls), seen
        print("done")
        """)


@needs_openmp
@pytest.mark.parametrize("size", ["16K", "32K", "48K", "64K", "1M"])
def test_openmp_threads_of_little_stack(size):
    """They leave the work to the caller."""
    run("""
        expected = [call(1) for call in calls]
        assert all_same(3)
        print("done")
        """, OMP_STACKSIZE=size)


@needs_openmp
def test_a_system_that_refuses_threads_that_there_were_before():
    """OpenMP ends those that a team of two does not need, and has to start them again for a larger one than there was:
    there is room for the difference, but not for all."""
    run("""
        resource.setrlimit(resource.RLIMIT_STACK, (8 << 20, resource.getrlimit(resource.RLIMIT_STACK)[1]))
        expected = [call(1) for call in calls]
        assert all_same(40)
        assert all_same(2)
        time.sleep(0.2)
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (30 * 8 << 20), resource.RLIM_INFINITY))
        assert calls[1](60).tobytes() == expected[1].tobytes()
        assert all_same(60)
        print("done")
        """, MALLOC_ARENA_MAX="1")


@needs_openmp
@pytest.mark.parametrize("room", [4, 40, 400])
def test_a_system_that_refuses_threads(room):
    """With so many MiB of addresses left there is room for no thread, or for some of 8 MiB."""
    run(f"""
        resource.setrlimit(resource.RLIMIT_STACK, (8 << 20, resource.getrlimit(resource.RLIMIT_STACK)[1]))
        expected = [call(1) for call in calls]
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ({room} << 20), resource.RLIM_INFINITY))
        assert all_same(7)
        assert all_same(60)
        print("done")
        """, MALLOC_ARENA_MAX="1")


def test_c_calls_from_threads_of_little_stack():
    """They return a status."""
    run("""
        import ctypes
        from infiniop_cy.capi import infini_root
        library = ctypes.CDLL(infini_root() + "/lib/libinfiniop.so")
        P = ctypes.c_void_p
        handle, t, relu, out = P(), P(), P(), np.zeros(100_000, np.float32)
        shape = (ctypes.c_size_t * 1)(out.size)
        library.infiniopCreateHandle(ctypes.byref(handle))
        library.infiniopCreateTensorDescriptor(ctypes.byref(t), ctypes.c_size_t(1), shape, None, 13)
        create = lambda: library.infiniopCreateReluBackwardDescriptor(handle, ctypes.byref(relu), t, t, t)
        at = P(out.ctypes.data)
        run = lambda: library.infiniopReluBackward(relu, None, ctypes.c_size_t(0), at, at, at, None)
        assert [create(), run()] == [0, 0]
        seen = []
        threading.stack_size(32 * 1024)
        thread = threading.Thread(target=lambda: seen.extend([create(), run()]))
        thread.start()
        thread.join()
        assert seen == [1, 1], seen
        print("done")
        """)
