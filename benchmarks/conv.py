"""Speed of conv_backward beside torch (oneDNN) and beside the arithmetic that the cores can do.

    make bench-conv                                              the shapes that have targets
    make bench-conv ARGS='--family resnet50 --dtype float32'     whole networks, with their geometric means
    make bench-conv ARGS="--shape '56 3x3' --dtype float32,bfloat16 --part all,grad_input"

Every row is checked before it is timed: on small integers, whose every partial sum is exact, the results are those of
float64, rounded once. Then all contestants run interleaved in this process on normally distributed numbers.
"""
import argparse
import json
import os
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from datetime import date

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import peers

PARTS = {"all": (True, True, True), "grad_input": (True, False, False), "grad_weight": (False, True, False),
         "grad_bias": (False, False, True)}
SETS = 2  # buffers in rotation
COLUMNS = (f"{'family':9} {'shape':24} {'dtype':9} {'part':11} {'thr':>3} {'ms':>9} {'GF/s':>7} {'peak':>5} "
           f"{'torch':>7} {'target':>6}")

# Torch's median over ours, all three gradients, two threads.
TARGETS = {
    "56 3x3": (1.15, 1.6, 100), "28 3x3": (1.05, 1.25, 100), "14 3x3": (1.0, 1.25, 100), "56 1x1": (1.25, 1.8, 100),
    "224 7x7 s2": (2.3, 1.3, 50), "28 depthwise 3x3": (3, 2, 20), "1024 k5": (1.1, 1.3, 50),
    "16x28x28 3x3x3": (1.1, 1.2, 50), "56 3x3 d2": (1.0, 1.0, 20), "56 3x3 g32": (1.0, 1.0, 20),
}
TARGET_DTYPES = ("float32", "bfloat16", "float16")


@dataclass
class Row:
    family: str
    shape: str
    dtype: str
    part: str
    threads: int
    flops: int
    peak: float | None  # flops per second that the cores reached in this run, in the type computed in
    seconds: dict = field(default_factory=dict)

    @property
    def target(self):
        if self.part == "all" and self.threads > 1 and self.family == "typical" and self.dtype in TARGET_DTYPES:
            return TARGETS[self.shape][TARGET_DTYPES.index(self.dtype)]
        return None

    @property
    def ratio(self):
        return self.seconds["torch"] / self.seconds["ours"] if "torch" in self.seconds else None

    @property
    def repro(self):
        return (f"make bench-conv ARGS=\"--family {self.family} --shape '{self.shape}' --dtype {self.dtype} "
                f"--part {self.part} --threads {self.threads}\"")

    def __str__(self):
        ours = self.seconds["ours"]
        rate = self.flops / ours
        cells = (f"{ours * 1e3:9.3f} {rate / 1e9:7.1f} {f'{rate / self.peak:.0%}' if self.peak else '-':>5} "
                 f"{f'{self.ratio:.2f}' if self.ratio else '-':>7} {self.target or '-':>6}")
        short = "   short of target" if self.target and self.ratio and self.ratio < self.target else ""
        return f"{self.family:9} {self.shape:24} {self.dtype:9} {self.part:11} {self.threads:>3} {cells}{short}"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", default="typical", help="names from conv_shapes.py, or 'all'; default: %(default)s")
    parser.add_argument("--shape", help="shapes whose name contains this")
    parser.add_argument("--dtype", default="float32", help="names with commas between them; default: %(default)s")
    parser.add_argument("--part", default="all,grad_input,grad_weight", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--threads", help="numbers with commas between them; default: all cores")
    parser.add_argument("--peer", default="torch", help="torch, or none; default: %(default)s")
    parser.add_argument("--json", metavar="FILE", help="write all rows there")
    return parser.parse_args()


def check(case, dtype):
    """Stop where a result is wrong."""
    import numpy as np

    import infiniop_cy as iop
    from infiniop_cy.testing.conv import make_case, reference_conv_backward
    data = make_case(case, dtype, np.random.default_rng(5))
    got = iop.conv_backward(*data, **case.keywords)
    for name, ours, exact in zip(got._fields, got, reference_conv_backward(*data, *case.geometry)):
        if not np.array_equal(ours, exact.astype(ours.dtype)):
            raise SystemExit(f"wrong result, not timed: {name} of {case} {dtype}")


def contestants(case, data, mask, with_torch):
    from timing import Contestant

    import infiniop_cy as iop
    geometry = ", ".join(f"{name}={value}" for name, value in case.keywords.items())
    sets = [{"g": g, "x": x, "w": w} for g, x, w in data]
    yield Contestant("ours", f"f(g, x, w, {geometry}, output_mask={mask})", {"f": iop.conv_backward}, sets)
    stride, padding, dilation, groups = case.geometry
    if with_torch and all(before == after for before, after in padding):
        import torch
        call = (f"f(g, x, w, [{case.cout}], {stride}, {tuple(p for p, _ in padding)}, {dilation}, False, "
                f"{(0,) * len(stride)}, {groups}, {list(mask)})")
        yield Contestant("torch", call, {"f": torch.ops.aten.convolution_backward.default},
                         [{name: peers.to_torch(array) for name, array in one.items()} for one in sets])


def measure(options):
    import numpy as np
    from conv_shapes import FAMILIES
    from timing import arithmetic_peak, race

    import infiniop_cy as iop
    from infiniop_cy.testing.conv import make_case
    families = list(FAMILIES) if options.family == "all" else options.family.split(",")
    threads = [int(n) for n in options.threads.split(",")] if options.threads else [os.cpu_count()]
    rng = np.random.default_rng(1)
    for family, dtype in ((family, dtype) for family in families for dtype in options.dtype.split(",")):
        for case in FAMILIES[family]:
            if options.shape and options.shape not in case.name:
                continue
            check(case, dtype)
            data = [make_case(case, dtype, rng, integers=False) for _ in range(SETS)]
            for part, count in ((part, count) for part in options.part.split(",") for count in threads):
                flops = case.flops * sum(PARTS[part][:2]) + np.prod(case.shapes[0]).item() * PARTS[part][2]
                row = Row(family, case.name, dtype, part, count, flops, arithmetic_peak(count, dtype))
                with_torch = "torch" in options.peer
                if with_torch:
                    import torch
                    torch.set_num_threads(count)
                with iop.threads(count):
                    row.seconds = race(list(contestants(case, data, PARTS[part], with_torch)))
                yield row


def main():
    options = arguments()
    if not peers.installed("torch"):
        options.peer = ""
    if "torch" in options.peer:
        import torch  # first, so that both libraries share one OpenMP runtime and its threads
        torch.inference_mode().__enter__()
    from bench import machine
    from report import geometric_mean
    print("torch: its median over ours. peak: of the float32 (float64) multiply-adds that the cores do in this run;\n"
          "for bfloat16, of AMX's products where the CPU has them.")
    print(COLUMNS)
    rows, ratios = [], defaultdict(list)
    for row in measure(options):
        rows.append(row)
        print(f"{row}\n    {row.repro}", flush=True)
        if row.ratio:
            ratios[row.family, row.dtype, row.part].append(row.ratio)
    if not rows:
        raise SystemExit("no row fits these filters")
    print("\nGeometric means of torch / ours:")
    for (family, dtype, part), values in ratios.items():
        print(f"    {family:9} {dtype:9} {part:11} {geometric_mean(values):6.2f}   ({len(values)} shapes)")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"date": date.today().isoformat(), "machine": machine(options),
                       "rows": [asdict(row) for row in rows]}, file, indent=1)


if __name__ == "__main__":
    main()
