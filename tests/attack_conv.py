"""Random convolutions without end: what test_conv_random.py asks of a few hundred, of as many as there is time for.

    python tests/attack_conv.py --seeds 0 50000 --jobs 2            small geometries, every algorithm: values and bits
    python tests/attack_conv.py --seeds 0 2000 --large              with work for seven threads: bits by threads, too
    python tests/attack_conv.py --seeds 0 2000 --families           of the sizes of networks and benchmarks
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
from functools import partial

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the reference's products are small

import test_conv_forward as forward
import test_conv_pixels as pixels
import test_conv_random as tests

from infiniop_cy.core._core import build_info
from infiniop_cy.testing import DTYPES

DRAWS = {"small": tests.random_case, "large": partial(tests.random_case, **tests.LARGE), "families": tests.family_case}
BACKWARD = (tests.check_exact, tests.check_layout, tests.check_channels_last, tests.check_batch, tests.check_threads)
FORWARD = (forward.check_exact, forward.check_layout, forward.check_channels_last, forward.check_batch,
           forward.check_threads)


def attack(seed, sizes, checks):
    """The failures of one seed, as text."""
    dtype = DTYPES[seed % len(DTYPES)]
    failures = []
    for check in checks[:-1] if sizes == "small" else checks:
        case, rng = DRAWS[sizes](seed)
        try:
            check(case, dtype, rng, f"{sizes}, seed {seed} {dtype}")
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
    first, last, sizes, is_forward = arguments
    if sizes == "pixels":
        return [failure for seed in range(first, last) for failure in attack_pixels(seed)]
    checks = FORWARD if is_forward else BACKWARD
    return [failure for seed in range(first, last) for failure in attack(seed, sizes, checks)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 1000), metavar=("FIRST", "LAST"))
    kinds = parser.add_mutually_exclusive_group()
    for sizes in ("large", "families", "pixels"):
        kinds.add_argument(f"--{sizes}", dest="sizes", action="store_const", const=sizes, default="small")
    parser.add_argument("--forward", action="store_true", help="iop.conv instead of conv_backward")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    first, last = options.seeds
    step = 200 if options.sizes == "small" else 20
    ranges = [(n, min(n + step, last), options.sizes, options.forward) for n in range(first, last, step)]
    count = 0
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        for failures in pool.map(attack_range, ranges):
            for failure in failures:
                count += 1
                print(failure, flush=True)
    print(f"kernels of {build_info()['isa']}: {options.sizes}, seeds {first} to {last}: {count} failures")
    sys.exit(count > 0)


if __name__ == "__main__":
    main()
