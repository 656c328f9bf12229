"""iop.conv: what conv_backward differentiates, by every algorithm that accepts a geometry."""
import re
from itertools import pairwise, product
from math import prod

import device_mirror
import numpy as np
import pytest
from device_mirror import calculate, open_handle
from test_conv import (
    CUT,
    FORCE,
    check_same_bits,
    each_case,
    each_dtype,
    forcing_each,
    lay_at_random,
    tensor_core_error,
)
from test_conv_random import LARGE, check_seeds, family_case, random_case, small_groups, with_tiny_numbers

import infiniop_cy as iop
from infiniop_cy.core._core import build_info, conv_algorithms
from infiniop_cy.testing import DTYPES, LAYOUTS, arrange, dtype_of, random_values, ulp_of
from infiniop_cy.testing.conv import CONV_CASES, ConvCase, make_case, reference_conv_forward

ALGORITHMS = [name for name in conv_algorithms() if name.startswith("output:")]
ON_CPU = device_mirror.DEVICE == "cpu"
EACH = 1 if ON_CPU else 8  # of the random geometries that many run but one: an emulated GPU is slow
for_cpu = pytest.mark.skipif(not ON_CPU, reason="it is about the CPU's algorithms, threads or workspace")


def conv(case, data, **keywords):
    return iop.conv(*data, **case.keywords, **keywords)


def by_each_algorithm(call):
    """(algorithm, call()) for every algorithm that accepts, and for the choice of the library itself."""
    yield "chosen", call()
    yield from forcing_each(ALGORITHMS if ON_CPU else (), lambda _: call())


def make_data(case, dtype, rng, integers=True, bias=None):
    """input, weight and, if asked or by chance, a bias."""
    _, x, w = make_case(case, dtype, rng, integers)
    values = rng.integers(-8, 9, case.cout) if integers else rng.standard_normal(case.cout)
    wanted = rng.integers(2) if bias is None else bias
    return x, w, np.asarray(values, float).astype(dtype_of(dtype)) if wanted else None


def reference(case, x, w, b):
    """The output in float64."""
    y = reference_conv_forward(x, w, *case.geometry)
    return y if b is None else y + b.astype(float).reshape(-1, *(1,) * (y.ndim - 2))


def check_exact(case, dtype, rng, call):
    """Small integers: every sum is exact, whatever its order; contiguous and with channels side by side."""
    data = make_data(case, dtype, rng)
    expected = reference(case, *data).astype(dtype_of(dtype))
    threads = int(rng.integers(1, 4))
    blank = np.full(expected.shape, np.nan, expected.dtype)
    outs = [blank, arrange(blank, "channels last")]
    for algorithm, got in by_each_algorithm(lambda: [
            conv(case, data, out=out.copy(order="K"), num_threads=threads) for out in outs]):
        for output in got:
            np.testing.assert_array_equal(output, expected, f"{algorithm}, {call}: {case!r}")


# ---- values

@each_case
@each_dtype
def test_exact(case, dtype, rng):
    check_exact(case, dtype, rng, case.name)


@each_dtype
@pytest.mark.parametrize("block", range(4))
def test_exact_on_random_geometries(block, dtype):
    """A block is 100 small geometries."""
    check_seeds(check_exact, dtype, range(100 * block, 100 * block + 100, EACH))


@for_cpu
@each_dtype
def test_exact_where_there_is_work(dtype):
    """Several tiles, tasks and threads."""
    check_seeds(check_exact, dtype, range(12), **LARGE)
    check_seeds(check_exact, dtype, range(8, 16), family_case)


@each_dtype
def test_adjoint(dtype):
    """<conv(x), g> = <x, grad_input> = <w, grad_weight>: three contractions of one geometry."""
    for seed in range(0, 40, EACH):
        case, rng = random_case(seed)
        g, x, w = (a.astype(float) for a in make_case(case, dtype, rng))
        y, gradients = conv(case, (x, w)), iop.conv_backward(g, x, w, **case.keywords)
        assert (y * g).sum() == (x * gradients.grad_input).sum() == (w * gradients.grad_weight).sum()


def chained(case, x, w):
    """The output by float32 fused multiply-adds one after the other: each exact product added in float64, rounded."""
    stride, pairs, dilation, groups = case.geometry
    padded = np.pad(x.astype(float), ((0, 0), (0, 0), *pairs))
    cin, cout, sums = w.shape[1], case.cout // groups, np.zeros(case.shapes[0], np.float32)
    for ci, *k in np.ndindex(w.shape[1:]):
        window = tuple(slice(a * d, a * d + (o - 1) * s + 1, s)
                       for a, d, o, s in zip(k, dilation, case.out_size, stride))
        for group in range(groups):
            part = (slice(None), slice(group * cout, (group + 1) * cout))
            taps = w[(part[1], ci, *k)].astype(float).reshape(1, -1, *(1,) * len(k))
            channel = slice(group * cin + ci, group * cin + ci + 1)
            sums[part] = sums[part] + padded[(slice(None), channel, *window)] * taps
    return sums


@pytest.mark.parametrize("spread", [0, 30])
@pytest.mark.parametrize("name", ["many-channels", "grouped-tiles", "2d-stride", "depthwise-stride", "wide-3d"])
def test_error_is_no_larger_than_that_of_a_chain(name, spread, rng):
    """The largest and the mean over the sum of magnitudes, by each algorithm. The chain has another order, so that
    where both round as often, or one product makes most of a sum, the errors are even up to chance: their mean within a
    tenth, the largest of thousands within two thirds. `taps` rounds each product of a group's only channel once more.
    """
    case = CONV_CASES[name]
    x, w, _ = make_data(case, "float32", rng, integers=False, bias=False)
    x, w = ((a * np.exp2(rng.integers(-spread, spread + 1, a.shape))).astype(np.float32) for a in (x, w))
    exact, magnitudes = reference(case, x, w, None), reference(case, abs(x), abs(w), None)
    magnitudes[magnitudes == 0] = 1
    allowed = abs(chained(case, x, w) - exact) / magnitudes
    for algorithm, got in by_each_algorithm(lambda: conv(case, (x, w))):
        errors = abs(got - exact) / magnitudes
        assert errors.max() <= 1.6 * allowed.max(), algorithm
        assert errors.mean() <= (1.25 if algorithm == "output:taps" else 1.1) * allowed.mean(), algorithm


@pytest.mark.parametrize("name", ["many-channels", "grouped-tiles", "2d-stride", "depthwise-stride"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_outputs_are_rounded_once(name, dtype, rng):
    """The error of the sum, as test_conv.py bounds it for tensor cores, which is more than a chain's of so few
    products, and half an ulp."""
    case = CONV_CASES[name]
    data = make_data(case, dtype, rng, integers=False, bias=True)
    exact, terms = reference(case, *data), 1 + case.cin // case.groups * prod(case.kernel)
    bound = tensor_core_error(terms, reference(case, *map(abs, data)))
    bound += ulp_of(abs(exact) + bound, dtype) / 2
    for algorithm, got in by_each_algorithm(lambda: conv(case, data)):
        assert (abs(got.astype(float) - exact) <= bound).all(), algorithm


def plan_of(case, dtype, rng):
    """explain() of an output on two threads."""
    x, w, _ = make_data(case, dtype, rng, bias=False)
    stride, pairs, dilation, groups = case.geometry
    tensors = describe(np.empty(case.shapes[0], x.dtype), x, w, None)
    with iop.Handle("cpu") as handle, iop.threads(2), iop.ConvDescriptor(
            handle, *tensors, [p for p, _ in pairs], stride, dilation, groups) as op:
        return op.explain()


# What explain() says of the output, whatever the instruction set and dtype.
CHOSEN = {"2d-kernel-is-image": "dot", "padded-windows": "dot", "depthwise-multiplied": "multiplied",
          "depthwise-valid": "depthwise", "tall-image": "gemm"}


@for_cpu
@pytest.mark.parametrize("name", CHOSEN)
@each_dtype
def test_chosen_algorithms(name, dtype, rng):
    if CHOSEN[name] == "dot" and (build_info()["isa"], dtype) == ("generic", "float64"):
        pytest.skip("vectors of two are not to be filled")
    text = plan_of(CONV_CASES[name], dtype, rng)
    amx = build_info()["isa"] == "amx" and CHOSEN[name] == "gemm"
    assert f"output: {CHOSEN[name]};" in text or amx, text


# A small image by itself: columns cannot be cut any more, its pixels can.
ONE_IMAGE = {"gemm": ConvCase("one-panel", 1, 1, 64, 64, (14, 14), (3, 3), padding=1),
             "pixels": ConvCase("one-tile", 1, 1, 96, 2, (40, 40), (3, 3), padding=1),
             "taps": ConvCase("far-panel", 1, 1, 64, 64, (14, 14), (3, 3), padding=6, dilation=6)}


@for_cpu
@pytest.mark.parametrize("algorithm", ONE_IMAGE)
@each_dtype
def test_every_thread_has_a_task_of_one_small_image(algorithm, dtype, rng, monkeypatch):
    monkeypatch.setenv(FORCE, f"output:{algorithm}")
    text = plan_of(ONE_IMAGE[algorithm], dtype, rng)
    assert "threads: 2" in text
    assert int(re.search(r"(\d+) tasks", text)[1]) >= 2, text


@for_cpu
def test_pixels_in_lanes_where_taps_reach_far_beyond_a_tile(rng):
    """Of a smaller tile the block fits the cache."""
    case = ConvCase("volume", 1, 1, 1, 3, (66, 66, 66), (3, 3, 3), stride=(1, 4, 2), padding=1)
    assert "output: pixels;" in plan_of(case, "float32", rng)


@for_cpu
def test_taps_that_share_no_pixels_are_packed_at_once(rng):
    """A block holds what each of them meets, not what lies between."""
    case = ConvCase("apart", 2, 1, 20, 32, (40, 51), (3, 3), dilation=(2, 25))
    assert "output: gemm;" in plan_of(case, "float64", rng)


# Of large kernels in three dimensions, whose taps reach too much from tiles of whole rows of one plane.
DEEP = {"gemm": ConvCase("deep-tiles", 1, 1, 32, 18, (14, 34, 34), (9, 5, 5)),
        "pixels": ConvCase("deep-lanes", 1, 1, 64, 2, (11, 36, 49), (7, 7, 5))}


@for_cpu
@pytest.mark.parametrize("algorithm", DEEP)
def test_tiles_of_several_planes(algorithm, rng, monkeypatch):
    monkeypatch.setenv(FORCE, f"output:{algorithm}")
    case = DEEP[algorithm]
    text = plan_of(case, "float32", rng)
    assert int(re.search(r"tiles of 1 x (\d+) x", text)[1]) > 1, text
    check_exact(case, "float32", rng, algorithm)
    check_threads(case, "float32", rng, algorithm)


@for_cpu
@pytest.mark.parametrize("channels", [3, 7])
def test_far_taps_of_few_channels(channels, rng):
    """Where a block of planes is small enough, one of lines may not be, with vectors of any length."""
    check_exact(ConvCase("far-lanes", 1, 1, 24, channels, (130, 140), (2, 2), padding=18, dilation=36), "float32", rng,
                channels)


# ---- special values

@pytest.mark.parametrize("name", ["1d-dilated", "2d-1x1", "2d-groups", "2d-stride", "3d-everything", "tiny-images",
                                  "padded-windows", "depthwise-multiplied", "large-image", "2d-dilated",
                                  "depthwise-stride", "far-taps", "taps-apart", "parallel-tiny-images"])
@each_dtype
def test_inf_and_nan(name, dtype, rng):
    """A sum has the terms that exist: padding is none of them. Integers elsewhere, so that == holds."""
    case = CONV_CASES[name]
    x, w, b = make_data(case, dtype, rng, bias=True)
    for array in (x, w):
        for value in (np.inf, -np.inf, np.nan):
            array.flat[rng.integers(array.size, size=2)] = value
    stride, pairs, dilation, groups = case.geometry
    sums = np.zeros(case.shapes[0]) + b.astype(float).reshape(-1, *(1,) * len(case.size))
    cin, cout = w.shape[1], case.cout // groups
    with np.errstate(invalid="ignore"):
        for (co, ci, *k) in np.ndindex(w.shape):
            i = [np.arange(n) * s + a * d - p for n, s, a, d, (p, _) in
                 zip(case.out_size, stride, k, dilation, pairs)]
            met = [np.flatnonzero((0 <= a) & (a < size)) for a, size in zip(i, case.size)]
            pixels = x[:, co // cout * cin + ci].astype(float)[(slice(None), *np.ix_(*(a[m] for a, m in zip(i, met))))]
            sums[(slice(None), co, *np.ix_(*met))] += pixels * float(w[(co, ci, *k)])
        expected = sums.astype(dtype_of(dtype))
    for algorithm, got in by_each_algorithm(lambda: conv(case, (x, w, b))):
        np.testing.assert_array_equal(got.astype(float), expected.astype(float), algorithm)


@each_dtype
def test_inf_and_nan_keep_to_their_sample(dtype):
    """What overflows in one sample changes no bit of another one's output."""
    for seed in range(0, 60, EACH):
        case, rng = random_case(seed)
        if case.batch < 2 or not case.cin:
            continue
        x, w, b = make_data(case, dtype, rng, integers=False)
        if not x[0].size:
            continue
        dirty = x.copy()
        dirty[0].flat[rng.integers(x[0].size)] = rng.choice([np.inf, -np.inf, np.nan])
        for algorithm, (a, c) in by_each_algorithm(lambda case=case, w=w, b=b, x=x, d=dirty: [
                conv(case, (i, w, b)) for i in (x, d)]):
            check_same_bits(c[1:], a[1:], f"{algorithm}, seed {seed}: {case!r}")


# ---- bits

def make_bits_data(case, dtype, rng):
    """Normal numbers, some of them tiny; the bias is no factor."""
    return with_tiny_numbers(make_data(case, dtype, rng, integers=False), (2, 8), rng)


def check_threads(case, dtype, rng, call):
    """One thread or several."""
    data = make_bits_data(case, dtype, rng)
    for algorithm, (expected, *others) in by_each_algorithm(
            lambda: [conv(case, data, num_threads=n) for n in (1, 2, 3, 7)]):
        for got in others:
            check_same_bits(got, expected, f"{algorithm}, {call}: {case!r}")


@for_cpu
@each_dtype
def test_bits_do_not_depend_on_threads(dtype):
    check_seeds(check_threads, dtype, range(12), **LARGE)


def check_layout(case, dtype, rng, call, lay=None):
    """Random layouts of inputs and outputs, or one."""
    lay, data = lay or lay_at_random(rng), make_bits_data(case, dtype, rng)
    old = random_values(rng, case.shapes[0], dtype)
    laid, outs = tuple(a if a is None else lay(a) for a in data), [lay(old) for _ in range(len(ALGORITHMS) + 1)]
    for algorithm, (expected, got) in by_each_algorithm(lambda: (
            conv(case, data), conv(case, laid, out=outs.pop()))):
        check_same_bits(got, expected, f"{algorithm}, {call}: {case!r}")


def check_channels_last(case, dtype, rng, call):
    """Inputs and output with their channels side by side."""
    check_layout(case, dtype, rng, call, LAYOUTS["channels last"])


@each_dtype
@pytest.mark.parametrize("check", [check_layout, check_channels_last])
def test_bits_do_not_depend_on_the_layout(check, dtype):
    check_seeds(check, dtype, range(0, 60, EACH))


@for_cpu
@each_dtype
@pytest.mark.parametrize("case", [
    # windows that share pixels: some channels, one of several groups, padding, a stride, parts of a long channel
    ConvCase("windows", 2, 1, 3, 5, (15, 17), (12, 11), (1, 1), (2, 0)),
    ConvCase("groups", 2, 5, 5, 5, (22, 30), (19, 23), (1, 1), (0, 0)),
    ConvCase("stride", 2, 1, 2, 3, (6, 21, 21), (5, 9, 9), (1, 2, 3), (0, 1, 2)),
    ConvCase("panels", 1, 1, 1, 4, (70, 70), (64, 65), (1, 1), (0, 0)),
    ConvCase("no pixels", 2, 1, 3, 4, (0, 5), (4, 7), (1, 1), (2, 1)),
    # few channels to or from lanes of pixels
    *(ConvCase(f"{cin}-{cout}", 2, 1, cin, cout, (9, 37), (1, 1)) for cin in (1, 2, 3, 5, 9)
      for cout in (2, 3, 4, 5, 8)),
], ids=lambda case: case.name)
def test_channels_last_of_few_channels(case, dtype, rng):
    check_exact(case, dtype, rng, "exact")
    check_channels_last(case, dtype, rng, "bits")


@for_cpu
@each_dtype
@pytest.mark.parametrize("stride", [2, 3])
@pytest.mark.parametrize(("groups", "kernel"), [(40, (3, 11)), (40, (5, 4)), (5, (2, 7)), (10, (3, 3))])
def test_taps_of_a_stride_share_what_they_meet(groups, kernel, stride, dtype, rng):
    """Lines of a class of taps, more of them than are loaded at once, in tiles whose edges meet padding."""
    case = ConvCase("lines", 2, groups, 40, 40, (9, 83), kernel, (1, stride), tuple(k // 2 for k in kernel))
    for check in (check_exact, check_threads, check_channels_last):
        check(case, dtype, rng, check.__name__)


@for_cpu
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_large_batches_are_copied_in_passes(dtype, rng):
    """An image whose channels lie side by side is copied for output:dot, some samples at a time."""
    case = ConvCase("passes", 13, 9, 9, 18, (128, 256), (16, 16), (16, 16), (0, 0))
    data = make_data(case, dtype, rng, integers=False)
    laid, out = [a if a is None else LAYOUTS["channels last"](a) for a in data], np.empty(case.shapes[0], data[0].dtype)
    expected = conv(case, data)
    for threads in (1, 2, 3):
        out[...] = np.nan
        check_same_bits(conv(case, laid, out=out, num_threads=threads), expected, str(threads))
    descriptors = [iop.TensorDescriptor(a.shape, dtype, a.strides) for a in (out, *laid[:2])]
    with iop.Handle("cpu") as handle, iop.threads(2), iop.ConvDescriptor(
            handle, *descriptors, None, 0, 16, 1, case.groups) as op:
        assert op.plan.facts["steps"][0]["algorithm"] == "output:dot"
        assert 2 <= op.plan.facts["steps"][0]["samples"] < case.batch
    exact = reference(case, *data)
    np.testing.assert_allclose(expected.astype(float), exact, rtol=0, atol=0.02 * np.abs(exact).max())


@for_cpu
@pytest.mark.parametrize("channels", [(3, 600), (40, 16), (600, 5)])
@pytest.mark.parametrize(("size", "kernel"), [(1, 1), (2, 1), (7, 1), (5, 3)])
def test_subnormal_sums_do_not_depend_on_the_layout(channels, size, kernel, rng):
    """Instructions that count them as 0 do so however the output lies."""
    case = ConvCase("", 2, 1, *channels, (size, size), (kernel, kernel))
    x, w, b = make_data(case, "bfloat16", rng, integers=False, bias=True)
    for array, exponent in ((x, -63), (w, -63), (b, -126)):
        array *= array.dtype.type(2.0 ** exponent)
    for algorithm, outputs in by_each_algorithm(lambda: [
            conv(case, (lay(x), lay(w), b), out=lay(np.zeros(case.shapes[0], x.dtype))) for lay in LAYOUTS.values()]):
        for lay, output in zip(LAYOUTS, outputs):
            check_same_bits(output, outputs[0], f"{algorithm}, {lay}")


def check_batch(case, dtype, rng, call):
    """Samples alone, and the batch cut anywhere."""
    x, w, b = make_bits_data(case, dtype, rng)
    cuts = sorted({0, case.batch, *(int(n) for n in rng.integers(0, case.batch + 1, 3))})
    for algorithm, (whole, *parts) in by_each_algorithm(lambda: [
            conv(case, (x, w, b)), *(np.concatenate([conv(case, (x[i:j], w, b)) for i, j in pairwise(edges)])
                                     for edges in (cuts, range(case.batch + 1)) if len(edges) > 1)]):
        for part in parts:
            check_same_bits(part, whole, f"{algorithm}, {call}: {case!r}")


@each_dtype
def test_bits_do_not_depend_on_the_batch(dtype):
    check_seeds(check_batch, dtype, range(0, 120, EACH))
    check_seeds(check_batch, dtype, range(8 if ON_CPU else 0), **LARGE)


@pytest.mark.parametrize("check", [check_exact, check_threads, check_layout, check_channels_last, check_batch])
def test_small_groups(check):
    """AMX joins them."""
    for seed in range(20):
        case, rng = small_groups(seed)
        check(case, "bfloat16", rng, f"small groups, seed {seed}")


@for_cpu
def test_every_algorithm_accepts_something():
    """Else the tests above would say nothing of it. AMX wants a CPU that has it."""
    met = set()
    for dtype, seed in product(DTYPES, range(60)):
        case, rng = random_case(seed)
        data = make_data(case, dtype, rng)
        met |= {name for name, _ in by_each_algorithm(lambda case=case, data=data: conv(case, data))}
    assert met - {"chosen"} == {name for name in ALGORITHMS if build_info()["isa"] == "amx" or "amx" not in name}


# ---- calls

@pytest.mark.parametrize("case", CUT[:6], ids=str)
def test_out_may_share_memory(case, rng):
    """As if it did not, which is NumPy's rule."""
    x, w, b = make_data(case, "float32", rng, bias=True)
    expected = conv(case, (x, w, b))
    memory = np.zeros(max(x.size, expected.size), np.float32)
    memory[:x.size] = x.ravel()
    out = memory[:expected.size].reshape(expected.shape)
    assert conv(case, (memory[:x.size].reshape(x.shape), w, b), out=out) is out
    check_same_bits(out, expected, case.name)


def describe(*arrays):
    return [None if a is None else iop.TensorDescriptor.from_array(a) for a in arrays]


@pytest.mark.parametrize("name", ["2d-stride", "3d", "tiny-images", "2d-depthwise", "2d-1x1"])
@each_dtype
def test_descriptor_is_the_function(name, dtype, rng):
    """On any layout, with and without bias, by arrays and by addresses."""
    case = CONV_CASES[name]
    for wanted in (False, True):
        x, w, b = make_data(case, dtype, rng, integers=False, bias=wanted)
        expected, x, w = conv(case, (x, w, b)), arrange(x, "channels last"), arrange(w, "transposed")
        out = arrange(np.full_like(expected, np.nan), "channels last")
        stride, pairs, dilation, groups = case.geometry
        with open_handle() as handle, iop.ConvDescriptor(
                handle, *describe(out, x, w, b), [p for p, _ in pairs], stride, dilation, groups) as op:
            assert ("output: " if ON_CPU else "on a GPU: ") in op.explain()
            workspace = iop.empty_workspace(handle, op.workspace_size)
            calculate(op, workspace, out, x, w, b)
            check_same_bits(out, expected, name)
            out[...] = 0
            calculate(op, workspace, out, x, w, b, addresses=True)
            check_same_bits(out, expected, f"{name} by addresses")
            with pytest.raises(iop.InsufficientWorkspace):
                calculate(op, iop.empty_workspace(handle, op.workspace_size - 1), out, x, w, b)
            with pytest.raises(iop.BadParam, match="conv: output overlaps input"):
                calculate(op, workspace, x, x, w, b, addresses=True)
            with pytest.raises(iop.NullPointer if wanted else iop.BadParam, match="bias is"):
                calculate(op, workspace, out, x, w, None if wanted else np.zeros(case.cout, x.dtype))


def test_padding_words(rng):
    """ "same" pads alike on both sides, the odd pixel after; "valid" not at all."""
    x, w = random_values(rng, (2, 3, 7, 8), "float32"), random_values(rng, (4, 3, 2, 3), "float32")
    check_same_bits(iop.conv(x, w, padding="same"), iop.conv(x, w, padding=((0, 1), (1, 1))), "same")
    check_same_bits(iop.conv(x, w, padding="valid"), iop.conv(x, w), "valid")
    assert iop.conv(x, w, padding="same").shape == (2, 4, 7, 8)


@pytest.mark.parametrize("kernel", [1, 2])
@pytest.mark.parametrize("padding", [0, 3, 2**20])
def test_largest_stride(kernel, padding):
    """One window, wherever the next would be."""
    x, w = np.arange(1, 31, dtype=np.float32).reshape(1, 2, 3, 5), np.ones((3, 2, kernel, kernel), np.float32)
    corner = x[0, :, :kernel, :kernel].sum() if padding == 0 else 0
    np.testing.assert_array_equal(iop.conv(x, w, stride=2**62, padding=padding), np.full((1, 3, 1, 1), corner))


@for_cpu
@each_dtype
@pytest.mark.parametrize("layout", ["contiguous", "channels last"])
def test_workspace_is_bounded(dtype, layout):
    """The packed weights and at most 4 MB a thread, 8 in float64; of an image that is copied, too."""
    item, most = dtype_of(dtype).itemsize, (8 if dtype == "float64" else 4) << 20
    for seed in range(150):
        case, _ = random_case(seed)
        stride, pairs, dilation, groups = case.geometry
        if any(a != b for a, b in pairs):
            continue
        arrays = [LAYOUTS[layout](np.empty(shape, dtype_of(dtype))) for shape in case.shapes]
        y, x, w = (iop.TensorDescriptor(a.shape, dtype, a.strides) for a in arrays)
        with iop.Handle("cpu") as handle, iop.threads(2), iop.ConvDescriptor(
                handle, y, x, w, None, [p for p, _ in pairs], stride, dilation, groups) as op:
            facts = op.plan.facts
            weights = np.prod(case.shapes[2][1:]) * (case.cout // groups + 64) * groups * max(6, item)
            # AMX takes channels in whole steps of 32
            rounded = weights * 32 / max(1, min(32, case.cin // groups))
            assert facts["per_thread"] <= most, case
            assert facts["workspace"] <= rounded + (1 << 16) + facts["threads"] * most, case
            if facts["steps"][0]["algorithm"] != "output:dot":  # the only one that copies an image for all tasks
                assert facts["shared"] <= rounded + (1 << 16), case


def test_taps_that_are_as_many_channels_as_the_output_has():
    """Folded taps make 16 channels of 8: that is no group of a grouped convolution."""
    case = ConvCase("folded", 1, 1, 8, 16, (5,), (3,), (3,), ((5, 3),), (4,))
    check_exact(case, "float32", np.random.default_rng(0), "two taps of eight channels")
