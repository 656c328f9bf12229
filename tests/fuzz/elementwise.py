"""Elementwise functions: placed arrays give the bits of contiguous ones on one thread, and those are right."""
import numpy as np

from infiniop_cy.testing import CASES, DTYPES, dtype_of, ulp_of
from infiniop_cy.testing.reference import TOLERANCES

from .memory import Placed, numbers, same


def shape_of(rng):
    if rng.random() < 0.1:
        return (int(rng.integers(30_000, 90_000)),)  # enough for several threads
    return tuple(int(n) for n in rng.choice([0, 1, 1, 2, 3, 5, 8, 17, 33, 70], int(rng.integers(0, 4))))


def check_values(case, dtype, got, g, x):
    """Against float64's own result, where that is finite."""
    with np.errstate(all="ignore"):
        exact = case(g.astype(float), x.astype(float))
        rounded = exact.astype(dtype_of(dtype)).astype(float)
        fine = np.isfinite(exact) & np.isfinite(rounded)
        ulps, near = TOLERANCES[dtype]
        size = np.abs(g.astype(float))
        allowed = (ulps + 1.01) * ulp_of(np.where(fine, exact, 0), dtype) + near * np.where(size < np.inf, size, 0)
        wrong = fine & ~(np.abs(got.astype(float) - exact) <= allowed)
        wrong |= np.isnan(exact) & ~np.isnan(got.astype(float))
    at = np.argwhere(wrong)
    if len(at):
        g, x, got, exact = (a[tuple(at[0])] for a in (g, x, got, exact))
        raise AssertionError(f"g={g!r} x={x!r} gives {got!r}, expected {exact!r}")


def run(rng):
    case, dtype = CASES[rng.integers(len(CASES))], DTYPES[rng.integers(len(DTYPES))]
    shape, accumulate = shape_of(rng), bool(rng.integers(2))
    g, x = (Placed(rng, numbers(rng, shape, dtype), broadcast=True) for _ in range(2))
    try:
        full = np.broadcast_shapes(g.array.shape, x.array.shape)
    except ValueError:
        return
    plain_g, plain_x = (np.array(np.broadcast_to(a.array, full), dtype_of(dtype), order="C") for a in (g, x))
    old = numbers(rng, full, dtype)
    expected = old.copy()
    what = f"{case} {dtype} {full}"
    case(plain_g, plain_x, out=expected, accumulate=accumulate, num_threads=1)
    if not accumulate and full and dtype != "float64" and np.abs(plain_x.astype(float)).max(initial=0) < 12:
        check_values(case, dtype, expected, plain_g, plain_x)
    out = Placed(rng, old, output=True)
    case(g.array, x.array, out=out.array, accumulate=accumulate, num_threads=int(rng.integers(1, 5)))
    same(out.array, expected, what)
    for placed in (g, x):
        placed.check()
    out.check(written=True)
    if not accumulate and rng.random() < 0.3:  # in place, and overlapping as if nothing did
        base = Placed(rng, plain_x, output=True)
        case(plain_g, base.array, out=base.array)
        same(base.array, expected, f"{what} in place")
        base.check(written=True)
