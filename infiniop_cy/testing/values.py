"""Inputs that find mistakes: every number of a 16-bit type, and the special ones of any."""
import numpy as np

from infiniop_cy.testing.cases import dtype_of
from infiniop_cy.testing.reference import FORMATS


def every_value(dtype):
    """All 65,536 bit patterns of "float16" or "bfloat16", NaN included. Shape (65536,). Raises ValueError for other
    types."""
    if dtype_of(dtype).name not in FORMATS or dtype_of(dtype).itemsize != 2:
        raise ValueError(f"every_value: dtype is {dtype}, expected a 16-bit one")
    return np.arange(65536, dtype=np.uint16).view(dtype_of(dtype))


def special_values(dtype):
    """The 15 numbers where operators break: ±0, the smallest and largest subnormal, the smallest normal number, 1 and
    the largest number of either sign, ±inf and NaN. dtype: float16, bfloat16, float32 or float64; ValueError for any
    other."""
    dtype = dtype_of(dtype)
    if dtype.name not in FORMATS:
        raise ValueError(f"special_values: dtype is {dtype}, expected one of {', '.join(FORMATS)}")
    bits, lowest = FORMATS[dtype.name]
    least, normal = 2.0 ** (lowest - bits + 1), 2.0 ** lowest
    largest = (2 - 2.0 ** (1 - bits)) * 2.0 ** (1 - lowest)
    numbers = [0.0, least, normal - least, normal, 1.0, largest, np.inf]
    return np.array([sign * number for number in numbers for sign in (1, -1)] + [np.nan]).astype(dtype)
