"""What a call leaves alone: forks, other threads, OpenMP, floating-point state, the terminal; and 64-bit sizes."""
import contextvars
import ctypes
import gc
import mmap
import os
import platform
import subprocess
import sys
import textwrap
import threading
import time
import warnings

import numpy as np
import pytest

import infiniop_cy as iop
from infiniop_cy.config import config
from infiniop_cy.core import _core
from infiniop_cy.distributed import sum_gradient
from infiniop_cy.testing import CASES, random_values, same_bits
from infiniop_cy.testing.conv import CONV_CASES, make_case

GIB = 2**30
needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted in /proc/self/task")
needs_openmp = pytest.mark.skipif(not config()["openmp"]["runtime"], reason="built without OpenMP")


def run_script(script, timeout=60, **environment):
    """Run in a fresh interpreter; its last word must be `done`, so a child that dies or hangs fails."""
    preamble = ("import os, numpy as np, infiniop_cy as iop\n"
                "def tasks(): return len(os.listdir('/proc/self/task'))\n")
    inherited = {k: v for k, v in os.environ.items() if k not in ("INFINIOP_CY_NUM_THREADS", "OMP_NUM_THREADS")}
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", preamble + textwrap.dedent(script)], timeout=timeout,
                         env={**inherited, **environment}, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.strip()) == (0, "done"), f"{ran.returncode}: {ran.stdout}{ran.stderr}"


def run_conv(name, dtype="float32", **keywords):
    case = CONV_CASES[name]
    data = make_case(case, dtype, np.random.default_rng(1), integers=False)
    return lambda: iop.conv_backward(*data, **case.keywords, **keywords)


def mixed_calls(**keywords):
    """(name, call) for every operator, below and above the parallel threshold, and some convolutions."""
    rng = np.random.default_rng(0)
    for dtype in ("float32", "bfloat16"):
        for n in (1000, 70_000):
            g, x = random_values(rng, n, dtype), random_values(rng, n, dtype)
            for case in CASES:
                inputs = (g, x)[-case.count:]
                yield f"{case} {dtype} {n}", lambda case=case, inputs=inputs: (case(*inputs, **keywords),)
        for name in ("2d-groups", "parallel", "parallel-tiny-images"):
            yield f"conv_backward {dtype} {name}", run_conv(name, dtype, **keywords)


def all_same(got, expected):
    return all(map(same_bits, got, expected))


# ---- fork

FORK = """
    import threading
    from infiniop_cy.config import config
    rng = np.random.default_rng(0)
    g, x, w = (rng.standard_normal(s).astype(np.float32) for s in ((2, 40, 30, 30), (2, 30, 30, 30), (40, 30, 3, 3)))
    big = rng.standard_normal(2**20).astype(np.float32)
    def both(n):
        return [iop.gelu_backward(big, big[::-1], num_threads=n), *iop.conv_backward(g, x, w, padding=1, num_threads=n)]
    expected = both(4)
    if {busy}:  # forks then meet parallel regions that are half done
        threading.Thread(target=lambda: [both(2) for _ in iter(int, 1)], daemon=True).start()
    for _ in range({forks}):
        child = os.fork()
        if child == 0:
            same = [a.tobytes() == b.tobytes() for n in (None, 4) for a, b in zip(both(n), expected * 2)]
            alone = config()["threads"]["count"] == 1 and tasks() == 1
            os._exit(0 if all(same) and alone else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert all(a.tobytes() == b.tobytes() for a, b in zip(both(4), expected))  # the parent goes on as before
    print("done", flush=True)
    os._exit(0)
"""


@needs_proc
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no os.fork here")
@pytest.mark.parametrize(("busy", "forks"), [(False, 2), (True, 4)], ids=["idle", "while another thread computes"])
def test_fork(busy, forks):
    """The child of a process that used OpenMP computes the same bits, alone."""
    run_script(FORK.format(busy=busy, forks=forks))


@pytest.mark.skipif(sys.platform != "linux", reason="the C libraries are built on Linux")
def test_fork_while_other_threads_make_objects_of_c():
    """A fork meets a moment when no thread is inside the pool of objects: the child's is usable."""
    run_script("""
        import ctypes, signal, threading
        from infiniop_cy.capi import infini_root
        lib = ctypes.CDLL(f"{infini_root()}/lib/libinfiniop.so")
        one, shape = ctypes.c_size_t(1), (ctypes.c_size_t * 1)(5)
        def make(made):
            assert lib.infiniopCreateTensorDescriptor(ctypes.byref(made), one, shape, None, 13) == 0
            assert lib.infiniopDestroyTensorDescriptor(made) == 0
        for _ in range(3):
            made = ctypes.c_void_p()
            threading.Thread(target=lambda made=made: [make(made) for _ in iter(int, 1)], daemon=True).start()
        for _ in range(200):
            child = os.fork()
            if child == 0:
                signal.alarm(10)
                make(ctypes.c_void_p())
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        print("done", flush=True)
        os._exit(0)
    """)


# ---- threads

def test_sixteen_threads_at_once():
    calls = list(mixed_calls())
    expected = [call() for _, call in calls]
    start, wrong = threading.Barrier(16), []

    def work(seed):
        start.wait()
        for i in np.random.default_rng(seed).permutation(len(calls)):
            try:
                if not all_same(calls[i][1](), expected[i]):
                    wrong.append(calls[i][0])
            except Exception as error:  # whatever it is, the test must see it
                wrong.append(f"{calls[i][0]}: {error!r}")
    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def lets_others_run(call, seconds):
    """Whether a second Python thread got to run while `call` was repeated for up to `seconds`. Without forced
    switches it runs only where this thread gives the GIL away; a slow start costs repetitions, not the result."""
    ran, gate = [], threading.Lock()

    def other():
        with gate:
            ran.append(True)
    interval = sys.getswitchinterval()
    gate.acquire()
    thread = threading.Thread(target=other)
    thread.start()
    try:
        sys.setswitchinterval(1000)
        gate.release()
        until = time.monotonic() + seconds
        while not ran and time.monotonic() < until:
            call()
        return bool(ran)
    finally:
        sys.setswitchinterval(interval)
        thread.join()


def test_gil_is_released():
    """By elementwise calls, convolutions and descriptors; the first line shows that the instrument can say no."""
    assert not lets_others_run(lambda: sum(range(100_000)), seconds=0.2)
    g = np.ones(2**20, np.float32)
    small = np.ones(2**14, np.float32)  # below the parallel threshold
    t = iop.TensorDescriptor.from_array(g)
    op = iop.SigmoidBackwardDescriptor(iop.Handle(), t, t, t)
    out = np.empty_like(g)
    for call in (lambda: iop.gelu_backward(g, g, out=out), lambda: iop.gelu_backward(small, small),
                 lambda: op.calculate(None, out, g, g), run_conv("many-columns")):
        assert lets_others_run(call, seconds=30)


def openmp_library():
    """The OpenMP that the core links: a process may hold several, and a symbol is looked up from the core on."""
    return ctypes.CDLL(_core.__file__)


@needs_openmp
def test_openmp_state_is_left_alone():
    library = openmp_library()

    def state():
        return [getattr(library, f"omp_get_{name}")() for name in (
            "max_threads", "dynamic", "max_active_levels", "thread_limit", "num_threads", "level")]
    before = state()
    for n in (1, 5):
        for name, call in mixed_calls(num_threads=n):
            call()
            assert state() == before, f"{name} num_threads={n}"
    with iop.threads(3):
        run_conv("2d")()
        assert state() == before
    run_conv("2d", num_threads=10**30)()  # any positive number: more than are useful are not started
    assert state() == before


@needs_openmp
def test_num_threads_precedence(monkeypatch):
    """threads() over INFINIOP_CY_NUM_THREADS over OpenMP."""
    def threads():
        return config()["threads"]["count"], config()["threads"]["why"]
    monkeypatch.delenv("INFINIOP_CY_NUM_THREADS", raising=False)
    library = openmp_library()
    before = library.omp_get_max_threads()
    try:
        library.omp_set_num_threads(5)
        assert threads() == (5, "OpenMP's setting")
        monkeypatch.setenv("INFINIOP_CY_NUM_THREADS", "")
        assert threads() == (5, "OpenMP's setting")
        for refused in ("0", "-2", "many", "2.5"):
            monkeypatch.setenv("INFINIOP_CY_NUM_THREADS", refused)
            assert threads() == (5, f"calls are refused: INFINIOP_CY_NUM_THREADS is '{refused}', "
                                    "expected a positive integer")
        monkeypatch.setenv("INFINIOP_CY_NUM_THREADS", "4")
        assert threads() == (4, "INFINIOP_CY_NUM_THREADS")
        with iop.threads(3):
            assert threads() == (3, "threads() context")
            with iop.threads(7):
                assert threads()[0] == 7
            assert threads()[0] == 3
        assert threads()[0] == 4
    finally:
        library.omp_set_num_threads(before)


def test_threads_left_in_another_context_than_entered():
    """As by a generator that another task ends: there is no limit to take away."""
    limit = iop.threads(1)
    contextvars.Context().run(limit.__enter__)
    contextvars.Context().run(limit.__exit__, None, None, None)


@needs_proc
@needs_openmp
def test_num_threads_is_what_runs():
    """num_threads= over threads() over the environment over OpenMP, counted in threads that exist afterwards."""
    run_script("""
        import time
        from infiniop_cy.core import _core
        _core.count_lateness(False)
        def tasks():
            time.sleep(0.05)  # a thread that has ended, such as one started to see if it can be, is listed for a moment
            return len(os.listdir("/proc/self/task"))
        g = np.ones(2**20, np.float32)
        before = tasks()
        def count(**keywords):
            iop.gelu_backward(g, g, **keywords)
            return tasks() - before + 1
        assert count(num_threads=1) == 1
        assert count() == 2
        os.environ["INFINIOP_CY_NUM_THREADS"] = "3"
        assert count() == 3
        with iop.threads(4):
            assert count() == 4
            assert count(num_threads=5) == 5
        from infiniop_cy.testing.conv import CONV_CASES, make_case
        for n, name in enumerate(("parallel", "parallel-stride", "parallel-tiny-images"), start=7):
            case = CONV_CASES[name]
            iop.conv_backward(*make_case(case, "float32", np.random.default_rng(0)), **case.keywords, num_threads=n)
            assert 1 < tasks() - before + 1 <= n, name  # no more than there are tasks
        print("done")
        """, OMP_NUM_THREADS="2")


@pytest.mark.parametrize("n", [0, -1, True, 1.5, "2", [2]], ids=repr)
def test_bad_num_threads(n):
    g, out = np.ones(5, np.float32), np.full(5, 7, np.float32)
    with pytest.raises(iop.BadParam, match=r"num_threads is .* expected a positive integer"):
        iop.relu_backward(g, g, out=out, num_threads=n)
    with pytest.raises(iop.BadParam, match=r"num_threads is .* expected a positive integer"):
        run_conv("2d", num_threads=n)()
    with pytest.raises(iop.BadParam, match="threads"):
        iop.threads(n)
    assert (out == 7).all()


# ---- floating-point state

def special_calls(**keywords):
    """mixed_calls, and inf, NaN, zeros, subnormals and the largest numbers in every argument."""
    yield from mixed_calls(**keywords)
    geometry = CONV_CASES["2d-groups"]
    for dtype in ("float16", "float32", "float64"):
        x = np.array([np.inf, -np.inf, np.nan, 0, 1e-310, 1e-40, 6e-8, 1e-5, -1e4, 1e4], dtype)
        g = np.array([[1], [1e-310], [1e-40], [6e-8], [np.finfo(dtype).max]], dtype)
        for case in CASES:
            inputs = (g, x)[-case.count:]
            yield f"{case} {dtype} special", lambda case=case, inputs=inputs: (case(*inputs, **keywords),)
        data = make_case(geometry, dtype, np.random.default_rng(0), integers=False)
        for array in data:
            array.flat[:10], array.flat[40:60] = x, np.finfo(dtype).smallest_subnormal
        yield (f"conv_backward {dtype} special",
               lambda data=data: iop.conv_backward(*data, **geometry.keywords, **keywords))
        for values in ([1e-310, 5e-324, 1.1], [1e-310, 5e-324, 1e-300]):
            shards = [np.array(values, dtype) * factor for factor in (-3, 1, 4)]
            yield f"sum_gradient {dtype} special", lambda shards=shards: (sum_gradient(shards, 3),)


class FloatState:
    """MXCSR of this thread: the last word of glibc's fenv_t."""

    DEFAULT = 0x1F80
    libm = ctypes.CDLL("libm.so.6") if sys.platform == "linux" else None

    def get(self):
        environment = (ctypes.c_uint32 * 8)()
        self.libm.fegetenv(environment)
        return environment[7]

    def set(self, mxcsr):
        environment = (ctypes.c_uint32 * 8)()
        self.libm.fegetenv(environment)
        environment[7] = mxcsr
        self.libm.fesetenv(environment)


@pytest.mark.skipif(sys.platform != "linux" or platform.machine() != "x86_64",
                    reason="reads MXCSR of x86-64 from glibc's fenv_t")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("bits", [0, 0x3F, 0x2000, 0x4000, 0x6000, 0x8040], ids=[
    "no flag raised", "all flags raised", "round down", "round up", "round towards zero", "flush subnormals"])
def test_floating_point_state_is_not_used_and_not_changed(bits, num_threads, request):
    """Whatever another library has set, results are the same, and it finds its setting and flags again."""
    state, wrong = FloatState(), []
    gc.disable()  # a collection runs others' callbacks: hypothesis's does floating point
    request.addfinalizer(gc.enable)
    for name, call in special_calls(num_threads=num_threads):
        expected = call()
        state.set(state.DEFAULT | bits)
        got = call()
        after = state.get() & ~state.DEFAULT
        state.set(state.DEFAULT)
        if after != bits:
            wrong.append(f"{name}: state {bits:#x} became {after:#x}")
        if not all_same(got, expected):
            wrong.append(f"{name}: other results")
    assert not wrong


# ---- import and output

@needs_proc
def test_import_is_light():
    """No thread beyond NumPy's own, and none of the optional packages."""
    script = """
        import os, sys, numpy
        before = os.listdir("/proc/self/task")
        import infiniop_cy
        assert os.listdir("/proc/self/task") == before
        heavy = {"torch", "pycuda", "ml_dtypes", "matplotlib", "scipy", "mpmath"} & set(sys.modules)
        assert not heavy, heavy
        """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=60)


def test_nothing_is_printed(capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _, call in special_calls():
            call()
        for bad in (lambda: iop.relu_backward(np.ones(2), np.ones(3)), lambda: iop.Handle("cuda", 77),
                    lambda: iop.conv_backward(np.ones((1, 1, 1)), np.ones((1, 1, 1)), np.ones((1, 1, 2)))):
            with pytest.raises(iop.InfiniopError):
                bad()
    assert capfd.readouterr() == ("", "")


# ---- 64-bit sizes

BIG, TOO_BIG = 2**31 + 8, (iop.BadParam, iop.BadTensorShape, iop.BadTensorStrides)


def relu_plan(shape, strides=None, out_strides=None):
    handle, t = iop.Handle(), iop.TensorDescriptor(shape, "float32", strides)
    out = iop.TensorDescriptor(shape, "float32", out_strides or strides)
    return iop.ReluBackwardDescriptor(handle, out, t, t)


def conv_plan(batch=1, cin=1, size=8, kernel=1, cout=1, out=None, stride=1, pads=0, dilation=1):
    shapes = (batch, cout, size if out is None else out), (batch, cin, size), (cout, cin, kernel), (cout,)
    return iop.ConvBackwardDescriptor(iop.Handle(), *(iop.TensorDescriptor(shape, "float32") for shape in shapes),
                                      pads, stride, dilation, 1)


PLANS = {
    "2**31+8 elements": lambda: relu_plan((BIG,)),
    "three times that": lambda: relu_plan((3, BIG)),
    "2**61-1 elements": lambda: relu_plan((2**61 - 1,)),
    "far apart": lambda: relu_plan((2, 2), (2**60, 2**59)),
    "far down": lambda: relu_plan((2, 2), (-2**60, -2**59)),
    "broadcast": lambda: relu_plan((2**30, 2**30), (0, 0), (2**30, 1)),
    "conv size": lambda: conv_plan(size=2**58, out=2**58),
    "conv batch": lambda: conv_plan(batch=2**57),
    "conv channels": lambda: conv_plan(cin=2**31, cout=2),
    "conv padding": lambda: conv_plan(pads=2**40, out=2**41 + 8),
    "conv stride": lambda: conv_plan(stride=2**63 - 1, out=1),
    "conv dilation": lambda: conv_plan(kernel=2, size=2**50 + 1, dilation=2**50, out=1),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_huge_sizes_plan(plan):
    """They plan, and without data refuse to run."""
    with plan() as op:
        is_conv = isinstance(op, iop.ConvBackwardDescriptor)
        assert is_conv == (op.workspace_size > 0)
        with pytest.raises(iop.NullPointer):
            op.calculate(*(None,) * (7 if is_conv else 4))


REFUSED = {
    "size 2**124": lambda: iop.TensorDescriptor((2**62, 2**62), "float32"),
    "size 2**63 bytes": lambda: iop.TensorDescriptor((2**61,), "float32"),
    "size 2**63": lambda: iop.TensorDescriptor((2**63,), "float32"),
    "size -1": lambda: iop.TensorDescriptor((-1,), "float32"),
    "stride 2**63 bytes": lambda: iop.TensorDescriptor((2,), "float32", (2**61,)),
    "stride -2**63 bytes": lambda: iop.TensorDescriptor((2,), "float32", (-2**61,)),
    "stride 2**63": lambda: iop.TensorDescriptor((2,), "float32", (2**63,)),
    "stride 2**64": lambda: iop.TensorDescriptor((1,), "float32", (2**64,)),
    "span 2**63": lambda: iop.TensorDescriptor((2, 2), "float32", (2**60, 2**60)),
    "out on itself": lambda: relu_plan((2, 3), (2**59, 2**59)),
    "out on itself, backwards": lambda: relu_plan((3, 2), (-2**59, 2**59)),
    "conv channels": lambda: conv_plan(cin=2**55),  # tensors fit in 63 bits, the workspace does not
    "conv more channels": lambda: conv_plan(cin=2**58),
    "conv padding": lambda: conv_plan(pads=2**62, out=2**62),
    "conv most padding": lambda: conv_plan(pads=2**63 - 1, out=2**62),
    "conv dilation": lambda: conv_plan(kernel=3, dilation=2**63 - 1),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_sizes_past_63_bits_are_refused(call):
    with pytest.raises(TOO_BIG):
        call()


def test_huge_overlap_is_found():
    """The extents of two tensors together pass 63 bits. In a process of its own: a miss would touch that memory."""
    run_script("""
        t = iop.TensorDescriptor((2**61 - 1,), "float32")
        op = iop.ReluBackwardDescriptor(iop.Handle(), t, t, t)
        try:
            op.calculate(None, 2**40, 2**40 + 4, 2**40)
        except iop.BadParam:
            print("done")
        """)


@pytest.mark.parametrize(("stride", "padding"), [(2**62, 0), (2**63 - 1, 0), (2**63 - 1, ((2**62, 0),)),
                                                 (2**62, ((2**61, 0),))], ids=str)
def test_largest_conv_stride(stride, padding):
    """One window: over input's first pixel, or over padding alone."""
    expected = (0, 0) if padding else (6, 10)  # in a process of its own: a miss writes anywhere
    run_script(f"""
        g, x, w = np.full((1, 1, 1), 2.0), np.full((1, 1, 5), 5.0), np.full((1, 1, 1), 3.0)
        outs = [np.full(s, np.nan) for s in (x.shape, w.shape, 1)]
        iop.conv_backward(g, x, w, stride={stride}, padding={padding}, out=outs)
        assert [a.ravel().tolist() for a in outs] == [[{expected[0]}, 0, 0, 0, 0], [{expected[1]}], [2]], outs
        print("done")
        """)


def test_padding_and_stride_past_63_bits():
    """The first window is all padding; where channels lie side by side, too."""
    run_script("""
        x, w = np.ones((1, 32, 8, 16), np.float32), np.ones((32, 1, 3, 3), np.float32)
        last = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
        stride, padding = (2**62 + 3, 1), ((2**62, 100), (1, 1))
        want = iop.conv(x, w, stride=stride, padding=padding, groups=32)
        got = np.empty((1, 2, 16, 32), np.float32).transpose(0, 3, 1, 2)
        iop.conv(last, w, stride=stride, padding=padding, groups=32, out=got)
        assert not want[:, :, 0].any() and want[:, :, 1].any()
        assert np.array_equal(got, want)
        print("done")
        """)


def sparse(shape, strides):
    """float16 zeros at strides of gigabytes, in address space that takes memory only where it is touched."""
    size = 2 + sum((n - 1) * stride for n, stride in zip(shape, strides))
    no_reserve = 0x4000  # of Linux; Python has no name for it before 3.13
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve)
    return np.lib.stride_tricks.as_strided(np.frombuffer(memory, np.float16), shape, strides)


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's MAP_NORESERVE")
def test_strides_of_gigabytes(rng):
    """Offsets past 2**32 bytes, and past 2**31 elements."""
    case = CONV_CASES["2d"]
    data = make_case(case, "float16", rng)
    expected = iop.conv_backward(*data, **case.keywords)
    far = [sparse(a.shape, (5 * GIB, GIB, *a.strides[2:])) for a in (*data, *expected[:2])]
    for array, values in zip(far, data):
        array[...] = values
    iop.conv_backward(*far[:3], **case.keywords, out=(*far[3:], None))
    assert all_same(far[3:], expected[:2])
    iop.relu_backward(far[1], far[1], out=far[3])
    assert same_bits(far[3], iop.relu_backward(data.input, data.input))


def available_memory():
    try:
        with open("/proc/meminfo") as facts:
            return next(int(line.split()[1]) * 1024 for line in facts if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return 0


@pytest.mark.skipif(available_memory() < 3 * GIB, reason="needs 3 GiB of available memory (MemAvailable)")
def test_more_than_2_to_the_31_elements(rng):
    """A result of 2 GiB of int8, all rows of one of two kinds; the last ones lie past element 2**31."""
    case = next(case for case in CASES if case.operator.promotes and case.operator.backward)
    rows, columns = 2**17 + 2, 2**14
    g, x = 50 * random_values(rng, (1, columns), "float32"), random_values(rng, (rows, 1), "float32")
    out = np.empty((rows, columns), np.int8)
    case(g, x, out=out)
    small = [case(g, np.float32([[sign]]), out=np.empty((1, columns), np.int8))[0] for sign in (-1, 1)]
    for row in (0, 1, 2**16 - 1, 2**16, 2**17 - 1, 2**17, 2**17 + 1, *rng.integers(0, rows, 2000)):
        assert same_bits(out[row], small[int(x[row, 0] > 0)]), f"row {row}"


def test_conv_of_more_than_2_to_the_31_pixels():
    """Broadcast, so without the memory; the sum is exact in float64."""
    ones = np.broadcast_to(1.0, (1, 1, BIG))
    got = iop.conv_backward(ones, ones, np.ones((1, 1, 1)), output_mask=(False, False, True))
    assert got.grad_bias == BIG


def test_verbose_logs_one_line_per_call():
    """Quick, general, conv and descriptor calls; through logging, which writes to stderr."""
    code = """
        x = np.ones((1, 1, 3), np.float32)
        iop.relu_backward(x, x)
        iop.gelu_backward(x, x, approximate="tanh")
        iop.conv_backward(x, x, x[:, :, :1])
        t = iop.TensorDescriptor.from_array(x)
        iop.SigmoidBackwardDescriptor(iop.Handle(), t, t, t).calculate(None, x, x, x)
    """
    done = subprocess.run([sys.executable, "-c", "import numpy as np, infiniop_cy as iop\n" + textwrap.dedent(code)],
                          env={**os.environ, "INFINIOP_VERBOSE": "1"}, capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert [line.split()[0] for line in done.stderr.splitlines()] == [
        "relu_backward", "gelu_backward", "conv_backward", "sigmoid_backward"]
    assert "input=float32(1, 1, 3)" in done.stderr
    assert "approximate=tanh" in done.stderr


@pytest.mark.parametrize("order", ["before", "after", "of the library"])
def test_verbose_writes_no_line_twice(order):
    """Where an application writes what is logged, whenever it starts to, it alone does."""
    setup = "logging.getLogger('infiniop_cy').addHandler(logging.StreamHandler())" if order == "of the library" \
        else "logging.basicConfig(format='%(message)s')"
    load = "import infiniop_cy as iop"
    code = [f"import logging\n{load}\niop.relu(1.0)" if order != "before" else "import logging", setup, load,
            "iop.relu(2.0)", "iop.gelu(3.0)"]
    done = subprocess.run([sys.executable, "-c", "\n".join(code)], env={**os.environ, "INFINIOP_VERBOSE": "1"},
                          capture_output=True, text=True, check=True)
    written = [line.split()[0] for line in done.stderr.splitlines()]
    assert written == [*["relu"] * (order != "before"), "relu", "gelu"]
