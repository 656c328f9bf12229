"""Convolutions: small integers on any algorithm, layout, mask, cut and threads are exactly the reference."""
import os

import numpy as np

import infiniop_cy as iop
from infiniop_cy.core._core import conv_algorithms
from infiniop_cy.testing import DTYPES, dtype_of
from infiniop_cy.testing.conv import make_case, random_geometry, reference_conv_backward, reference_conv_forward

from .memory import Placed, numbers, same

FORCE = "INFINIOP_CY_CONV"


def forced(rng):
    """An algorithm for each gradient, or none."""
    if rng.random() < 0.5:
        return ""
    return ",".join(rng.permutation(conv_algorithms())[:2])


def call(data, keywords, force, function=iop.conv_backward, **more):
    """The results; with the library's own choice where the forced algorithms refuse."""
    try:
        os.environ[FORCE] = force
        return function(*data, **keywords, **more)
    except iop.BadParam as error:
        if FORCE not in str(error):
            raise
        os.environ.pop(FORCE)
        return function(*data, **keywords, **more)
    finally:
        os.environ.pop(FORCE, None)


def integer(rng):
    return lambda low, high: int(rng.integers(low, high + 1))


def run_forward(rng, case, dtype):
    _, x, w = make_case(case, dtype, rng)
    bias = np.asarray(rng.integers(-8, 9, case.cout), float).astype(dtype_of(dtype))
    force = forced(rng)
    expected = reference_conv_forward(x, w, *case.geometry) + bias.astype(float).reshape(-1, *(1,) * len(case.size))
    placed, out = [Placed(rng, a) for a in (x, w, bias)], Placed(rng, expected.astype(x.dtype), output=True)
    call([p.array for p in placed], case.keywords, force, iop.conv, out=out.array, num_threads=int(rng.integers(1, 5)))
    for placed_input in placed:
        placed_input.check()
    out.check(written=True)
    same(out.array, expected.astype(x.dtype), f"output of {case!r} {dtype} {force}")


def run(rng):
    case = random_geometry(integer(rng), products=(0, 1 << 17), elements=1 << 15)
    dtype = DTYPES[rng.integers(len(DTYPES))]
    if rng.random() < 0.3:
        run_forward(rng, case, dtype)
        return
    exact = rng.random() < 0.7
    data = make_case(case, dtype, rng) if exact else [numbers(rng, s, dtype) for s in case.shapes]
    force = forced(rng)
    mask = [bool(m) for m in rng.integers(0, 2, 3)]
    accumulate = exact and rng.random() < 0.3
    shapes = (*case.shapes[1:], (case.cout,))
    old = [np.asarray(rng.integers(-8, 9, s), float).astype(dtype_of(dtype)) for s in shapes]
    what = f"{case!r} {dtype} {force} {mask}"
    placed, outs = [Placed(rng, a) for a in data], [Placed(rng, a, output=True) for a in old]
    if exact:
        reference = reference_conv_backward(*data, *case.geometry)
        expected = [(r + (o.astype(float) if accumulate else 0)).astype(dtype_of(dtype))
                    for r, o in zip(reference, old)]
    else:
        expected = call(data, case.keywords, force, output_mask=mask, num_threads=1)
    with np.errstate(all="ignore"):
        call([p.array for p in placed], case.keywords, force, output_mask=mask, accumulate=accumulate,
             out=[o.array if m else None for o, m in zip(outs, mask)], num_threads=int(rng.integers(1, 5)))
    for placed_input in placed:
        placed_input.check()
    for out, want, wanted, name in zip(outs, expected, mask, ("grad_input", "grad_weight", "grad_bias")):
        out.check(written=wanted)
        if wanted:
            # a sum of nothing is 0 of either sign
            same(np.where(out.array == 0, 0, out.array).astype(out.array.dtype),
                 np.where(want == 0, 0, want).astype(want.dtype), f"{name} of {what}")
