"""Convolutions, forward and gradients, on any algorithm, layout, mask, cut, overlap and threads: small integers are
exactly the reference, any other numbers give the bits of contiguous arrays on one thread, of a batch cut anywhere."""
import os

import numpy as np

import infiniop_cy as iop
from infiniop_cy.core._core import conv_algorithms
from infiniop_cy.testing import DTYPES, dtype_of
from infiniop_cy.testing.conv import make_case, random_geometry, reference_conv_backward, reference_conv_forward

from .memory import Placed, numbers, same

FORCE = "INFINIOP_CY_CONV"
NAMES = ("grad_input", "grad_weight", "grad_bias")


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


def geometry(rng):
    """Mostly small; now and then with outputs past 1 MB, which are stored past the caches."""
    large = rng.random() < 0.02
    return random_geometry(integer(rng), products=(0, 1 << (22 if large else 17)), elements=1 << (20 if large else 15))


def data_of(rng, case, dtype, exact):
    return tuple(make_case(case, dtype, rng)) if exact else tuple(numbers(rng, s, dtype) for s in case.shapes)


def unsigned_zeros(array):
    """A sum of nothing is 0 of either sign."""
    return np.where(array == 0, 0, array).astype(array.dtype)


def run_forward(rng, case, dtype):
    exact = rng.random() < 0.6
    _, x, w = data_of(rng, case, dtype, exact)
    bias = (make_case(case, dtype, rng).grad_output[:1] if exact else numbers(rng, (1, case.cout), dtype))
    bias = np.array(np.resize(bias, case.cout), x.dtype) if rng.random() < 0.7 else None
    force = forced(rng)
    if exact:
        expected = reference_conv_forward(x, w, *case.geometry)
        if bias is not None:
            expected = expected + bias.astype(float).reshape(-1, *(1,) * len(case.size))
        expected = expected.astype(x.dtype)
    else:
        cut = int(rng.integers(0, case.batch + 1))
        expected = np.concatenate([call((part, w, bias), case.keywords, force, iop.conv, num_threads=1)
                                   for part in (x[:cut], x[cut:])])
    placed = [Placed(rng, a) for a in (x, w, bias) if a is not None]
    out = Placed(rng, np.full_like(expected, 77), output=True)
    call([p.array for p in placed], case.keywords, force, iop.conv, out=out.array, num_threads=int(rng.integers(1, 5)))
    for placed_input in placed:
        placed_input.check()
    out.check(written=True)
    same(unsigned_zeros(out.array), unsigned_zeros(expected), f"output of {case!r} {dtype} {force}")


def in_pool(rng, pool, shape, start):
    """(an array of that shape in the pool from there on, its end): contiguous, channels_last, or backwards."""
    size = int(np.prod(shape))
    part = pool[start:start + size]
    if rng.random() < 0.3:
        array = np.moveaxis(part.reshape(shape[0], *shape[2:], shape[1]), -1, 1) if len(shape) > 2 else \
            part.reshape(shape)
    else:
        array = (part[::-1] if rng.random() < 0.2 else part).reshape(shape)
    return array, start + size


def run_overlapping(rng, case, dtype):
    """Outputs that lie anywhere over the inputs: as if they did not."""
    forward = rng.random() < 0.5
    function = iop.conv if forward else iop.conv_backward
    shapes = case.shapes[1:] if forward else case.shapes
    wanted = [case.shapes[0]] if forward else [*case.shapes[1:], (case.cout,)]
    room = sum(int(np.prod(s)) for s in (*shapes, *wanted)) + 64
    pool = make_like(rng, room, dtype)
    inputs = [in_pool(rng, pool, s, int(rng.integers(0, room - int(np.prod(s)))))[0] for s in shapes]
    outs, end = [], 0
    for shape in wanted:  # apart from one another
        out, end = in_pool(rng, pool, shape, end + int(rng.integers(0, 20)))
        outs.append(out)
    given = {} if forward else {"accumulate": bool(rng.integers(2))}
    copies = [a.copy() for a in inputs]
    want = [o.copy() for o in outs]
    function(*copies, **case.keywords, out=want[0] if forward else want, num_threads=1, **given)
    before = pool.copy()
    function(*inputs, **case.keywords, out=outs[0] if forward else outs, num_threads=int(rng.integers(1, 5)), **given)
    for got, expected in zip(outs, want):
        same(got, expected, f"overlapping, {case!r} {dtype} {given}")
        got[...] = 0
    address = pool.ctypes.data
    for out in outs:  # nothing else has changed
        np.ndarray(out.shape, out.dtype, before, out.ctypes.data - address, out.strides)[...] = 0
    assert (pool.view(np.uint8) == before.view(np.uint8)).all(), f"written beside the outputs of {case!r}"


def make_like(rng, count, dtype):
    return np.asarray(rng.integers(-8, 9, count), float).astype(dtype_of(dtype))


def in_two_parts(rng, case, dtype, data, force, mask):
    """The gradients by contiguous arrays on one thread, of float32 and float64 with the batch cut in two."""
    cut = int(rng.integers(0, case.batch + 1))
    if dtype not in ("float32", "float64") or rng.random() < 0.5:
        return call(data, case.keywords, force, output_mask=mask, num_threads=1)
    g, x, w = data
    grads = [np.zeros(s, x.dtype) if m else None for s, m in zip((*case.shapes[1:], (case.cout,)), mask)]
    for i, part in enumerate((slice(0, cut), slice(cut, None))):
        out = [grads[0][part] if mask[0] else None, *grads[1:]]
        if i == 0:
            call((g[part], x[part], w), case.keywords, force, output_mask=mask, out=out, num_threads=1)
        else:
            call((g[part], x[part], w), case.keywords, force, output_mask=mask, out=out, num_threads=1,
                 accumulate=True)
    return grads


def run_backward(rng, case, dtype):
    exact = rng.random() < 0.7
    data, force = data_of(rng, case, dtype, exact), forced(rng)
    mask = [bool(m) for m in rng.integers(0, 2, 3)]
    accumulate = exact and rng.random() < 0.3
    old = [make_like(rng, int(np.prod(s)), dtype).reshape(s) for s in (*case.shapes[1:], (case.cout,))]
    placed, outs = [Placed(rng, a) for a in data], [Placed(rng, a, output=True) for a in old]
    with np.errstate(all="ignore"):
        if exact:
            reference = reference_conv_backward(*data, *case.geometry)
            expected = [(r + (o.astype(float) if accumulate else 0)).astype(dtype_of(dtype))
                        for r, o in zip(reference, old)]
        else:
            expected = in_two_parts(rng, case, dtype, data, force, mask)
        call([p.array for p in placed], case.keywords, force, output_mask=mask, accumulate=accumulate,
             out=[o.array if m else None for o, m in zip(outs, mask)], num_threads=int(rng.integers(1, 5)))
    for placed_input in placed:
        placed_input.check()
    for out, want, wanted, name in zip(outs, expected, mask, NAMES):
        out.check(written=wanted)
        if wanted:
            same(unsigned_zeros(out.array), unsigned_zeros(want), f"{name} of {case!r} {dtype} {force} {mask}")


def run(rng):
    case, dtype = geometry(rng), DTYPES[rng.integers(len(DTYPES))]
    (run_forward, run_forward, run_overlapping, run_backward, run_backward, run_backward)[rng.integers(6)](
        rng, case, dtype)
