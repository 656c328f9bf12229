"""Random convolutions without end: what test_conv_random.py asks of a few hundred, of as many as there is time for.

    python tests/attack_conv.py --seeds 0 50000 --jobs 2            small geometries, every algorithm: values and bits
    python tests/attack_conv.py --seeds 0 2000 --large              with work for seven threads: bits by threads, too
    python tests/attack_conv.py --seeds 0 50000 --forward           iop.conv, what test_conv_forward.py asks
    python tests/attack_conv.py --seeds 0 5000 --pixels             layers of networks, what test_conv_pixels.py asks

Each seed is a geometry and a dtype. A failure prints the seed and what it shows, and does not end the run. With
INFINIOP_CY_ISA=generic, avx2, avx512 or amx the kernels are another instruction set's.
"""
import argparse
import concurrent.futures
import os
import sys
import traceback

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the reference's products are small

import test_conv_forward as forward
import test_conv_pixels as pixels
import test_conv_random as tests

from infiniop_cy.core._core import build_info
from infiniop_cy.testing import DTYPES

BACKWARD = (tests.check_exact, tests.check_layout, tests.check_channels_last, tests.check_batch, tests.check_threads)
FORWARD = (forward.check_exact, forward.check_layout, forward.check_channels_last, forward.check_batch,
           forward.check_threads)


def attack(seed, large, checks):
    """The failures of one seed, as text."""
    limits = tests.LARGE if large else {}
    dtype = DTYPES[seed % len(DTYPES)]
    failures = []
    for check in checks if large else checks[:-1]:
        case, rng = tests.random_case(seed, **limits)
        try:
            check(case, dtype, rng, f"{'large ' * large}seed {seed} {dtype}")
        except Exception:  # of any kind: that is what is looked for
            failures.append(f"{check.__name__}: {traceback.format_exc(limit=-1)}")
    return failures


def attack_pixels(seed):
    """The failures of one seed, of each kind, as text."""
    failures = []
    for kind in pixels.KINDS:
        try:
            pixels.check_bits(kind, seed)
        except Exception:  # of any kind, again
            failures.append(f"{kind.__name__}, seed {seed}: {traceback.format_exc(limit=-1)}")
    return failures


def attack_range(arguments):
    first, last, large, is_forward, of_pixels = arguments
    if of_pixels:
        return [failure for seed in range(first, last) for failure in attack_pixels(seed)]
    checks = FORWARD if is_forward else BACKWARD
    return [failure for seed in range(first, last) for failure in attack(seed, large, checks)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 1000), metavar=("FIRST", "LAST"))
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--forward", action="store_true", help="iop.conv instead of conv_backward")
    parser.add_argument("--pixels", action="store_true", help="both, of larger layers, whatever their channels' place")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    first, last = options.seeds
    step = 20 if options.large else 200
    ranges = [(n, min(n + step, last), options.large, options.forward, options.pixels)
              for n in range(first, last, step)]
    count = 0
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        for failures in pool.map(attack_range, ranges):
            for failure in failures:
                count += 1
                print(failure, flush=True)
    print(f"kernels of {build_info()['isa']}: seeds {first} to {last}{', large' * options.large}: {count} failures")
    sys.exit(count > 0)


if __name__ == "__main__":
    main()
