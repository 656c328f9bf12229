"""Elementwise functions: placed arrays give the bits of contiguous ones on one thread, and those are right."""
import numpy as np

from infiniop_cy.testing import CASES, DTYPES, dtype_of, ulp_of
from infiniop_cy.testing.reference import TOLERANCES

from .memory import Placed, numbers, same


def shape_of(rng):
    if rng.random() < 0.1:
        return (int(rng.integers(30_000, 90_000)),)  # enough for several threads
    return tuple(int(n) for n in rng.choice([0, 1, 1, 2, 3, 5, 8, 17, 33, 70], int(rng.integers(0, 4))))


def check_values(case, dtype, got, *inputs):
    """Against float64's own result, where that is finite."""
    with np.errstate(all="ignore"):
        exact = case(*(a.astype(float) for a in inputs))
        rounded = exact.astype(dtype_of(dtype)).astype(float)
        fine = np.isfinite(exact) & np.isfinite(rounded)
        ulps, near = TOLERANCES[dtype]
        size = np.abs(inputs[0].astype(float)) if case.operator.backward else np.ones(got.shape)
        allowed = (ulps + 1.01) * ulp_of(np.where(fine, exact, 0), dtype) + near * np.where(size < np.inf, size, 0)
        wrong = fine & ~(np.abs(got.astype(float) - exact) <= allowed)
        wrong |= np.isnan(exact) & ~np.isnan(got.astype(float))
    at = np.argwhere(wrong)
    if len(at):
        *values, got, exact = (a[tuple(at[0])] for a in (*inputs, got, exact))
        raise AssertionError(f"{values!r} gives {got!r}, expected {exact!r}")


def run(rng):
    case, dtype = CASES[rng.integers(len(CASES))], DTYPES[rng.integers(len(DTYPES))]
    shape = shape_of(rng)
    given = {"accumulate": True} if case.operator.backward and rng.integers(2) else {}
    # One input has no shape to be broadcast to.
    placed = [Placed(rng, numbers(rng, shape, dtype), broadcast=case.count > 1) for _ in range(case.count)]
    try:
        full = np.broadcast_shapes(*(p.array.shape for p in placed))
    except ValueError:
        return
    plain = [np.array(np.broadcast_to(p.array, full), dtype_of(dtype), order="C") for p in placed]
    old = numbers(rng, full, dtype)
    expected = old.copy()
    what = f"{case} {dtype} {full}"
    case(*plain, out=expected, num_threads=1, **given)
    if not given and full and dtype != "float64" and np.abs(plain[-1].astype(float)).max(initial=0) < 12:
        check_values(case, dtype, expected, *plain)
    out = Placed(rng, old, output=True)
    case(*(p.array for p in placed), out=out.array, num_threads=int(rng.integers(1, 5)), **given)
    same(out.array, expected, what)
    for p in placed:
        p.check()
    out.check(written=True)
    if not given and rng.random() < 0.3:  # in place, and overlapping as if nothing did
        base = Placed(rng, plain[-1], output=True)
        case(*plain[:-1], base.array, out=base.array)
        same(base.array, expected, f"{what} in place")
        base.check(written=True)
