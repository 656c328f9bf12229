"""Measure the error of each operator against x, beside torch where it is installed, and write docs/accuracy.json, which
the documentation draws.

    .venv/bin/python tools/accuracy_atlas.py              all operators; a minute
    .venv/bin/python tools/accuracy_atlas.py --op silu    that one, the others' rows stay

float16 and bfloat16: all 65,536 numbers. float32: a sample, judged by this library's float64 kernels. float64: a
smaller one, judged by 50 digits. The gradients' grad_output is 1, so that they are the derivatives.
"""
import argparse
import importlib.metadata
import importlib.util
import json
import pathlib
from types import SimpleNamespace

import numpy as np

from infiniop_cy.check import presets, reference
from infiniop_cy.config import config
from infiniop_cy.operators import ROWS
from infiniop_cy.testing import CASES, DTYPES, dtype_of, every_value, ulp_error, ulp_of

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs/accuracy.json"
BINS, END = 96, 1000.0  # of equal width in asinh(x); the outermost two hold all that is farther out
PER_BIN = {"float32": 32, "float64": 3}


def edges():
    return np.sinh(np.linspace(-np.arcsinh(END), np.arcsinh(END), BINS + 1))


def bin_of(x):
    return np.clip(np.searchsorted(edges(), x, side="right") - 1, 0, BINS - 1)


def sample(dtype, rng):
    """Finite numbers of that type, in each of the bins; around 0 down to subnormal ones."""
    if dtype in ("float16", "bfloat16"):
        x = every_value(dtype)
        return x[np.isfinite(x.astype(np.float64))]
    end, count = np.arcsinh(END), BINS * PER_BIN[dtype]
    tiny = np.exp(rng.uniform(np.log(np.finfo(dtype).smallest_subnormal), 0, count // 8))
    x = np.concatenate([np.sinh((rng.random(count) + np.arange(count)) * (2 * end / count) - end), tiny, -tiny])
    return x.astype(dtype_of(dtype))


def ulps(case, dtype, got, g, x):
    """Errors of `got` in ulp; inf for a NaN or inf where there should be none."""
    if dtype != "float64":
        return ulp_error(got, reference.kernel(case, g, x))
    high, low = reference.exact_pair(case, g, x)
    error = np.abs(got - high - low) / ulp_of(high, dtype)
    return np.where(np.isnan(error), np.inf, error)


def of_torch(candidate, case, g, x):
    """What torch computes; None where it has no such function or dtype."""
    if candidate is None or candidate.offers(case.operator.name, case.parameters):
        return None
    call = SimpleNamespace(operator=case.operator.name, parameters=case.parameters, threads=None, into=False)
    inputs = {"grad_output": g, "input": x} if case.operator.backward else {"input": x}
    try:
        return candidate.call(call, inputs, {})["grad_input"]
    except (RuntimeError, NotImplementedError):
        return None


def worst_by_bin(x, errors):
    """Two digits of the largest error in each bin, None where there is none, "inf" as such."""
    worst = np.full(BINS, -1.0)
    np.maximum.at(worst, bin_of(x.astype(np.float64)), errors)
    return [None if w < 0 else "inf" if np.isinf(w) else float(f"{w:.2g}") for w in worst]


def measure(case, candidate):
    """{dtype: {whose: worst errors}}."""
    found = {}
    for dtype in DTYPES:
        x = sample(dtype, np.random.default_rng(0))
        g = np.ones_like(x)
        results = {"infiniop_cy": case(*(g, x)[-case.count:]), "torch": of_torch(candidate, case, g, x)}
        found[dtype] = {whose: worst_by_bin(x, ulps(case, dtype, got, g, x))
                        for whose, got in results.items() if got is not None}
    return found


def drawn(case):
    """Whether it has a picture: the defaults, and other formulas, but not other numbers."""
    return all(p.choices for p in case.operator.parameters if p.name in case.parameters)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", choices=[row.name for row in ROWS], help="this operator alone")
    options = parser.parse_args()
    candidate = presets.Torch() if importlib.util.find_spec("torch") else None
    old = json.loads(PAGE.read_text())["cases"] if options.op else {}
    with np.errstate(all="ignore"):
        new = {str(case): measure(case, candidate) for case in CASES
               if drawn(case) and options.op in (None, case.operator.row.name)}
    about = {"instruction set": config()["isa"]["chosen"], "NumPy": np.__version__,
             "torch": importlib.metadata.version("torch") if candidate else None}
    cases = ",\n".join(f"{json.dumps(name)}: {json.dumps(found, separators=(',', ':'))}"
                       for name, found in (old | new).items())
    PAGE.write_text(f'{{"about": {json.dumps(about)},\n"bins": {BINS}, "end": {END},\n"cases": {{\n{cases}\n}}}}\n')


if __name__ == "__main__":
    main()
