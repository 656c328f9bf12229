"""Python threads that share handles, descriptors and inputs, of Python and of C: each gets the bits of a call alone.

What the results do not show is found by the thread sanitizer: .ci/threads.sh."""
import ctypes
import threading

import numpy as np

import infiniop_cy as iop
from infiniop_cy.operators import OPERATORS
from infiniop_cy.testing import CASES, DTYPES, dtype_of
from infiniop_cy.testing.conv import make_case, random_geometry

from .c_api import SIZE, P, library, tensor
from .convolution import integer
from .descriptors import CLASS_OF
from .memory import numbers, same

AT_ONCE = 3


def together(rng, *tasks):
    """Each task, a function of a generator of its own, several times on several threads at once."""
    wrong, start = [], threading.Barrier(AT_ONCE * len(tasks))

    def work(task, seed):
        local = np.random.default_rng(seed)
        start.wait()
        try:
            for _ in range(3):
                task(local)
        except BaseException as error:
            wrong.append(error)
    workers = [threading.Thread(target=work, args=(task, int(rng.integers(2**31))))
               for task in tasks for _ in range(AT_ONCE)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if wrong:
        raise wrong[0]


def share_elementwise(rng):
    """A descriptor of Python, and the function it is of."""
    case, dtype = CASES[rng.integers(len(CASES))], DTYPES[rng.integers(len(DTYPES))]
    count = int(rng.choice([3, 200, 70_000]))  # the last one in several OpenMP threads
    inputs = [numbers(rng, count, dtype) for _ in range(case.count)]
    expected = case(*inputs, num_threads=1)
    handle, t = iop.Handle("cpu"), iop.TensorDescriptor((count,), dtype)
    op = CLASS_OF[case.operator.name](handle, *[t] * (1 + case.count), **case.parameters)

    def described(local):
        out = np.empty(count, dtype_of(dtype))
        with iop.threads(int(local.integers(1, 4))):
            op.calculate(None, out, *inputs[::-1])
        same(out, expected, f"{case} {dtype}")

    def called(local):
        same(case(*inputs, num_threads=int(local.integers(1, 4))), expected, f"{case} {dtype}")
    together(rng, described, called)


def share_conv(rng):
    """Descriptors of both directions, and the functions that they are of."""
    case, dtype = random_geometry(integer(rng), products=(0, 1 << 18), elements=1 << 13), DTYPES[rng.integers(4)]
    if any(before != after for before, after in case.geometry[1]):
        return
    stride, pads, dilation, groups = case.geometry
    g, x, w = make_case(case, dtype, rng, integers=False)
    bias, lists = numbers(rng, (case.cout,), dtype), ([p[0] for p in pads], stride, dilation, groups)
    grads = iop.conv_backward(g, x, w, **case.keywords, num_threads=1)
    output = iop.conv(x, w, bias, **case.keywords, num_threads=1)
    handle, described = iop.Handle("cpu"), [iop.TensorDescriptor.from_array(a) for a in (g, x, w, bias)]
    backward = iop.ConvBackwardDescriptor(handle, *described, *lists)
    forward = iop.ConvDescriptor(handle, *described, *lists)

    def gradients(local):
        outs = [np.empty_like(a) for a in grads]
        with iop.threads(int(local.integers(1, 4))):
            backward.calculate(iop.empty_workspace(handle, backward.workspace_size), *outs, g, x, w)
            for got, want in zip((*outs, *iop.conv_backward(g, x, w, **case.keywords)), (*grads, *grads)):
                same(got, want, f"{case!r} {dtype}")

    def outputs(local):
        out = np.empty_like(output)
        with iop.threads(int(local.integers(1, 4))):
            forward.calculate(iop.empty_workspace(handle, forward.workspace_size), out, x, w, bias)
            same(out, output, f"{case!r} {dtype}")
            same(iop.conv(x, w, bias, **case.keywords), output, f"{case!r} {dtype}")
    together(rng, gradients, outputs)


def share_c(rng):
    """A handle, a tensor and an operator of C; others come and go, and of those who destroy one object one succeeds."""
    lib, handle, shared = library(), P(), P()
    assert lib.infiniopCreateHandle(ctypes.byref(handle)) == 0
    operator = [o for o in OPERATORS if o.backward and not o.parameters][rng.integers(3)]
    create = getattr(lib, f"infiniopCreate{operator.class_name}Descriptor")
    run, destroy = (getattr(lib, f"infiniop{form}") for form in (
        operator.class_name, f"Destroy{operator.class_name}Descriptor"))
    count = int(rng.choice([5, 70_000]))
    g, x = numbers(rng, count, "float32"), numbers(rng, count, "float32")
    expected = getattr(iop, operator.name)(g, x, num_threads=1)
    t = tensor(rng, [count])
    assert create(handle, ctypes.byref(shared), t, t, t) == 0
    destroyed = []

    def shares(local):
        out, own = np.empty_like(g), P()
        if local.integers(2):
            assert create(handle, ctypes.byref(own), t, t, t) == 0
        assert run(own if own.value else shared, None, SIZE(0), *(P(a.ctypes.data) for a in (out, x, g)), None) == 0
        same(out, expected, operator.name)
        if own.value:
            assert destroy(own) == 0

    def comes_and_goes(local):
        mine, other = tensor(local, [int(local.integers(1, 9))]), P()
        assert lib.infiniopCreateHandle(ctypes.byref(other)) == 0
        assert [lib.infiniopDestroyTensorDescriptor(mine), lib.infiniopDestroyHandle(other)] == [0, 0]
    together(rng, shares, comes_and_goes)
    together(rng, lambda local: destroyed.append(destroy(shared)))
    assert sorted(destroyed) == [0] + [3] * (len(destroyed) - 1)
    assert [lib.infiniopDestroyTensorDescriptor(t), lib.infiniopDestroyHandle(handle)] == [0, 0]


def run(rng):
    (share_elementwise, share_conv, share_c)[rng.integers(3)](rng)
