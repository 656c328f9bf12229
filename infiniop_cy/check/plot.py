"""Error in ulp against x: the candidate above, torch (or this library) below, each dtype in its colour."""
import importlib.util

import numpy as np

from infiniop_cy.check import inputs, reference
from infiniop_cy.check.calls import CannotRun
from infiniop_cy.check.candidates import Spec
from infiniop_cy.check.session import Session
from infiniop_cy.check.standards import Ulp
from infiniop_cy.check.tally import classify

POINTS = 20_000
SPAN = 12.0


def _points(dtype):
    if dtype in ("float16", "bfloat16"):
        x = inputs.every_value(dtype)
        with np.errstate(invalid="ignore"):  # of signalling NaN
            return x[np.abs(x.astype(np.float64)) <= SPAN]
    return np.linspace(-SPAN, SPAN, 300 if dtype == "float64" else POINTS).astype(dtype)


def _errors(session, result):
    """(x, error in ulp) of one subject, sorted by x."""
    x = _points(result.dtype)
    g, case = np.ones_like(x), result.subject.case
    reply = session.elementwise(case, g, x)
    if not reply.ok or reply.results["grad_input"] is None:
        return None
    high, low = reference.exact_pair(case, g, x) if result.dtype == "float64" else (reference.kernel(case, g, x), 0.0)
    errors, _, _ = classify(case, result.dtype, g, x, reply.results["grad_input"], high, low,
                            reference.kernel(case, np.float64(1), x), Ulp(None))
    order = np.argsort(errors.x)
    return errors.x[order], errors.ulps[order]


def has_torch():
    return importlib.util.find_spec("torch") is not None


def draw(path, spec, results, timeout):
    """Write the picture of all elementwise subjects of a run to `path`. Raises CannotRun where there are none."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    drawn = [r for r in results if r.subject is not None and r.subject.case is not None]
    titles = list(dict.fromkeys(r.title for r in drawn))
    if not titles:
        raise CannotRun("--plot draws elementwise operators, and none was checked")
    other = Spec("preset", "torch" if has_torch() and spec.target != "torch" else "infiniop_cy")
    figure, axes = pyplot.subplots(2, len(titles), figsize=(6 * len(titles), 7), squeeze=False, sharex=True,
                                   sharey=True)
    for row, which in enumerate((spec, other)):
        with Session(which, timeout) as session:
            for column, title in enumerate(titles):
                _panel(axes[row][column], session, [r for r in drawn if r.title == title], f"{title}: {which}")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _panel(axis, session, results, title):
    for result in results:
        if session.worker.offers(result.operator, result.parameters):
            continue
        found = _errors(session, result)
        if found is not None:
            axis.plot(found[0], np.maximum(found[1], 1e-2), ".", markersize=1.5, label=result.dtype)
    axis.set(title=title, xlabel="x", ylabel="error in ulp", yscale="log")
    axis.axhline(1, color="grey", linewidth=0.5)
    if axis.get_legend_handles_labels()[1]:
        axis.legend(markerscale=6, loc="upper right")
