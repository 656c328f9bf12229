"""Speed of the elementwise operators beside other libraries and beside memory itself.

    make bench                                             the whole table
    make bench ARGS='--op gelu --dtype bfloat16 --shape 1e6'
    make bench ARGS='--isa avx2'                           both sides held to AVX2
    make bench ARGS='--write'                              docs/performance.md, its picture and benchmarks/results/

Every row is checked before it is timed: a sample against 50 digits, all elements against float64. Then all contestants
run interleaved in this process over the same rotating buffers of random numbers: ours, torch with out= and allocating,
NumPy, jax, and for large rows a triad (out = g + 3 x) with streaming stores as the memory's ceiling.
"""
import argparse
import json
import os
import platform
import sys
from dataclasses import asdict, dataclass, field
from datetime import date
from math import prod

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import peers
from targets import ALLOCATING_FROM, ALLOCATING_TARGET, TARGETS, TRIAD_FROM, TRIAD_TARGET, target

SIZES = (64, 1024, 4096, 10**6, 32 * 10**6)
IMAGES = (32, 64, 56, 56)
NUMPY_UP_TO = 10**6      # elements; beyond, its temporaries take seconds
SERIAL_UP_TO = 32768     # elements that this library leaves to one thread
TRIAD_ABOVE = 10**6      # elements from which a row is measured against memory
SETS = {64: 8, 1024: 8, 4096: 8, 10**6: 4, 32 * 10**6: 2}  # buffers in rotation

# name: (layout of g, of x, of out), and the part of g's axes that are broadcast
LAYOUT_ROWS = {
    "all channels last": (("channels last",) * 3, None),
    "x channels last": (("contiguous", "channels last", "contiguous"), None),
    "x, out channels last": (("contiguous", "channels last", "channels last"), None),
    "x every other": (("contiguous", "every other", "contiguous"), None),
    "x reversed": (("contiguous", "reversed", "contiguous"), None),
    "g inner": (("contiguous",) * 3, (2, 3)),
    "g outer": (("contiguous",) * 3, (0,)),
    "g channel": (("contiguous",) * 3, (0, 2, 3)),
}
LAYOUT_DTYPES = ("float32", "bfloat16")
# Rows of the cases without a target of their own, where nothing else is asked for: they share their loops with those.
FEW_SIZES, FEW_DTYPES = (4096, 10**6), ("float32", "bfloat16")


@dataclass
class Row:
    case: str
    dtype: str
    layout: str
    shape: tuple
    threads: int
    seconds: dict = field(default_factory=dict)  # contestant: median of a call
    target: float | None = None
    isa_forced: bool = False
    operands: int = 3

    @property
    def bytes(self):
        """All operands, each read or written once."""
        width = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}[self.dtype]
        return self.operands * prod(self.shape) * width

    @property
    def repro(self):
        return (f"make bench ARGS=\"--op '{self.case}' --dtype {self.dtype} --layout '{self.layout}' "
                f"--shape {'x'.join(map(str, self.shape))} --threads {self.threads}\"")

    def ratio(self, peer, ours="ours"):
        return self.seconds[peer] / self.seconds[ours] if peer in self.seconds and ours in self.seconds else None

    @property
    def problems(self):
        """Targets that this row misses."""
        missed = []
        if self.target and (self.ratio("torch") or self.target) < self.target:
            missed.append(f"torch {self.ratio('torch'):.2f} < {self.target}")
        contiguous = self.layout == "contiguous" and self.threads > 1 and not self.isa_forced
        allocating = self.ratio("torch new", "ours new")
        if contiguous and allocating and prod(self.shape) >= ALLOCATING_FROM and allocating < ALLOCATING_TARGET:
            missed.append(f"allocating {allocating:.2f} < {ALLOCATING_TARGET}")
        triad = self.ratio("triad")
        if contiguous and triad and self.dtype == "float32" and prod(self.shape) >= TRIAD_FROM and triad < TRIAD_TARGET:
            missed.append(f"triad {triad:.0%} < {TRIAD_TARGET:.0%}")
        return missed


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", help="cases whose name contains this; '...=...)' to the letter")
    parser.add_argument("--dtype", help="names with commas between them")
    parser.add_argument("--layout", help="'contiguous' or a name from LAYOUT_ROWS; default: all")
    parser.add_argument("--shape", help="elements (1e6) or a shape (32x64x56x56), with commas between them")
    parser.add_argument("--threads", help="numbers with commas between them; default: 1 and all cores")
    parser.add_argument("--peer", default="torch,numpy", help="of torch, numpy, jax; default: %(default)s")
    parser.add_argument("--isa", choices=("avx2", "generic"), help="hold this library, and torch for avx2, to it")
    parser.add_argument("--json", metavar="FILE", help="write all rows there")
    parser.add_argument("--plot", metavar="FILE.png", help="ratios and the share of the memory's ceiling")
    parser.add_argument("--write", action="store_true", help="write docs/performance.md, its picture and the JSON")
    return parser.parse_args()


def hold_to(isa):
    """Start again with that instruction set: both libraries read the environment once."""
    wanted = {"INFINIOP_CY_ISA": isa}
    if isa == "avx2":
        wanted |= {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | wanted)


def parse_shape(text):
    return tuple(int(float(n)) for n in text.split("x"))


def selected(names, which):
    return [name for name in names if not which or name in which.split(",")]


def cases(options):
    """The operators with each of their formulas: numbers and flags do not change the speed."""
    from infiniop_cy.testing import CASES
    for case in CASES:
        choices = {p.name for p in case.operator.parameters if p.choices}
        named = str(case) == options.op
        if named or (set(case.parameters) <= choices and (not options.op or options.op in str(case))):
            yield case


def inputs_of(case, g, x):
    """What the case takes of both."""
    return (g, x)[-case.count:]


def check(case, got, g, x):
    """Stop where a result is wrong: a sample by 50 digits, everything by float64."""
    import numpy as np

    from infiniop_cy.testing import result_errors, ulp_of
    from infiniop_cy.testing.reference import NEAR, TOLERANCES
    dtype = got.dtype.name
    g, x = (np.ascontiguousarray(a).ravel() for a in np.broadcast_arrays(g, x))
    got = np.ascontiguousarray(got).ravel()
    sample = np.unique(np.linspace(0, got.size - 1, 100).astype(int))
    worst, text = result_errors(case, dtype, got[sample], *inputs_of(case, g[sample], x[sample]))
    most, absolute = TOLERANCES[dtype]
    most += 1  # that of the derivative; the product with g rounds once more
    if worst > most:
        raise SystemExit(f"wrong result, not timed: {text}")
    step = 1 << 22
    for i in range(0, got.size, step):
        part = slice(i, i + step)
        wide = x[part].astype(float)
        exact = case(*inputs_of(case, g[part].astype(float), wide))
        error = np.abs(got[part].astype(float) - exact)
        near = np.zeros(error.shape, bool)
        for zero in case.operator.zeros:
            near |= np.abs(wide - zero) < NEAR
        allowed = most * ulp_of(exact, dtype)
        allowed[near] = np.maximum(allowed[near], absolute * np.abs(g[part].astype(float)[near]))
        if not (error <= allowed).all():
            at = int(np.argmax(error - allowed))
            raise SystemExit(f"wrong result, not timed: {case} {dtype} at {i + at}: {got[part][at]!r}")


def buffers(dtype, layout, shape, count, seed=1):
    """(g, x, out of ours, out of a peer), several times."""
    import numpy as np

    from infiniop_cy.testing import arrange, dtype_of
    rng = np.random.default_rng(seed)
    (g_layout, x_layout, out_layout), broadcast = LAYOUT_ROWS.get(layout, (("contiguous",) * 3, None))
    g_shape = tuple(1 if broadcast and d in broadcast else n for d, n in enumerate(shape))

    def random(shape):
        return (rng.standard_normal(shape, np.float32) * 2).astype(dtype_of(dtype))
    for _ in range(count):
        empty = np.zeros(shape, dtype_of(dtype))
        yield (arrange(random(g_shape), g_layout), arrange(random(shape), x_layout), arrange(empty, out_layout),
               arrange(empty, out_layout))


def our_statements(case):
    import infiniop_cy as iop
    given = ", ".join(["g", "x"][-case.count:] + [f"{name}={value!r}" for name, value in case.parameters.items()])
    return {"f": getattr(iop, case.operator.name)}, f"f({given}, out=o)", f"f({given})"


def contestants(case, row, sets, wanted, triad):
    from timing import Contestant
    names, with_out, allocating = our_statements(case)
    ours = [{"g": g, "x": x, "o": o} for g, x, o, _ in sets]
    inputs = [{"g": g, "x": x} for g, x, _, _ in sets]
    yield Contestant("ours", with_out, names, ours)
    yield Contestant("ours new", allocating, names, inputs)
    contiguous, size = row.layout == "contiguous", prod(row.shape)
    if "torch" in wanted and row.layout != "x reversed":  # torch has no negative strides
        found = peers.torch_statements(case, row.threads)
        if found:
            names, with_out, allocating = found
            tensors = [{"g": peers.to_torch(g), "x": peers.to_torch(x), "o": peers.to_torch(o)} for g, x, _, o in sets]
            yield Contestant("torch", with_out, names, tensors)
            if contiguous:
                yield Contestant("torch new", allocating, names, [{"g": t["g"], "x": t["x"]} for t in tensors])
    if "numpy" in wanted and size <= NUMPY_UP_TO and (row.threads == 1 or size <= SERIAL_UP_TO):
        found = peers.numpy_statement(case)
        if found:
            yield Contestant("numpy", found[1], found[0], inputs)
    if "jax" in wanted and row.threads > 1 and contiguous and row.dtype != "float64":
        found = peers.jax_statement(case)
        if found:
            yield Contestant("jax", found[1], found[0],
                             [{"g": peers.to_jax(g), "x": peers.to_jax(x)} for g, x, _, _ in sets])
    if triad and size >= TRIAD_ABOVE and contiguous:
        yield Contestant("triad", f"triad(g, x, o, {row.bytes // 12}, {row.threads})", {"triad": triad},
                         [{"g": g.ctypes.data, "x": x.ctypes.data, "o": o.ctypes.data} for g, x, _, o in sets])


def measure(options, rows_of):
    """Rows with their times, one after the other."""
    from timing import race, triad

    import infiniop_cy as iop
    wanted, chosen = options.peer.split(","), list(cases(options))
    for (dtype, layout, shape), threads in rows_of if chosen else ():
        sets = list(buffers(dtype, layout, shape, SETS.get(prod(shape), 3)))
        for case in chosen:
            if case.count == 1 and layout in LAYOUT_ROWS and "x" not in layout.split(",")[0].split():
                continue  # where g lies
            if is_left_out(options, case, dtype, layout, shape):
                continue
            g, x, out, _ = sets[0]
            check(case, case(*inputs_of(case, g, x), out=out), g, x)
            for count in threads:
                row = Row(str(case), dtype, layout, shape, count, isa_forced=bool(options.isa), operands=1 + case.count)
                row.target = target(row.case, dtype, layout, prod(shape), count, options.isa)
                with iop.threads(count):
                    row.seconds = race(list(drop_refusals(contestants(case, row, sets, wanted, triad()))))
                yield row


def is_left_out(options, case, dtype, layout, shape):
    """Whether a row is one of those that the whole table does without."""
    chosen = options.op or options.dtype or options.layout or options.shape
    return not (chosen or str(case) in TARGETS) and (
        layout != "contiguous" or prod(shape) not in FEW_SIZES or dtype not in FEW_DTYPES)


def drop_refusals(found):
    """Not every peer takes every layout and dtype."""
    for one in found:
        try:
            one.once()
        except (RuntimeError, TypeError) as error:
            print(f"    {one.name}: {str(error).splitlines()[0][:90]}")
        else:
            yield one


def plan(options):
    """((dtype, layout, shape), thread counts) of every row."""
    from infiniop_cy.testing import DTYPES
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = [int(n) for n in options.threads.split(",")] if options.threads else sorted({cores, 1}, reverse=True)
    shapes = [parse_shape(text) for text in options.shape.split(",")] if options.shape else None
    for dtype in selected(DTYPES, options.dtype):
        if not options.layout or options.layout == "contiguous":
            for shape in shapes or [(n,) for n in SIZES]:
                serial = prod(shape) <= SERIAL_UP_TO and not options.threads
                yield (dtype, "contiguous", shape), threads[:1] if serial else threads
    for layout in LAYOUT_ROWS if not options.layout else [name for name in LAYOUT_ROWS if name == options.layout]:
        for dtype in selected(DTYPES if options.dtype else LAYOUT_DTYPES, options.dtype):
            for shape in shapes or [IMAGES]:
                if len(shape) == 4:
                    yield (dtype, layout, shape), [max(threads)]


def main():
    options = arguments()
    if options.isa:
        hold_to(options.isa)
    options.peer = ",".join(name for name in options.peer.split(",") if peers.installed(name))
    if "torch" in options.peer:
        import torch  # first, so that both libraries share one OpenMP runtime and its threads
        torch.inference_mode().__enter__()
    import report
    rows = []
    report.print_header()
    for row in measure(options, plan(options)):
        rows.append(row)
        report.print_row(row)
    if not rows:
        raise SystemExit("no row fits these filters")
    report.print_summary(rows)
    record = {"date": date.today().isoformat(), "machine": machine(options), "rows": [asdict(row) for row in rows]}
    if options.json:
        with open(options.json, "w") as file:
            json.dump(record, file, indent=1)
    if options.plot:
        report.plot(rows, options.plot)
    if options.write:
        report.write(rows, record, options.isa)


def machine(options):
    """What the numbers depend on."""
    from infiniop_cy.config import config
    facts = config()
    result = {"cpu": cpu_name(), "cores": os.cpu_count(), "compiler": facts["compiler"], "isa": facts["isa"]["chosen"],
              "infiniop_cy": facts["version"], "python": facts["python"], "numpy": facts["numpy"]}
    if "torch" in options.peer:
        import torch
        result |= {"torch": torch.__version__, "torch isa": torch.backends.cpu.get_cpu_capability()}
    return result


def cpu_name():
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
