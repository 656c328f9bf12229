"""Rows of the convolution benchmark, and what they come to by network and by kind."""
from collections import defaultdict
from dataclasses import dataclass, field
from statistics import quantiles

from report import geometric_mean

BEHIND = (0.97, 0.95)  # torch over ours, below which a layer counts as behind


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
    layout: str = "contiguous"
    batch: int | None = None      # of the zoo; None: the family's own
    networks: dict = field(default_factory=dict)
    kinds: list = field(default_factory=list)
    samples: int = 0
    target: float | None = None

    @property
    def ratio(self):
        return self.seconds["torch"] / self.seconds["ours"] if "torch" in self.seconds else None

    @property
    def key(self):
        return self.family, self.shape, self.dtype, self.part, self.threads, self.layout

    @property
    def repro(self):
        more = f" --batch {self.batch}" if self.batch not in (None, 4) else ""
        more += f" --layout {self.layout}" if self.layout != "contiguous" else ""
        return (f"make bench-conv ARGS=\"--family {self.family} --shape '{self.shape}' --dtype {self.dtype} "
                f"--part {self.part} --threads {self.threads}{more}\"")

    @property
    def is_behind(self):
        return bool(self.networks and self.ratio and self.ratio < BEHIND[0])

    def __str__(self):
        ours = self.seconds["ours"]
        rate = self.flops / ours
        cells = (f"{ours * 1e3:9.3f} {rate / 1e9:7.1f} {f'{rate / self.peak:.0%}' if self.peak else '-':>5} "
                 f"{f'{self.ratio:.2f}' if self.ratio else '-':>7} {self.target or '-':>6}")
        short = "   short of target" if self.target and self.ratio and self.ratio < self.target else ""
        width = 44 if self.networks else 24
        return (f"{self.family:9} {self.shape:{width}} {self.dtype:9} {self.part:11} {self.threads:>3} {cells}{short}"
                + "   behind" * self.is_behind)


def columns(zoo):
    return (f"{'family':9} {'shape':{44 if zoo else 24}} {'dtype':9} {'part':11} {'thr':>3} {'ms':>9} {'GF/s':>7} "
            f"{'peak':>5} {'torch':>7} {'target':>6}")


def print_means(rows):
    groups = defaultdict(list)
    for row in rows:
        if row.ratio:
            groups[row.family, row.dtype, row.part].append(row.ratio)
    print("\nGeometric means of torch / ours:")
    for (family, dtype, part), values in groups.items():
        print(f"    {family:9} {dtype:9} {part:11} {geometric_mean(values):6.2f}   ({len(values)} shapes)")


def print_zoo(rows, wanted=None):
    """Tables by network and by kind of each dtype, part, layout and number of threads."""
    groups = defaultdict(list)
    for row in rows:
        if row.ratio and row.networks:
            groups[row.dtype, row.part, row.layout, row.threads].append(row)
    for (dtype, part, layout, threads), group in groups.items():
        print(f"\n== {dtype}, {part}, {layout}, {threads} threads; torch / ours")
        by_network(group, wanted)
        by_kind(group)


def by_network(rows, wanted=None):
    names = sorted({name for row in rows for name in row.networks if not wanted or any(w in name for w in wanted)})
    print(f"\n{'network':26} {'layers':>6} {'ours, ms':>9} {'torch, ms':>9} {'ratio':>6} {'<0.97':>6} {'<0.95':>6}  "
          "worst layer")
    ratios = []
    for name in names:
        own = [row for row in rows if name in row.networks]
        ours, torch = (sum(row.seconds[who] * row.networks[name] for row in own) for who in ("ours", "torch"))
        ratios.append(torch / ours)
        worst = min(own, key=lambda row: row.ratio)
        print(f"{name:26} {len(own):>6} {ours * 1e3:>9.2f} {torch * 1e3:>9.2f} {torch / ours:>6.2f} "
              f"{behind(own, 0):>6} {behind(own, 1):>6}  {worst.ratio:.2f} {worst.shape}")
    worst = min(rows, key=lambda row: row.ratio)
    print(f"{len(names)} networks: geometric mean {geometric_mean(ratios):.2f}; {len(rows)} distinct layers: geometric "
          f"mean {geometric_mean([row.ratio for row in rows]):.2f}, "
          + ", ".join(f"{behind(rows, i) / len(rows):.0%} below {BEHIND[i]}" for i in range(2))
          + f", worst {worst.ratio:.2f} {worst.shape}")
    few = [row.samples for row in rows if row.samples < 20]
    if few:
        print(f"{len(few)} layers have {min(few)} to {max(few)} samples of each (--quick, or a call takes more than "
              f"0.1 s), the other {len(rows) - len(few)} at least 20")


def behind(rows, which):
    return sum(row.ratio < BEHIND[which] for row in rows)


def by_kind(rows):
    groups = defaultdict(list)
    for row in rows:
        for kind in row.kinds:
            groups[kind].append(row)
    print(f"\n{'kind':34} {'layers':>6} {'mean':>6} {'10 %':>6} {'<0.97':>6} {'<0.95':>6}  worst layer")
    for kind, group in sorted(groups.items()):
        values = [row.ratio for row in group]
        low = quantiles(values, n=10)[0] if len(values) > 1 else values[0]
        worst = min(group, key=lambda row: row.ratio)
        print(f"{kind:34} {len(group):>6} {geometric_mean(values):>6.2f} {low:>6.2f} {behind(group, 0):>6} "
              f"{behind(group, 1):>6}  {worst.ratio:.2f} {worst.shape}")


def plot(rows, path):
    """Ratio against work, a point for each row, coloured by kind."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    groups = defaultdict(list)
    for row in rows:
        if row.ratio:
            groups[row.kinds[0]].append(row)
    figure, axes = plt.subplots(figsize=(13, 8))
    colours = plt.get_cmap("tab20")
    for i, (kind, group) in enumerate(sorted(groups.items())):
        axes.scatter([row.flops for row in group], [row.ratio for row in group], s=16, color=colours(i % 20),
                     marker="o^s"[i // 20], label=f"{kind} ({len(group)})", alpha=0.75, linewidths=0)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.axhline(BEHIND[0], color="grey", linewidth=0.8, linestyle="--")
    first = rows[0]
    axes.set(xscale="log", yscale="log", xlabel="operations of the layer", ylabel="torch / ours",
             title=f"{first.family}: {', '.join(sorted({row.dtype for row in rows}))}, {first.layout}")
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    plt.close(figure)
