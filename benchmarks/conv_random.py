"""conv_backward and conv beside torch on random geometries, to find those where they fall behind by far.

    python benchmarks/conv_random.py --seeds 0 200
    python benchmarks/conv_random.py --seeds 0 100 --dtype bfloat16 --family far,few --part grad_input
    python benchmarks/conv_random.py --seeds 0 200 --layout channels_last --part forward

A seed is a geometry of one of the families of infiniop_cy/testing/conv_families.py. Results are compared with torch's
loosely (where the two differ, torch in float64 says whose are wrong), then both are timed interleaved. float16 and
float64, which torch computes slowly, are timed beside our own float32. Every case slower than --limit times the other
is printed, then how all are distributed, and the worst.
"""
import argparse
import os
import sys
import time
from statistics import median

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import numpy as np
import peers
import torch  # before infiniop_cy, so that both libraries share one OpenMP runtime and its threads
from conv_data import LAYOUTS
from timing import keep_freed_memory

import infiniop_cy as iop
from infiniop_cy.testing import arrange
from infiniop_cy.testing.conv import make_case
from infiniop_cy.testing.conv_families import FAMILIES, family_geometry

PARTS = {"all": (True, True, True), "grad_input": (True, False, False), "grad_weight": (False, True, False),
         "forward": None}  # None: no gradient
LIMITS = {"float32": 3.0, "bfloat16": 3.0, "float16": 4.0, "float64": 4.0}  # times the other's time
TOLERANCE = {"float32": 2e-5, "bfloat16": 2e-2, "float16": 2e-3, "float64": 2e-5}  # of the largest value
SECONDS = 0.12           # for the repeats of one case
REPEATS = (3, 25)        # at least and at most


def repro(case):
    stride, padding, dilation, groups = case.geometry
    return (f"ConvCase('{case.name}', {case.batch}, {groups}, {case.cin}, {case.cout}, {case.size}, {case.kernel}, "
            f"{stride}, {tuple(p for p, _ in padding)}, {dilation})")


def interleaved(calls):
    """The median seconds of each call."""
    seconds = [[] for _ in calls]
    begun = time.perf_counter()
    while len(seconds[0]) < REPEATS[0] or (
            len(seconds[0]) < REPEATS[1] and time.perf_counter() - begun < SECONDS):
        for call, into in zip(calls, seconds):
            started = time.perf_counter()
            call()
            into.append(time.perf_counter() - started)
            if len(into) == 2 and sum(into) > 1:  # slow enough to be seen
                return [median(s) if s else into[-1] for s in seconds]
    return [median(s[1:]) for s in seconds]


def our_call(case, data, mask):
    """Results in the memory layout of the arguments, as torch's are."""
    grad_output, *operands = data
    if mask is None:
        return lambda: iop.conv(*operands, **case.keywords, out=np.empty_like(grad_output))
    return lambda: iop.conv_backward(*data, **case.keywords, output_mask=mask, out=(
        *(np.empty_like(a) if wanted else None for a, wanted in zip(operands, mask)), None))


def torch_call(case, tensors, mask):
    stride, padding, dilation, groups = case.geometry
    rest = stride, [p for p, _ in padding], dilation, False, [0] * len(stride), groups
    if mask is None:
        return lambda: torch.ops.aten.convolution.default(*tensors[1:], None, *rest)
    return lambda: torch.ops.aten.convolution_backward.default(*tensors, [case.cout], *rest, list(mask))


def distances(results, others):
    """{result: the largest difference from the other's, of the other's largest value}."""
    found = {}
    if not isinstance(results, tuple):
        results, others = {"output": results}, {"output": others}
    else:
        results, others = (dict(zip(("grad_input", "grad_weight", "grad_bias"), each)) for each in (results, others))
    for name, a in results.items():
        b = others[name]
        if a is None:
            continue
        a, b = (np.asarray(v.double() if hasattr(v, "double") else v).astype(float) for v in (a, b))
        found[name] = np.abs(a - b).max(initial=0) / max(1e-30, np.abs(b).max(initial=0))
    return found


def check(case, dtype, ours, others, referee):
    """Stop where our result is far from the other's, unless it is near the referee's: then the other is wrong."""
    far = {name: by for name, by in distances(ours, others).items() if not by <= TOLERANCE[dtype]}
    if not far:
        return
    judged = distances(ours, referee()) if referee else far
    for name, by in far.items():
        if not judged[name] <= TOLERANCE[dtype]:
            raise SystemExit(f"wrong {name}, by {by:.2g} of its largest value: {repro(case)}")
        print(f"torch's {name} is wrong, by {by:.2g} of its largest value: {repro(case)}", flush=True)


def measure(case, options):
    """(seconds of ours, seconds of the other)."""
    mask, dtype = PARTS[options.part], options.dtype
    data = [arrange(array, LAYOUTS[options.layout])
            for array in make_case(case, dtype, np.random.default_rng(7), integers=False)]
    referee = None
    if dtype in ("float16", "float64"):
        other = our_call(case, [a.astype(np.float32) for a in data], mask)
    else:
        tensors = [peers.to_torch(a) for a in data]
        other = torch_call(case, tensors, mask)
        referee = torch_call(case, [a.double() for a in tensors], mask)
    ours = our_call(case, data, mask)
    check(case, dtype, ours(), other(), referee)
    return interleaved([ours, other])


def summary(rows, limit):
    ratios = np.array([other / ours for ours, other, _, _ in rows])
    print(f"\n{len(rows)} cases: geometric mean {np.exp(np.log(ratios).mean()):.2f}, below 0.97: "
          f"{(ratios < 0.97).mean():.0%}, below 0.5: {(ratios < 0.5).mean():.0%}, "
          f"slower than {limit:g}x: {(ratios < 1 / limit).sum()}")
    for name in FAMILIES:
        of = np.array([other / ours for ours, other, case, _ in rows if case.name == name])
        if len(of):
            mean = np.exp(np.log(of).mean())
            print(f"    {name:13} {len(of):4} cases, geometric mean {mean:5.2f}, worst {of.min():.3f}")
    print("worst:")
    for ours, other, case, seed in sorted(rows, key=lambda row: row[1] / row[0])[:20]:
        print(f"    {other / ours:6.3f}  {ours * 1e3:9.3f} ms to {other * 1e3:8.3f}  seed {seed}: {repro(case)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 100), metavar=("FIRST", "LAST"))
    parser.add_argument("--dtype", default="float32", choices=LIMITS)
    parser.add_argument("--family", default=",".join(FAMILIES), help="names with commas between them; default: all")
    parser.add_argument("--part", default="all", choices=PARTS)
    parser.add_argument("--layout", default="contiguous", choices=LAYOUTS, help="of all arrays; default: contiguous")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--limit", type=float, help="print what is slower than so many times the other; default: 3, "
                        "or 4 beside our own float32")
    options = parser.parse_args()
    keep_freed_memory()
    torch.inference_mode().__enter__()
    torch.set_num_threads(options.threads)
    limit, rows = options.limit or LIMITS[options.dtype], []
    with iop.threads(options.threads):
        for seed in range(*options.seeds):
            case = family_geometry(seed, options.family.split(","))
            ours, other = measure(case, options)
            rows.append((ours, other, case, seed))
            if ours > limit * other:
                print(f"{other / ours:6.3f}  {ours * 1e3:9.3f} ms to {other * 1e3:8.3f}  seed {seed}: {repro(case)}",
                      flush=True)
    summary(rows, limit)


if __name__ == "__main__":
    main()
