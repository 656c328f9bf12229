"""Signals while a long convolution runs: Python's handlers run on the way, and may end it."""
import signal
import threading
import time

import numpy as np
import pytest

import infiniop_cy as iop
from infiniop_cy.testing import DTYPES, dtype_of, same_bits

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no signal.setitimer here")


class StopError(Exception):
    pass


@pytest.fixture
def alarm():
    """alarm(seconds, handler): call the handler so much later."""
    before = signal.getsignal(signal.SIGALRM)

    def arm(seconds, handler):
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, seconds)
    yield arm
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def stop(*_):
    raise StopError


def interrupted(alarm, seconds, call):
    """Start a call that is to be ended by an exception so much later."""
    alarm(seconds, stop)
    call()


def operands(dtype="float32", batch=20_000, channels=64):
    """Of a convolution that takes seconds at least, in little memory: all samples are one."""
    image = np.broadcast_to(np.ones((), dtype_of(dtype)), (batch, channels, 56, 56))
    return image, image, np.ones((channels, channels, 3, 3), dtype_of(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("gradient", ["grad_input", "grad_weight", "grad_bias"])
def test_a_handler_that_raises_ends_the_call(gradient, num_threads, dtype, alarm):
    g, x, w = operands(dtype)
    mask = [gradient == name for name in iop.ConvGradients._fields]
    outs = [None, None, None]
    if gradient == "grad_input":  # which takes the memory of the whole batch
        g, x = g[:2000], x[:2000]
        outs[0] = np.empty(x.shape, x.dtype)
    alarm(0.05, stop)
    start = time.perf_counter()
    try:
        iop.conv_backward(g, x, w, padding=1, output_mask=mask, out=outs, num_threads=num_threads)
    except StopError:
        assert time.perf_counter() - start < 1  # 0.06 where nothing else runs
    else:
        assert time.perf_counter() - start < 0.5, "it was not interrupted"
    small = np.ones((1, 4, 9, 9), np.float32)  # and the next call is as ever
    assert iop.conv_backward(small, small, np.ones((4, 4, 1, 1), np.float32)).grad_weight[0, 0] == 81


def test_of_a_descriptor(alarm):
    data = operands()
    t = [iop.TensorDescriptor.from_array(a) for a in data]
    with iop.Handle("cpu") as handle, iop.ConvBackwardDescriptor(handle, *t, None, 1, 1, 1, 1) as op:
        workspace, out = iop.empty_workspace(handle, op.workspace_size), np.empty_like(data[2])
        with pytest.raises(StopError):
            interrupted(alarm, 0.05, lambda: op.calculate(workspace, None, out, None, *data))


def test_a_handler_that_returns_changes_nothing(alarm):
    """It may call the library itself."""
    data = operands(batch=200)
    calls, small = [], np.ones((2, 16, 20, 20), np.float32)

    def handler(*_):
        calls.append(iop.conv_backward(small, small, np.ones((16, 16, 1, 1), np.float32)).grad_weight)
    expected = iop.conv_backward(*data, padding=1, output_mask=(False, True, True))
    signal.setitimer(signal.ITIMER_REAL, 0)
    alarm(0.02, handler)
    got = iop.conv_backward(*data, padding=1, output_mask=(False, True, True))
    assert all(map(same_bits, got[1:], expected[1:]))
    assert all((value == 800).all() for value in calls)


def test_another_thread_goes_on(alarm):
    """Python runs handlers in its main thread alone: a call in another one is not theirs to end."""
    data = operands(batch=200)
    expected = iop.conv_backward(*data, padding=1, output_mask=(False, True, False))
    results = []
    thread = threading.Thread(target=lambda: results.append(
        iop.conv_backward(*data, padding=1, output_mask=(False, True, False))))
    thread.start()
    with pytest.raises(StopError):
        interrupted(alarm, 0.02, lambda: time.sleep(5))
    thread.join()
    assert same_bits(results[0].grad_weight, expected.grad_weight)
