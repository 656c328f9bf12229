"""Mistakes: a call that is refused says so by an error of the library, and has written nothing."""
import numpy as np

import infiniop_cy as iop
from infiniop_cy.testing import CASES

from .memory import Placed, numbers

DTYPES = ("float16", "float32", "float64", "int32", "bool", "complex64")


def odd_value(rng):
    return [None, -1, 0, 2**31, 2**63 - 1, 2**63, -2**63, 1.5, "2", (1,), (), (1, 2, 3, 4), np.nan, True,
            [0], {}][rng.integers(16)]


def odd_array(rng):
    dtype = DTYPES[rng.integers(len(DTYPES))]
    shape = tuple(int(n) for n in rng.integers(0, 4, int(rng.integers(0, 6))))
    values = numbers(rng, shape, "float32", special=False)
    return Placed(rng, values.astype(dtype), output=True)


def guarded(call, placed):
    """The call, refused or not; of what is refused no byte changes."""
    try:
        with np.errstate(all="ignore"):
            call()
    except (iop.InfiniopError, TypeError):
        for one in placed:
            one.check()
    except (MemoryError, OverflowError):
        pass
    else:
        for one in placed[:-1]:
            one.check(written=True)


def run(rng):
    placed = [odd_array(rng) for _ in range(int(rng.integers(2, 7)))]
    arrays = [p.array for p in placed]
    if rng.random() < 0.5:
        case = CASES[rng.integers(len(CASES))]
        given = {name: odd_value(rng) for name in ("num_threads", "device") if rng.random() < 0.2}
        if rng.random() < 0.5:
            given["out"] = arrays[-1]
            given["accumulate"] = bool(rng.integers(2))
        guarded(lambda: case(*arrays[:case.count], **given), placed)
        return
    given = {name: odd_value(rng) for name in ("stride", "padding", "dilation", "groups", "num_threads")
             if rng.random() < 0.3}
    if rng.random() < 0.4:
        if rng.random() < 0.5:
            given["out"] = arrays[-1]
        guarded(lambda: iop.conv(*arrays[:min(3, len(arrays) - 1)], **given), placed)
        return
    if rng.random() < 0.3:
        given["output_mask"] = odd_value(rng)
    if rng.random() < 0.5:
        given["out"] = tuple(arrays[3:6])
    guarded(lambda: iop.conv_backward(*arrays[:2], arrays[min(2, len(arrays) - 1)], **given), placed)
