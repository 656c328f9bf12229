"""What no grid holds: inf, NaN and -0. Where there are any, which is rare, a second sum counts them, and its counts
settle the elements concerned by rules that know no order: NaN, or inf of both signs, gives NaN; inf gives inf; and -0
is the sum of nothing but -0, as in IEEE 754.

By integers alone, so that a NaN is the same one everywhere.
"""
import numpy as np

from infiniop_cy.core import _core

COUNT_BITS = 15  # of each of four counts in an int64; no more shards than they hold
MOST_SHARDS = (1 << COUNT_BITS) - 1
_BLOCK = 1 << 14  # elements that are looked at together, so few that one thread scans them

# name: bits of the fraction
FRACTION_BITS = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}


def _bits(array):
    """The elements as unsigned integers, the bit of the sign, and inf."""
    bits = array.view(f"u{array.itemsize}")
    sign = 1 << (8 * array.itemsize - 1)
    inf = (sign - 1) >> FRACTION_BITS[array.dtype.name] << FRACTION_BITS[array.dtype.name]
    return bits, bits.dtype.type(sign), bits.dtype.type(inf)


def _has_minus_zero(array):
    return _core.scan_magnitudes(array)[2]


def has_common_minus_zero(shards):
    """Whether some element is -0 in all of these flat arrays."""
    for begin in range(0, shards[0].size, _BLOCK):
        blocks = [shard[begin:begin + _BLOCK] for shard in shards]
        if not all(map(_has_minus_zero, blocks)):  # most blocks
            continue
        common = True
        for block in blocks:
            bits, sign, _ = _bits(block)
            common = common & (bits == sign)
        if common.any():
            return True
    return False


def count(shards, begin, counts):
    """Set counts[i] to how often element begin + i of these flat arrays is NaN, inf, -inf and -0."""
    counts[...] = 0
    for at in range(0, counts.size, _BLOCK):
        part = counts[at:at + _BLOCK]
        for shard in shards:
            block = shard[begin + at:begin + at + part.size]
            if not any(_core.scan_magnitudes(block)[1:]):  # most blocks
                continue
            bits, sign, inf = _bits(block)
            for i, found in enumerate((bits & ~sign > inf, bits == inf, bits == inf | sign, bits == sign)):
                part += found.astype(np.int64) << (i * COUNT_BITS)


def settle(counts, result, begin, shards):
    """Overwrite the elements of a flat result from `begin` on that have something to count. shards: how many there are
    on all workers."""
    if not counts.any():
        return
    bits, sign, inf = _bits(result[begin:begin + counts.size])
    nan, plus, minus, zero = (counts >> (i * COUNT_BITS) & MOST_SHARDS for i in range(4))
    quiet_nan = inf | bits.dtype.type(1 << (FRACTION_BITS[result.dtype.name] - 1))
    bits[zero == shards] = sign
    bits[plus > 0] = inf
    bits[minus > 0] = inf | sign
    bits[(nan > 0) | (plus > 0) & (minus > 0)] = quiet_nan
