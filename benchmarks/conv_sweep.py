"""Every algorithm that accepts a layer, against the one that the list chooses: which takes a shape is to be measured.

    python benchmarks/conv_sweep.py --network resnet50,mobilenet             the layers of the zoo, or of some networks
    python benchmarks/conv_sweep.py --family typical --dtype bfloat16 --json sweep.json
    INFINIOP_CY_ISA=avx2 python benchmarks/conv_sweep.py --quick             of another instruction set

For grad_input and for grad_weight alone, all algorithms run interleaved on the same arrays, outputs given; each is
checked against torch on integers before. One that takes more than HOPELESS times as long as the fastest gets three
samples. Where the choice is more than 5 % behind the fastest, the layer is listed.
"""
import argparse
import json
import os
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field, replace
from datetime import date

import conv
import peers

GRADIENTS = ("grad_input", "grad_weight")
FORCE = "INFINIOP_CY_CONV"
HOPELESS = 2.0
LOST = 1.05  # the choice over the fastest, from which a layer is listed


@dataclass
class Row:
    """One gradient of one layer: seconds of each algorithm that accepts it."""

    shape: str
    dtype: str
    gradient: str
    threads: int
    layout: str
    isa: str
    chosen: str
    networks: dict
    kinds: list
    flops: int
    seconds: dict = field(default_factory=dict)

    @property
    def key(self):
        return self.shape, self.dtype, self.gradient, self.threads, self.layout, self.isa

    @property
    def fastest(self):
        return min(self.seconds, key=self.seconds.get)

    @property
    def factor(self):
        return self.seconds[self.chosen] / self.seconds[self.fastest]

    @property
    def lost(self):
        return self.seconds[self.chosen] - self.seconds[self.fastest]

    def __str__(self):
        others = ", ".join(f"{short(name)} {seconds * 1e3:.3f}" for name, seconds in
                           sorted(self.seconds.items(), key=lambda item: item[1]))
        return (f"{self.factor:5.2f} {self.shape:44} {self.dtype:9} {self.gradient:11} {short(self.chosen):12} "
                f"{others} ms")


def short(name):
    return name.rpartition(":")[2]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    conv.add_filters(parser, family="zoo")
    parser.add_argument("--gradient", default=",".join(GRADIENTS), help="default: %(default)s")
    return conv.completed(parser.parse_args(), parser)


# ---- one layer

def chosen_algorithms(case, dtype):
    """{gradient: name} of the list's choices, when each gradient is asked for with the other."""
    import infiniop_cy as iop
    g, x, w = (iop.TensorDescriptor(shape, dtype) for shape in case.shapes)
    stride, padding, dilation, groups = case.geometry
    with iop.Handle("cpu") as handle, iop.ConvBackwardDescriptor(
            handle, g, x, w, None, [before for before, _ in padding], stride, dilation, groups) as op:
        return {gradient: step["algorithm"] for step in op.plan.facts["steps"] for gradient in step["gradients"]}


class Forced:
    """INFINIOP_CY_CONV set to a name."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        os.environ[FORCE] = self.name

    def __exit__(self, *_):
        del os.environ[FORCE]


def accepting(case, dtype, layout, gradient, mask):
    """The names of the algorithms that compute this gradient, their results checked."""
    from conv_data import check_large

    import infiniop_cy as iop
    from infiniop_cy.core._core import conv_algorithms
    names = []
    for name in conv_algorithms():
        if name.partition(":")[0] == gradient or ":" not in name:
            with Forced(name):
                try:
                    check_large(case, dtype, layout, mask)
                except iop.BadParam as refused:
                    if "names an algorithm that refuses" not in str(refused):
                        raise
                else:
                    names.append(name)
    return names


def contestants(case, sets, mask, names):
    """One for each name; results go where they went before, so that no fresh memory is timed."""
    import numpy as np
    from timing import Contestant

    import infiniop_cy as iop

    class ForcedContestant(Contestant):
        def __post_init__(self):
            super().__post_init__()
            run = self._run

            def forced(*given):
                with Forced(self.name):
                    run(*given)
            self._run = forced
    wanted = 0 if mask[0] else 1
    arrays = [{"g": one.grad_output, "x": one.input, "w": one.weight, "o": np.empty_like(one[1 + wanted])}
              for one in sets]
    geometry = ", ".join(f"{name}={value}" for name, value in case.keywords.items())
    out = "(o, None, None)" if mask[0] else "(None, o, None)"
    statement = f"f(g, x, w, {geometry}, output_mask={mask}, out={out})"
    return [ForcedContestant(name, statement, {"f": iop.conv_backward}, arrays) for name in names]


def measure(options, planned, portions):
    """The rows with their times, one after the other."""
    from conv_data import random_sets
    from timing import race

    import infiniop_cy as iop
    made_for, sets = None, None
    for row, case, mask in planned:
        portions.between_rows()
        names = accepting(case, row.dtype, row.layout, row.gradient, mask)
        if made_for != (case, row.dtype):
            made_for, sets = (case, row.dtype), list(random_sets(case, row.dtype, row.layout))
        with iop.threads(row.threads):
            row.seconds = race(contestants(case, sets, mask, names), conv.bounds(options, hopeless=HOPELESS))
        yield row


def rows(options):
    """(row without times, case, mask of gradients) of all that is asked for."""
    from conv_kinds import kinds

    from infiniop_cy.core._core import build_info
    threads = int(options.threads) if options.threads else os.cpu_count()
    isa, chosen = build_info()["isa"], conv.layers(options)
    for dtype in options.dtype.split(","):
        for case, networks in distinct(chosen):
            choices = chosen_algorithms(case, dtype)
            for gradient in options.gradient.split(","):
                yield Row(case.name, dtype, gradient, threads, options.layout, isa, choices[gradient], networks,
                          kinds(case), case.flops), case, tuple(gradient == name for name in (*GRADIENTS, "grad_bias"))


def distinct(layers):
    """(case, networks), once for what differs in its bias alone."""
    found = {}
    for _, layer in layers:
        case = replace(layer.case, name=layer.case.name.removesuffix(" bias"))
        networks = found.setdefault(case, Counter())
        networks.update(layer.networks)
    return [(case, dict(networks)) for case, networks in found.items()]


# ---- all of them

def print_summary(done):
    groups = defaultdict(list)
    for row in done:
        groups[row.dtype, row.gradient, row.layout, row.isa].append(row)
    for (dtype, gradient, layout, isa), group in groups.items():
        total, lost = sum(row.seconds[row.chosen] for row in group), sum(row.lost for row in group)
        behind = sorted((row for row in group if row.factor > LOST), key=lambda row: -row.factor)
        print(f"\n== {gradient}, {dtype}, {layout}, {isa}: the choice is behind the fastest by more than "
              f"{LOST - 1:.0%} in {len(behind)} of {len(group)} layers; {lost * 1e3:.1f} of {total * 1e3:.1f} ms lost")
        for row in behind:
            print(row)
        print(f"\n{'algorithm':24} {'accepts':>8} {'chosen':>8} {'fastest':>8} {'both':>8} {'lost, ms':>9}")
        for name in sorted({name for row in group for name in row.seconds}):
            mine = [row for row in group if row.chosen == name]
            print(f"{name:24} {sum(name in row.seconds for row in group):>8} {len(mine):>8} "
                  f"{sum(row.fastest == name for row in group):>8} {sum(row.fastest == name for row in mine):>8} "
                  f"{sum(row.lost for row in mine) * 1e3:>9.2f}")


def main():
    options = arguments()
    if not peers.installed("torch"):
        raise SystemExit("torch is needed: results are checked against it")
    import torch  # first, so that both libraries share one OpenMP runtime and its threads
    from timing import Portions
    torch.inference_mode().__enter__()
    known = conv.read_rows(options.json, Row) if options.resume else {}
    planned = list(rows(options))
    if not planned:
        raise SystemExit("no row fits these filters")
    done = [known[row.key] for row, _, _ in planned if row.key in known]

    def save():
        if options.json:
            with open(options.json, "w") as file:
                json.dump({"date": date.today().isoformat(), "rows": [
                    asdict(row) for row in (known | {row.key: row for row in done}).values()]}, file, indent=1)
    with Portions(options.lock, save) as portions:
        for row in measure(options, [one for one in planned if one[0].key not in known], portions):
            done.append(row)
            print(row, flush=True)
    print_summary(done)


if __name__ == "__main__":
    main()
