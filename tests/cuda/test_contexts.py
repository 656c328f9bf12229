"""Memory that is not where the library expects it: of another context, held by a pool, freed by another thread."""
import threading
import warnings

import numpy as np
import pytest
from device_mirror import to_host

import infiniop_cy as iop
from infiniop_cy.backends.cuda_context import current
from infiniop_cy.core import _core
from infiniop_cy.testing import same_bits
from infiniop_cy.testing.conv import CONV_CASES, make_case

relu = iop.relu_backward._function
conv = iop.conv_backward._function
G, X = np.float32([1, 2, 3]), np.float32([1, -1, 1])


def on_gpu(array):
    from pycuda import gpuarray
    with current(0):
        return gpuarray.to_gpu(np.ascontiguousarray(array))


def synchronize():
    with current(0) as context:
        context.context.synchronize()


# ---- another context than the primary one, as `import pycuda.autoinit` makes

@pytest.fixture
def foreign():
    """A function that makes GPUArrays in a context of its own."""
    from pycuda import driver, gpuarray
    driver.init()
    context = driver.Device(0).make_context()
    made = []

    def make(array):
        context.push()
        made.append(gpuarray.to_gpu(np.ascontiguousarray(array)))
        driver.Context.pop()
        return made[-1]
    driver.Context.pop()
    yield make
    context.push()
    made.clear()
    driver.Context.pop()
    context.detach()


WORDS = "belongs to another CUDA context than the device's primary one.*pycuda.autoprimaryctx"


def test_arrays_of_another_context_are_refused(foreign):
    """A kernel would fault on them, and the fault would end the whole process's use of the device."""
    here, there = on_gpu(X), foreign(G)
    with pytest.raises(iop.BadParam, match=f"relu_backward: grad_output {WORDS}"):
        relu(there, here)
    with pytest.raises(iop.BadParam, match=f"relu_backward: input {WORDS}"):
        relu(here, there)
    with pytest.raises(iop.BadParam, match=f"relu_backward: out {WORDS}"):
        relu(here, here, out=there)
    synchronize()  # nothing ran
    assert same_bits(to_host(relu(on_gpu(G), here)), np.float32([1, 0, 3]))


def test_convolutions_of_another_context_are_refused(foreign, rng):
    case = CONV_CASES["2d-groups"]
    g, x, w = map(on_gpu, make_case(case, "float32", rng))
    there = foreign(np.zeros(case.shapes[2], np.float32))
    with pytest.raises(iop.BadParam, match=f"conv_backward: weight {WORDS}"):
        conv(g, x, there, **case.keywords)
    with pytest.raises(iop.BadParam, match=f"conv_backward: grad_weight {WORDS}"):
        conv(g, x, w, **case.keywords, out=(None, there, None), output_mask=(False, True, False))
    with pytest.raises(iop.BadParam, match=f"conv: bias {WORDS}"):
        iop.conv._function(x, w, foreign(np.zeros(case.cout, np.float32)), **case.keywords)
    with pytest.raises(iop.BadParam, match=f"conv: out {WORDS}"):
        iop.conv._function(x, w, out=foreign(np.zeros(case.shapes[0], np.float32)), **case.keywords)
    synchronize()


def test_descriptors_refuse_another_context(foreign):
    t = iop.TensorDescriptor((3,), "float32")
    here, there = on_gpu(X), foreign(G)
    with iop.Handle("cuda") as handle, iop.ReluBackwardDescriptor(handle, t, t, t) as op:
        for form in (lambda a: a, lambda a: int(a.gpudata)):
            with pytest.raises(iop.BadParam, match=f"relu_backward: input {WORDS}"):
                op.calculate(None, form(here), form(there), form(here))
    synchronize()


# ---- temporary memory

def test_workspaces_survive_a_synchronisation(emulator, rng):
    """A pool that gave its memory back whenever the host waits would take it anew in each call, for milliseconds."""
    case = CONV_CASES["2d-groups"]
    data = make_case(case, "float32", rng)
    there = list(map(on_gpu, data))
    before = None
    for _ in range(3):
        conv(*there, **case.keywords)
        synchronize()
        conv(*data, **case.keywords, device="cuda")
        before = before or emulator.counts()["bytes_returned"]  # what other tests left is gone by now
    assert emulator.counts()["bytes_returned"] == before


def test_what_the_pool_holds_is_given_up_when_memory_is_short(emulator, monkeypatch):
    size = 16 << 20
    g = on_gpu(np.ones(size // 4, np.float32))
    call = _core.DeviceCall(0, 0)
    call.borrow(2 * size, "op")
    call.close()
    synchronize()
    with current(0) as context:
        free, total = context.driver.mem_get_info()
    monkeypatch.setenv("EMULATION_MEMORY", str(total - free + size // 2))
    assert relu(g, g).shape == g.shape
    with pytest.raises(MemoryError, match="op: 67108864 bytes of device memory"):
        call.borrow(4 * size, "op")
    kept = [relu(g, g), relu(g, g)]
    with pytest.raises(MemoryError, match="result: 16777216 bytes of device memory"):
        relu(g, kept[0])


# ---- threads

def test_results_may_be_freed_by_any_thread(emulator):
    """PyCUDA's own allocations leak there, with a warning."""
    relu(on_gpu(G), on_gpu(X))
    synchronize()
    before = emulator.counts()["allocations_alive"]
    results = [relu(on_gpu(G), on_gpu(X)), iop.empty_workspace(iop.Handle("cuda"), 100)]
    synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        thread = threading.Thread(target=results.clear)
        thread.start()
        thread.join()
    assert not caught
    assert emulator.counts()["allocations_alive"] == before


def test_results_outlive_the_thread_that_made_them():
    results = []
    thread = threading.Thread(target=lambda: results.append(relu(on_gpu(G), on_gpu(X))))
    thread.start()
    thread.join()
    assert same_bits(to_host(results[0]), np.float32([1, 0, 3]))
    assert same_bits(to_host(relu(results[0], results[0])), np.float32([1, 0, 3]))
