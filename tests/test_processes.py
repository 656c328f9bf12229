"""Processes started in every way, and millions of calls in one."""
import multiprocessing
import os

import numpy as np
import pytest

import infiniop_cy as iop


def gradients(num_threads):
    rng = np.random.default_rng(0)
    g, x, w = (rng.standard_normal(s).astype(np.float32) for s in ((2, 40, 30, 30), (2, 30, 30, 30), (40, 30, 3, 3)))
    big = rng.standard_normal(2**18).astype(np.float32)
    return [a.tobytes() for a in (*iop.conv_backward(g, x, w, padding=1, num_threads=num_threads),
                                  iop.gelu_backward(big, big, num_threads=num_threads))]


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_every_way_to_start_a_process(method):
    expected = gradients(3)  # so that threads are there
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert all(result == expected for result in pool.map(gradients, [1, 3, 1, 3], chunksize=1))


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="memory is read from /proc/self/statm")
def test_a_million_calls_leave_no_memory_behind():
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1])

    def turn(n):
        for _ in range(n):
            iop.relu_backward(g, x)
            iop.gelu_backward(g, g, out=out)
    g, x = np.ones(50, np.float32), np.ones((1, 50), np.float32)[0]
    out = np.empty_like(g)
    turn(1000)
    before = resident()
    turn(500_000)
    assert resident() - before < 100  # pages
