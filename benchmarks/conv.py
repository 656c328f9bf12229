"""Speed of conv_backward and conv beside torch (oneDNN) and beside the arithmetic that the cores can do.

    make bench-conv                                              the shapes that have targets
    make bench-conv ARGS='--family resnet50 --dtype float32'     a family of shapes, with its geometric means
    make bench-conv ARGS="--shape '56 3x3' --dtype float32,bfloat16 --part all,grad_input"
    make bench-conv ARGS='--family zoo --json zoo.json --plot zoo.png'       the layers of 42 networks, by network
    make bench-conv ARGS='--family zoo --network resnet,vgg --layout channels_last --batch 8'
    make bench-conv ARGS='--family zoo --network resnet50 --part forward'    iop.conv itself

Every row is checked before it is timed: on small integers, whose every partial sum is exact, the results are those of
float64, rounded once (of the zoo: those of torch in float32, as exact on them). Then all contestants run interleaved in
this process on normally distributed numbers.

The zoo takes about a quarter of an hour. With --lock FILE it measures only while it holds that file exclusively, as
flock -x does, and lets go of it between rows every minute, for those who share the machine.
"""
import argparse
import json
import os
import sys
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import conv_report
import peers
from conv_report import Row
from timing import Portions, keep_freed_memory

PARTS = {"all": (True, True, True), "grad_input": (True, False, False), "grad_weight": (False, True, False),
         "grad_bias": (False, False, True), "forward": None}  # None: no gradient

# Torch's median over ours, all three gradients, two threads.
TARGETS = {
    "56 3x3": (1.15, 1.6, 100), "28 3x3": (1.05, 1.25, 100), "14 3x3": (1.0, 1.25, 100), "56 1x1": (1.25, 1.8, 100),
    "224 7x7 s2": (2.3, 1.3, 50), "28 depthwise 3x3": (3, 2, 20), "1024 k5": (1.1, 1.3, 50),
    "16x28x28 3x3x3": (1.1, 1.2, 50), "56 3x3 d2": (1.0, 1.0, 20), "56 3x3 g32": (1.0, 1.0, 20),
}
TARGET_DTYPES = ("float32", "bfloat16", "float16")

SLOW_SAMPLES = 5
ZOO = {"patience": 1.0, "slow": 0.1, "least_of_slow": SLOW_SAMPLES}  # bounds of a row


def add_filters(parser, family):
    """The arguments that say what is measured, and where that is kept."""
    parser.add_argument("--family", default=family,
                        help="names from conv_shapes.py, 'all' of them, or 'zoo'; default: %(default)s")
    parser.add_argument("--network", help="of the zoo: those whose name contains one of these texts, commas between")
    parser.add_argument("--batch", type=int, default=4, help="of the zoo; default: %(default)s")
    parser.add_argument("--shape", help="shapes whose name contains this")
    parser.add_argument("--dtype", default="float32", help="names with commas between them; default: %(default)s")
    parser.add_argument("--threads", help="numbers with commas between them; default: all cores")
    parser.add_argument("--layout", default="contiguous", choices=("contiguous", "channels_last"),
                        help="of arguments and results, on both sides; default: %(default)s")
    parser.add_argument("--quick", action="store_true", help=f"{SLOW_SAMPLES} samples of each row of the zoo")
    parser.add_argument("--json", metavar="FILE", help="write all rows there")
    parser.add_argument("--resume", action="store_true", help="add the rows that --json's file does not have yet")
    parser.add_argument("--lock", metavar="FILE", help="measure while holding this file, for a minute at a time")


def completed(options, parser):
    if options.resume and not options.json:
        parser.error("--resume needs --json")
    options.zoo = options.family == "zoo"
    options.network = options.network.split(",") if options.network else None
    return options


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_filters(parser, family="typical")
    parser.add_argument("--part", help=f"of {', '.join(PARTS)}; default: all, and all but grad_bias alone for families")
    parser.add_argument("--peer", default="torch", help="torch, or none; default: %(default)s")
    parser.add_argument("--plot", metavar="FILE.png", help="ratio against work, coloured by kind")
    options = completed(parser.parse_args(), parser)
    options.part = options.part or ("all" if options.zoo else "all,grad_input,grad_weight")
    return options


def layers(options):
    """(family, layer) of each shape that fits the filters."""
    import zoo
    from conv_shapes import FAMILIES
    if options.zoo:
        found = [("zoo", layer) for layer in zoo.collect(options.batch, options.network)]
    else:
        names = list(FAMILIES) if options.family == "all" else options.family.split(",")
        found = [(name, zoo.Layer(case, True, {})) for name in names for case in FAMILIES[name]]
    return [(family, layer) for family, layer in found if not options.shape or options.shape in layer.case.name]


def rows(options):
    """(row without times, layer, mask of gradients) of all that is asked for."""
    import numpy as np
    from conv_kinds import kinds
    threads = [int(n) for n in options.threads.split(",")] if options.threads else [os.cpu_count()]
    chosen = layers(options)
    for dtype in options.dtype.split(","):
        for family, layer in chosen:
            case = layer.case
            for part, count in ((part, count) for part in options.part.split(",") for count in threads):
                mask = PARTS[part] and (*PARTS[part][:2], PARTS[part][2] and layer.bias)
                if mask is None or any(mask):
                    flops = case.flops if mask is None else \
                        case.flops * sum(mask[:2]) + np.prod(case.shapes[0]).item() * mask[2]
                    yield Row(family, case.name, dtype, part, count, flops, None, {}, options.layout,
                              options.batch if options.zoo else None, layer.networks, kinds(case),
                              target=target(family, case.name, dtype, part, count)), layer, mask


def target(family, shape, dtype, part, threads):
    if part == "all" and threads > 1 and family == "typical" and dtype in TARGET_DTYPES:
        return TARGETS[shape][TARGET_DTYPES.index(dtype)]
    return None


class Arrays:
    """The arrays of one layer, checked once and kept while its rows are measured."""

    def __init__(self):
        self.made_for = None

    def of(self, case, dtype, layout, networks, mask, bias):
        from conv_data import check, check_forward, check_large, random_sets
        if mask is None:
            check_forward(case, dtype, layout, bias)
        if self.made_for != (case, dtype):
            if networks and mask is not None:
                check_large(case, dtype, layout, (True, True, bias))
            elif mask is not None:
                check(case, dtype, layout)
            self.made_for, self.sets = (case, dtype), list(random_sets(case, dtype, layout))
        return self.sets


def measure(options, planned, portions):
    """The rows with their times, one after the other."""
    from conv_data import contestants, forward_contestants
    from timing import arithmetic_peak, race

    import infiniop_cy as iop
    arrays, peaks = Arrays(), {}
    for row, layer, mask in planned:
        portions.between_rows()
        sets = arrays.of(layer.case, row.dtype, row.layout, layer.networks, mask, layer.bias)
        if not options.zoo or (row.dtype, row.threads) not in peaks:
            peaks[row.dtype, row.threads] = arithmetic_peak(row.threads, row.dtype)
        row.peak = peaks[row.dtype, row.threads]
        with_torch = "torch" in options.peer
        if with_torch:
            import torch
            torch.set_num_threads(row.threads)
        with iop.threads(row.threads):
            running = list(forward_contestants(layer.case, sets, layer.bias, row.layout, with_torch) if mask is None
                           else contestants(layer.case, sets, mask, row.layout, with_torch))
            row.seconds = race(running, bounds(options))
        row.samples = len(running[0].seconds)
        yield row


def bounds(options, **more):
    from timing import Bounds
    if not options.zoo:
        return Bounds(**more)
    return Bounds(**ZOO, **more, **{"least": SLOW_SAMPLES, "repeats": SLOW_SAMPLES} if options.quick else {})


def read_rows(path, kind=Row):
    """{key: row} of a file that --json wrote, empty where there is none."""
    if not Path(path).exists():
        return {}
    return {row.key: row for row in (kind(**fields) for fields in json.loads(Path(path).read_text())["rows"])}


def main():
    options = arguments()
    keep_freed_memory()
    if not peers.installed("torch"):
        options.peer = ""
    if "torch" in options.peer:
        import torch  # first, so that both libraries share one OpenMP runtime and its threads
        torch.inference_mode().__enter__()
    known = read_rows(options.json) if options.resume else {}
    planned = [(replace(row, networks=layer.networks), layer, mask) for row, layer, mask in rows(options)]
    if not planned:
        raise SystemExit("no row fits these filters")
    print("torch: its median over ours. peak: of the float32 (float64) multiply-adds that the cores do in this run;\n"
          "for bfloat16, of AMX's products where the CPU has them.")
    print(conv_report.columns(options.zoo))
    done = [known[row.key] for row, _, _ in planned if row.key in known]
    missing = [one for one in planned if one[0].key not in known]
    with Portions(options.lock, lambda: save(options, known, done)) as portions:
        for row in measure(options, missing, portions):
            done.append(row)
            print(row if options.zoo and not row.is_behind else f"{row}\n    {row.repro}", flush=True)
    summarize(options, done)


def summarize(options, done):
    conv_report.print_means(done)
    if options.zoo:
        conv_report.print_zoo(done, options.network)
    if options.plot:
        conv_report.plot(done, options.plot)


def save(options, known, done):
    if not options.json:
        return
    from bench import machine
    by_key = known | {row.key: row for row in done}
    with open(options.json, "w") as file:
        json.dump({"date": date.today().isoformat(), "machine": machine(options),
                   "rows": [asdict(row) for row in by_key.values()]}, file, indent=1)


if __name__ == "__main__":
    main()
