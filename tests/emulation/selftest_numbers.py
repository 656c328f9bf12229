"""Tests of the emulation's arithmetic: pytest tests/emulation/selftest_numbers.py"""

import struct

import ml_dtypes
import numpy as np
import pytest

from .selftest import context, drv, images  # noqa: F401

HALF, BFLOAT = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)


def many_floats():
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 1 << 32, 300_000, dtype=np.uint32)
    every = np.arange(1 << 16, dtype=np.uint16)
    halves = every.view(HALF).astype(np.float32)
    bfloats = every.astype(np.uint32) << 16
    near = [v.view(np.uint32) + d for v in (halves, bfloats.view(np.float32)) for d in (0xFFF, 0x1000, 0x1001, 1)]
    ties = np.concatenate([bfloats + d for d in (0x7FFF, 0x8000, 0x8001)] + near).astype(np.uint32)
    scaled = (rng.standard_normal(200_000) * 10.0 ** rng.uniform(-9, 6, 200_000)).astype(np.float32)
    return np.concatenate([bits.view(np.float32), ties.view(np.float32), scaled, halves])


def same_numbers(bits, expected, dtype):
    nan = np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(bits[~nan], expected.view(np.uint16)[~nan])
    assert (bits[nan] == 0x7FFF).all()


def test_conversions(drv, context, images):  # noqa: F811
    values, bits = many_floats(), np.arange(1 << 16, dtype=np.uint16)
    n, m = values.size, bits.size
    out = {name: drv.mem_alloc(size) for name, size in (("h", 2 * n), ("b", 2 * n), ("H", 4 * m), ("B", 4 * m))}
    source, codes = drv.mem_alloc(values.nbytes), drv.mem_alloc(bits.nbytes)
    drv.memcpy_htod(source, values)
    drv.memcpy_htod(codes, bits)
    convert = drv.module_from_buffer(images("HALVES")).get_function("convert").prepare(["56s"])
    arguments = struct.pack("6Qii", source, out["h"], out["b"], codes, out["H"], out["B"], n, m)
    convert.prepared_call(((n + 255) // 256, 1), (256, 1, 1), arguments)

    def get(name, count, dtype):
        array = np.empty(count, dtype)
        drv.memcpy_dtoh(array, out[name])
        return array

    with np.errstate(all="ignore"):
        same_numbers(get("h", n, np.uint16), values.astype(HALF), HALF)
        same_numbers(get("b", n, np.uint16), values.astype(BFLOAT), BFLOAT)
        np.testing.assert_array_equal(get("H", m, np.float32), bits.view(HALF).astype(np.float32))
        np.testing.assert_array_equal(get("B", m, np.float32), bits.view(BFLOAT).astype(np.float32))


CASES = [
    ("half_16", HALF, np.float32, 16, 16, 16), ("half_half", HALF, HALF, 16, 16, 16),
    ("half_32", HALF, np.float32, 32, 8, 16), ("half_8", HALF, np.float32, 8, 32, 16),
    ("bfloat_16", BFLOAT, np.float32, 16, 16, 16), ("bfloat_32", BFLOAT, np.float32, 32, 8, 16),
    ("bfloat_8", BFLOAT, np.float32, 8, 32, 16), ("tf32", np.float32, np.float32, 16, 16, 8),
    ("wide", np.float64, np.float64, 8, 8, 4),
]  # fmt: skip


@pytest.mark.parametrize("columns", [0, 1])
@pytest.mark.parametrize(("name", "kind", "result", "m", "n", "k"), CASES)
def test_products(drv, context, images, name, kind, result, m, n, k, columns):  # noqa: F811
    rng = np.random.default_rng(m * n)
    a, b = (rng.standard_normal(shape).astype(kind) for shape in ((m, k), (k, n)))
    exact = [x.astype(np.float64) for x in (a, b)]
    if name == "tf32":
        exact = [(x.view(np.uint32) & 0xFFFFE000).view(np.float32).astype(np.float64) for x in (a, b)]
    order = "F" if columns else "C"
    memory = []
    for x in (a, b):
        flat = np.ascontiguousarray(x.ravel(order)).view(np.uint8)
        memory.append(drv.mem_alloc(flat.nbytes))
        drv.memcpy_htod(memory[-1], flat)
    out = np.empty((m, n), result)
    product = drv.mem_alloc(out.nbytes)
    function = drv.module_from_buffer(images("PRODUCTS")).get_function(name).prepare(["32s"])
    function.prepared_call((1, 1), (32, 1, 1), struct.pack("QQQi4x", *memory, product, columns))
    drv.memcpy_dtoh(out.view(np.uint8), product)
    rtol = {2: 2e-3, 4: 1e-5, 8: 1e-14}[np.dtype(result).itemsize]
    np.testing.assert_allclose(out.astype(np.float64), 2 * (exact[0] @ exact[1]), rtol=rtol, atol=rtol)


def test_products_are_truncated(drv, context, images):  # noqa: F811
    """Four products at a time are aligned to the largest and lose what is below its 24 bits, whatever the sign."""
    a, b = np.zeros((2, 16, 16), HALF)
    a[:, 0], b[0] = 1, 1
    a[:, 1], b[1] = 2.0**-12, 1.75 * 2.0**-12  # 0.875 of the last place of 1
    a[:, 4], b[4] = 2.0**-12, 2.0**-11         # the next four: one last place
    memory = [drv.mem_alloc(x.nbytes) for x in (a, b)]
    for place, x in zip(memory, (a, b)):
        drv.memcpy_htod(place, x)
    out = np.empty((16, 16), np.float32)
    product = drv.mem_alloc(out.nbytes)
    function = drv.module_from_buffer(images("PRODUCTS")).get_function("half_16").prepare(["32s"])
    for sign in (1, -1):
        drv.memcpy_htod(memory[1], b * HALF.type(sign))
        function.prepared_call((1, 1), (32, 1, 1), struct.pack("QQQi4x", *memory, product, 0))
        drv.memcpy_dtoh(out, product)
        assert (out == 2 * sign * (1 + 2.0**-23)).all()


def test_a_product_needs_the_whole_warp(drv, context, images):  # noqa: F811
    memory = drv.mem_alloc(4096)
    function = drv.module_from_buffer(images("PRODUCTS")).get_function("half_16").prepare(["32s"])
    function.prepared_call((1, 1), (16, 1, 1), struct.pack("QQQi4x", memory, memory, memory, 0))
    with pytest.raises(drv.LaunchError):
        drv.Context.synchronize()
    function.prepared_call((1, 1), (32, 1, 1), struct.pack("QQQi4x", int(memory) + 2, memory, memory, 0))
    with pytest.raises(drv.LogicError, match="misaligned"):
        drv.Context.synchronize()
