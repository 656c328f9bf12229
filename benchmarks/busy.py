"""A short convolution while other processes keep the cores busy: on one thread, on all, and on all whatever it costs.

    .venv/bin/python benchmarks/busy.py                       beside 0 processes, and one for each core
    .venv/bin/python benchmarks/busy.py --busy 1 --seconds 5

Calls on one thread and on all threads take turns in one process. "met": teams that are late are met again at once, as
by any OpenMP program, which shows what measuring their lateness saves (core/base/team.pxi). torch, where it is
installed, shows its own. Times are in ms; the mean counts, too, since the cost comes in rare large pieces.
"""
import argparse
import contextlib
import os
import subprocess
import sys
import time

import numpy as np

import infiniop_cy as iop
from infiniop_cy.core import _core

SPIN = "while True: pass"


@contextlib.contextmanager
def busy_processes(count):
    processes = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(count)]
    try:
        time.sleep(0.3)  # until they run
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def our_call(size, channels, batch):
    rng = np.random.default_rng(0)
    g, x = (rng.standard_normal((batch, channels, size, size)).astype(np.float32) for _ in range(2))
    w = rng.standard_normal((channels, channels, 3, 3)).astype(np.float32)
    out = np.empty_like(x), np.empty_like(w), np.empty(channels, np.float32)

    def call(threads):
        iop.conv_backward(g, x, w, padding=1, out=out, num_threads=threads)
    return call, (g, x, w)


def torch_call(arrays):
    try:
        import torch
    except ImportError:
        return None
    g, x, w = map(torch.from_numpy, arrays)

    def call(threads):
        torch.set_num_threads(threads)
        torch.ops.aten.convolution_backward(g, x, w, [w.shape[0]], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True] * 3)
    return call


def measure(calls, seconds):
    """Times of each call by name, in turns of five, until so many seconds are over."""
    times = {name: [] for name in calls}
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or min(map(len, times.values())) < 20:
        for name, call in calls.items():
            for _ in range(5):
                start = time.perf_counter()
                call()
                times[name].append(time.perf_counter() - start)
    return times


def report(title, times):
    for name, values in times.items():
        ms = np.array(values) * 1e3
        print(f"{title:24} {name:16} median {np.median(ms):7.3f}   mean {ms.mean():7.3f}   "
              f"p90 {np.quantile(ms, 0.9):7.3f}   calls {len(ms)}", flush=True)


def main():
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--busy", type=int, nargs="*", default=[0, cores], help="processes beside")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--threads", type=int, default=cores)
    parser.add_argument("--shape", type=int, nargs=3, default=(28, 48, 2), metavar=("SIZE", "CHANNELS", "BATCH"))
    options = parser.parse_args()
    call, arrays = our_call(*options.shape)
    theirs = torch_call(arrays)
    print(f"kernels of {_core.build_info()['isa']}, {options.threads} threads on {cores} cores, "
          f"OMP_WAIT_POLICY={os.environ.get('OMP_WAIT_POLICY')}")
    for count in options.busy:
        with busy_processes(count):
            for title, counts in (("", True), (", met", False)):
                _core.count_lateness(counts)
                report(f"beside {count}{title}", measure(
                    {"1 thread": lambda: call(1), f"{options.threads} threads": lambda: call(options.threads)},
                    options.seconds))
            _core.count_lateness(True)
            if theirs:
                report(f"beside {count}, torch", measure(
                    {"1 thread": lambda: theirs(1), f"{options.threads} threads": lambda: theirs(options.threads)},
                    options.seconds))


if __name__ == "__main__":
    main()
