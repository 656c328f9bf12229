"""What a candidate is tried on: every 16-bit pattern, a stratified sample of float32 and float64, or all of float32."""
import numpy as np

from infiniop_cy.testing.cases import dtype_of
from infiniop_cy.testing.reference import NEAR
from infiniop_cy.testing.values import every_value, special_values

# A power of two, which rounds nothing; numbers that do; small and large ones.
GRADIENTS = (1.0, -0.6875, 1.5e-3, 100.0)
BITS = {"float16": np.uint16, "bfloat16": np.uint16, "float32": np.uint32, "float64": np.uint64}


def block_of_patterns(start, count):
    """float32 whose bits are start, start + 1, ..."""
    return np.arange(start, start + count, dtype=np.uint64).astype(np.uint32).view(np.float32)


def random_patterns(rng, dtype, count):
    """Every sign, exponent and significand alike likely, NaN and inf included."""
    return rng.integers(0, np.iinfo(BITS[dtype]).max, count, BITS[dtype], endpoint=True).view(dtype_of(dtype))


def sample(row, dtype, rng, count):
    """About `count` inputs of float32 or float64: all exponents, densely where functions bend, around zeros and kinks
    of the derivative, at the special values, and, for float32, every value that bfloat16 has."""
    x = [special_values(dtype).astype(np.float64), rng.uniform(-14, 14, count // 3), rng.normal(0, 1.5, count // 6),
         rng.choice([-1, 1], count // 8) * 10.0 ** rng.uniform(-8, 1, count // 8),
         rng.uniform(-120, 120, count // 12)]
    for zero in row.zeros:
        x.append(rng.uniform(zero - NEAR, zero + NEAR, count // 12))
    for kink in row.kinks:
        x += [rng.normal(kink, 1e-3, count // 50), np.nextafter(kink, [kink - 1, kink + 1])]
    with np.errstate(over="ignore"):
        x = [part.astype(dtype_of(dtype)) for part in x] + [random_patterns(rng, dtype, count // 6)]
    if dtype == "float32" and count > 65536:
        x.append((np.arange(65536, dtype=np.uint32) << 16).view(np.float32))
    return np.concatenate(x)


def random_gradients(rng, dtype, count):
    """Normally distributed over some powers of two, never so far out that a product overflows."""
    return (rng.normal(0, 1, count) * 2.0 ** rng.integers(-6, 6, count)).astype(dtype_of(dtype))


__all__ = ["BITS", "GRADIENTS", "block_of_patterns", "every_value", "random_gradients", "random_patterns", "sample",
           "special_values"]
