"""The pictures of the operators: curves, and errors in ulp against x. They are read on white and on black."""
import matplotlib

matplotlib.use("Agg")
import numpy as np
from matplotlib import pyplot

import infiniop_cy as iop
from infiniop_cy.testing import DTYPES

INK, OURS, THEIRS = "#808080", "#2f83d6", "#e0762a"
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "infiniop_cy", "font.family": "sans-serif", "font.size": 9,
         "text.color": INK, "axes.edgecolor": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK,
         "axes.spines.top": False, "axes.spines.right": False, "grid.color": INK, "grid.alpha": 0.25,
         "legend.frameon": False, "figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none"}
LEAST, MOST = 0.1, 1e10  # of the errors shown


def save(figure, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def draw_curves(path, row):
    """A function and its derivative on [-6, 6]."""
    x = np.linspace(-6, 6, 601)
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(6, 2.6), layout="constrained")
        axes.plot(x, getattr(iop, row.name)(x), color=OURS, label=row.name)
        axes.plot(x, getattr(iop, f"{row.name}_backward")(np.ones_like(x), x), color=THEIRS, label="derivative")
        axes.set(xlabel="x", xlim=(-6, 6))
        axes.grid(True)
        axes.legend()
        save(figure, path)


def steps(errors):
    """What is drawn of errors by bin: cut off at both ends, a gap where there are none."""
    return np.array([np.nan if e is None else min(max(float(e), LEAST), MOST) for e in errors])


def draw_panel(axes, atlas, found):
    middles = np.linspace(-1, 1, 2 * atlas["bins"] + 1)[1::2] * np.arcsinh(atlas["end"])
    for whose, color in (("torch", THEIRS), ("infiniop_cy", OURS)):
        if whose in found:
            axes.step(middles, steps(found[whose]), where="mid", color=color, linewidth=1.2, label=whose)
    ticks = np.array([-1000, -100, -10, -1, 0, 1, 10, 100, 1000])
    axes.set(yscale="log", ylim=(LEAST, MOST), yticks=[1, 1e3, 1e6, 1e9], xlim=(middles[0], middles[-1]))
    axes.set_xticks(np.arcsinh(ticks), [f"{t:g}" if abs(t) in (0, 10, 1000) else "" for t in ticks])
    axes.minorticks_off()
    axes.grid(True)
    if all(max(float(e) for e in errors if e is not None) == 0 for errors in found.values()):
        axes.text(0.5, 0.5, "exact", transform=axes.transAxes, ha="center", va="center")


def draw_errors(path, atlas, cases):
    """Small multiples: a row for each function, a column for each dtype."""
    if not cases:
        return
    with pyplot.rc_context(STYLE):
        figure, grid = pyplot.subplots(len(cases), len(DTYPES), figsize=(8.4, 0.5 + 1.35 * len(cases)), squeeze=False,
                                       sharex=True, sharey=True, layout="constrained")
        for line, case in zip(grid, cases):
            for axes, dtype in zip(line, DTYPES):
                draw_panel(axes, atlas, atlas["cases"][case][dtype])
            line[0].set_ylabel(case.replace("(", "\n(").replace("_backward", "'"))
        for axes, dtype in zip(grid[0], DTYPES):
            axes.set_title(dtype, fontsize=9)
        figure.supxlabel("x", fontsize=9)
        figure.supylabel("worst error in ulp", fontsize=9)
        handles, labels = grid[0][0].get_legend_handles_labels()
        figure.legend(handles[::-1], labels[::-1], loc="outside upper right", ncols=2)
        save(figure, path)
