"""Arrays in hostile places: any strides, offsets and gaps, broadcast, misaligned, byte-swapped, with guards around."""
import numpy as np

from infiniop_cy.testing import dtype_of

GUARD = 0xA5
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 6e-8, 1e-310, 65504.0, 3e38, -1e308, 1.0, -1.0)


def numbers(rng, shape, dtype, special=True):
    """Normal numbers of one random magnitude; now and then a few or many of SPECIAL."""
    with np.errstate(over="ignore"):
        array = np.asarray(rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 3)).astype(dtype_of(dtype))
        if special and rng.random() < 0.4 and array.size:
            where = rng.random(shape) < rng.choice([0.01, 0.2, 1])
            array[where] = rng.choice(SPECIAL, int(where.sum())).astype(dtype_of(dtype))
    return array


class Placed:
    """`values` somewhere in guarded bytes, as `.array`. output: where a call may write: aligned, in native order."""

    def __init__(self, rng, values, output=False, broadcast=False):
        item, ndim = values.itemsize, values.ndim
        dtype = values.dtype
        if not output and dtype.name != "bfloat16" and rng.random() < 0.05:
            dtype = dtype.newbyteorder()
        still = [broadcast and n > 0 and rng.random() < 0.3 for n in values.shape]  # axes of stride 0
        values = values[tuple(slice(0, 1) if s else slice(None) for s in still)]
        strides, reach = [0] * ndim, item
        layout = rng.random()
        plain, channels_last = layout < 0.3, 0.3 <= layout < 0.5 and ndim > 2
        axes = [1, *range(ndim - 1, 1, -1), 0] if channels_last else range(ndim - 1, -1, -1)
        for axis in axes if plain or channels_last else rng.permutation(ndim):
            step = 1 if plain or channels_last else int(rng.choice([1, 1, 1, 2, 3, -1, -2]))
            gap = 0 if plain else int(rng.choice([0, 0, 0, 1, 5]))
            strides[axis] = (reach * abs(step) + gap * item) * (1 if step > 0 else -1)
            reach += abs(strides[axis]) * (max(values.shape[axis], 1) - 1)
        start = sum(-s * (n - 1) for s, n in zip(strides, values.shape) if s < 0 and n > 0)
        offset = 64 + int(rng.integers(0, 16)) * item
        if not output and rng.random() < 0.05:
            offset += int(rng.integers(1, 8))  # misaligned
        self.bytes = np.full(offset + reach + 128, GUARD, np.uint8)
        offset += -self.bytes.ctypes.data % 16
        self.array = np.ndarray(values.shape, dtype, self.bytes, offset + start, strides)
        self.array[...] = values
        if any(still):
            shape = tuple(n if not s else int(rng.integers(1, 4)) for n, s in zip(values.shape, still))
            self.array = np.broadcast_to(self.array, shape)
        self._before = self.bytes.copy()

    def check(self, written=False):
        """Nothing has changed; or (written) nothing but the array's own elements."""
        now, before = self.bytes.copy(), self._before.copy()
        if written and self.array.size:
            for copy in (now, before):
                np.ndarray(self.array.shape, self.array.dtype, copy,
                           self.array.ctypes.data - self.bytes.ctypes.data, self.array.strides)[...] = 0
        assert (now == before).all(), f"bytes {np.nonzero(now != before)[0][:8]} of {now.size} have changed"


def same(got, expected, what=""):
    """Equal shape, dtype and bits, but for the sign and payload of NaN."""
    got, expected = np.array(got, order="C"), np.array(expected, order="C")
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype), what
    a, b = (x.reshape(-1).view(f"u{x.itemsize}") for x in (got, expected))
    nan = np.isnan(got.astype(float).reshape(-1)) & np.isnan(expected.astype(float).reshape(-1))
    wrong = np.nonzero((a != b) & ~nan)[0]
    assert wrong.size == 0, (f"{what}: {wrong.size} of {a.size} differ, the first at {wrong[0]}: "
                             f"{got.reshape(-1)[wrong[0]]!r}, expected {expected.reshape(-1)[wrong[0]]!r}")
