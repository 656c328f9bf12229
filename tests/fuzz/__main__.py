"""Random calls until the time is over; a failure prints a script that repeats it.

    make fuzz ARGS='--seconds 600 --seed 7'
    cd tests; ../.venv/bin/python -m fuzz --kinds convolution c_api --seconds 60

Case n of a seed is the same whenever, on whatever machine, and alone: `--seed 7 --kinds convolution --case 123`. Cases
run in a child process, so that a crash is a failure like any other, and the next case goes on.
"""
import argparse
import contextlib
import importlib
import multiprocessing
import os
import queue
import sys
import time
import traceback

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the reference's products are small

import ml_dtypes  # noqa: F401  (so that children need not import them)
import mpmath  # noqa: F401
import numpy as np

KINDS = ("elementwise", "convolution", "descriptors", "errors", "c_api", "threads")
SLICE = 30   # seconds of one child
HANG = 200   # seconds after which one that does not end is a failure
SCRIPT = """
# {kind}, seed {seed}, case {number}, INFINIOP_CY_ISA={isa}: {error}
import os, sys
os.environ["INFINIOP_CY_ISA"] = "{isa}"
sys.path.insert(0, "{tests}")
import numpy as np
from fuzz import {kind}
{kind}.run(np.random.default_rng([{seed}, {index}, {number}]))
"""


def generator(kind, seed, number):
    return np.random.default_rng([seed, KINDS.index(kind), number])


def run_cases(kind, seed, until, at, ended, found):
    """In a child: run cases from `at` on, which says where it is; put failures, as (number, text), into a queue."""
    run = importlib.import_module(f"fuzz.{kind}").run
    from infiniop_cy.core import _core
    _core.count_lateness(False)
    while time.monotonic() < until:
        try:
            run(generator(kind, seed, at.value))
        except Exception:  # of any kind: that is what is looked for
            found.put((at.value, traceback.format_exc(limit=-3)))
        at.value += 1
    ended.set()


def attack(kind, seed, first, until):
    """Run cases from the first on until that time; return the number of the next, and failures as (number, text)."""
    context = multiprocessing.get_context("fork")
    failures, at = [], context.Value("q", first)
    while time.monotonic() < until:
        ended, found = context.Event(), context.Queue()
        child = context.Process(target=run_cases, args=(kind, seed, until, at, ended, found))
        child.start()
        while child.is_alive() and time.monotonic() < until + HANG:
            with contextlib.suppress(queue.Empty):  # read while it runs: a full pipe would make it wait
                failures.append(found.get(timeout=0.05))
        child.kill()
        child.join()
        with contextlib.suppress(queue.Empty):
            while True:
                failures.append(found.get(timeout=0.05))
        if not ended.is_set():
            failures.append((at.value, f"the process ended with {child.exitcode}, or hung"))
            at.value += 1
    return at.value, failures


def script(kind, seed, number, error):
    return SCRIPT.format(kind=kind, seed=seed, number=number, index=KINDS.index(kind),
                         error=error.strip().split("\n")[-1], isa=os.environ.get("INFINIOP_CY_ISA", ""),
                         tests=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def run_here(kinds, seed, until):
    """In this process, where valgrind and the thread sanitizer see it: cases of each kind in turn, up to a failure."""
    number = 0
    while time.monotonic() < until:
        for kind in kinds:
            run = importlib.import_module(f"fuzz.{kind}").run
            try:
                run(generator(kind, seed, number))
            except Exception:
                error = traceback.format_exc(limit=-3)
                print(f"{error}\n{script(kind, seed, number, error)}", flush=True)
                sys.exit(1)
        number += 1
    print(f"kernels of {os.environ.get('INFINIOP_CY_ISA') or 'the best instruction set'}: {number} of each of "
          + ", ".join(kinds))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS)
    parser.add_argument("--case", type=int, help="run this one alone, in this process")
    parser.add_argument("--here", action="store_true", help="in this process alone, up to the first failure")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    if options.case is not None:
        for kind in options.kinds:
            importlib.import_module(f"fuzz.{kind}").run(generator(kind, options.seed, options.case))
        return
    until, counts, failed = time.monotonic() + options.seconds, dict.fromkeys(options.kinds, 0), 0
    if options.here:
        run_here(options.kinds, options.seed, until)
        return
    while time.monotonic() < until:
        for kind in options.kinds:
            share = min(SLICE, options.seconds / len(options.kinds))
            counts[kind], failures = attack(kind, options.seed, counts[kind], time.monotonic() + share)
            for number, error in failures:
                failed += 1
                print(f"{error}\n{script(kind, options.seed, number, error)}", flush=True)
    print(f"kernels of {os.environ.get('INFINIOP_CY_ISA') or 'the best instruction set'}: "
          + ", ".join(f"{n} {kind}" for kind, n in counts.items()) + f": {failed} failures")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
