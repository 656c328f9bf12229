"""conv_backward on random geometries, by every algorithm that accepts them: the right values, and the same bits
whatever the threads, the layout and the batch are. What a chosen shape does not meet, one of these does."""
from itertools import pairwise

import numpy as np
import pytest
import test_conv
from hypothesis import given, settings
from hypothesis import strategies as st
from test_conv import (
    ALGORITHMS,
    FORCE,
    blanks,
    by_each_algorithm,
    check_same,
    check_values,
    conv,
    describe,
    lay_at_random,
    masked,
    random_outs,
)

import infiniop_cy as iop
from infiniop_cy.testing import DTYPES, LAYOUTS, dtype_of
from infiniop_cy.testing.conv import CONV_CASES, ConvCase, make_case, random_geometry, reference_conv_backward
from infiniop_cy.testing.conv_families import family_geometry

each_dtype = pytest.mark.parametrize("dtype", DTYPES)
LARGE = {"products": (7 << 21, 1 << 25), "elements": 1 << 20}  # work enough for seven threads
FAMILIES = {"products": 1 << 25, "elements": 1 << 20}


def random_case(seed, **limits):
    """The geometry of a seed, and a generator for its data."""
    rng = np.random.default_rng(seed)
    return random_geometry(lambda low, high: int(rng.integers(low, high + 1)), **limits), rng


def family_case(seed):
    """The same, of the sizes of networks and benchmarks."""
    return family_geometry(seed, **FAMILIES), np.random.default_rng(seed)


def check_seeds(check, dtype, seeds, draw=random_case, **limits):
    """A check, of this file or of test_conv_forward.py, on the geometry of each seed."""
    for seed in seeds:
        case, rng = draw(seed, **limits)
        check(case, dtype, rng, f"{draw.__name__} of seed {seed}, {limits}")


def small_groups(seed):
    """A convolution of a few groups of 6 to 16 channels each way, and a generator for its data."""
    rng = np.random.default_rng(seed)

    def one_of(low, high):
        return int(rng.integers(low, high + 1))
    axes, groups = one_of(1, 2), one_of(2, 11)
    most = one_of(8, 16)
    cin = cout = one_of(6, most)
    if one_of(0, 1):
        cout = one_of(6, most)
    kernel, dilation = tuple(one_of(1, 3) for _ in range(axes)), one_of(1, 2)
    size = tuple(dilation * (k - 1) + one_of(1, 12) for k in kernel)
    pads = tuple((one_of(0, k - 1),) * 2 for k in kernel)
    stride = 1 if one_of(0, 2) else 2
    return ConvCase("small groups", one_of(1, 3), groups, groups * cin, groups * cout, size, kernel, stride, pads,
                    dilation), rng


# ---- values

def check_exact(case, dtype, rng, call):
    """Small integers: every sum is exact, whatever its order."""
    data = make_case(case, dtype, rng)
    reference = reference_conv_backward(*data, *case.geometry)
    threads = int(rng.integers(1, 4))
    for algorithm, _, got in by_each_algorithm(lambda mask: conv(
            case, data, out=masked(blanks(case, dtype), mask), output_mask=mask, num_threads=threads)):
        wanted = [(a, exact) for a, exact in zip(got, reference) if a is not None]
        check_values(*zip(*wanted), f"{algorithm}, {call}: {case!r}")


@each_dtype
@pytest.mark.parametrize("block", range(4))
def test_exact(block, dtype):
    """A block is 100 small geometries."""
    check_seeds(check_exact, dtype, range(100 * block, 100 * block + 100))


@each_dtype
def test_exact_where_there_is_work(dtype):
    """Several tiles, tasks and threads."""
    check_seeds(check_exact, dtype, range(12), **LARGE)


@st.composite
def geometries(draw):
    return random_geometry(lambda low, high: draw(st.integers(low, high)))


@settings(max_examples=60)
@given(geometries(), st.sampled_from(DTYPES), st.integers(0, 9))
def test_exact_on_drawn_geometries(case, dtype, seed):
    """The same, for hypothesis to make small what fails."""
    check_exact(case, dtype, np.random.default_rng(seed), "drawn")


# ---- bits

# What all factors are multiplied with, as powers of 2, so that some sums are subnormal, which some instructions count
# as 0, or that products underflow to 0 or -0.
TINY_POWERS = {"float32": (-65, -75), "bfloat16": (-63, -75), "float64": (-520, -538)}
MANY_TINY = 1024  # elements of an array, with more of which most are 0: subnormal sums take a CPU 200 times as long


def make_tiny(array, power, rng):
    """Multiply in place with that power of 2, and of a large array seven in eight with 0."""
    array *= array.dtype.type(2.0 ** power)
    if array.size > MANY_TINY:
        array[rng.random(array.shape) > 1 / 8] = 0


def with_tiny_numbers(data, odds, rng):
    """Now and then all so small that sums or products underflow. Or in float32 a few such that their sample (a weight:
    all of them) goes another way than its neighbours where float32 is multiplied as sums of bfloat16. odds: against
    it, of each array."""
    dtype = data[0].dtype
    if dtype == np.float32 and rng.integers(2):
        for array, against in zip(data, odds):
            if array.size and not rng.integers(against):
                array.flat[rng.integers(array.size)] = 1e-30
    elif dtype.name in TINY_POWERS and not rng.integers(3):
        power = int(rng.choice(TINY_POWERS[dtype.name]))
        for array in data:
            if array is not None:
                make_tiny(array, max(2 * power, -126) if array.ndim == 1 else power, rng)
    return data


def make_bits_case(case, dtype, rng):
    """Normal numbers, some of them tiny."""
    return with_tiny_numbers(make_case(case, dtype, rng, integers=False), (2, 2, 8), rng)


def check_threads(case, dtype, rng, call):
    """One thread or several."""
    data = make_bits_case(case, dtype, rng)
    results = by_each_algorithm(lambda mask: [conv(case, data, output_mask=mask, num_threads=n) for n in (1, 2, 3, 7)])
    for algorithm, _, (expected, *others) in results:
        for got in others:
            check_same(got, expected, f"{algorithm}, {call}: {case!r}")


@each_dtype
@pytest.mark.parametrize("block", range(2))
def test_bits_do_not_depend_on_threads(block, dtype):
    check_seeds(check_threads, dtype, range(10 * block, 10 * block + 10), **LARGE)


def check_layout(case, dtype, rng, call, lay=None):
    """Inputs and outputs of this layout, or of random ones, written or accumulated into."""
    lay = lay or lay_at_random(rng)
    data, old = make_bits_case(case, dtype, rng), random_outs(case, dtype, rng)
    laid, accumulate = tuple(map(lay, data)), bool(rng.integers(2))
    results = by_each_algorithm(lambda mask: (
        conv(case, data, output_mask=mask, out=masked([a.copy() for a in old], mask), accumulate=accumulate),
        conv(case, laid, output_mask=mask, out=masked([lay(a) for a in old], mask), accumulate=accumulate)))
    for algorithm, _, (expected, got) in results:
        check_same(got, expected, f"{algorithm}, {call}: {case!r}")


def check_channels_last(case, dtype, rng, call):
    """All inputs and outputs with their channels side by side, as random layouts seldom are."""
    check_layout(case, dtype, rng, call, LAYOUTS["channels last"])


@each_dtype
@pytest.mark.parametrize("check", [check_layout, check_channels_last])
def test_bits_do_not_depend_on_the_layout(check, dtype):
    check_seeds(check, dtype, range(60))


@each_dtype
@pytest.mark.parametrize("check", [check_exact, check_channels_last])
def test_families(check, dtype):
    """Large images of few channels, far taps of large images, many channels."""
    check_seeds(check, dtype, range(8), family_case)


# Few channels of many pixels, whose tiles threads share: of images under a stride or none, more output channels than a
# vector's, groups, large strides, whose phases fill several panels of columns, and of volumes whose tiles have several
# planes, each with a share of grad_bias.
SHARED_TILES = (ConvCase("stem", 3, 1, 3, 16, (97, 90), (3, 3), 2, 1),
                ConvCase("stem-wide", 2, 1, 3, 70, (75, 67), (5, 7)),
                ConvCase("stem-groups", 2, 2, 10, 48, (61, 70), (3, 3), 1, 1),
                ConvCase("stem-strides", 2, 1, 3, 20, (47, 51), (11, 10), 4, 2),
                ConvCase("volume-strides", 1, 1, 4, 20, (9, 30, 31), (3, 7, 7), (2, 4, 4), (1, 3, 3)),
                ConvCase("volume", 2, 1, 16, 32, (9, 18, 17), (1, 3, 3), 1, (0, 1, 1)),
                ConvCase("volume-stem", 2, 1, 3, 20, (13, 19, 21), (3, 3, 2), (1, 2, 1), 1))


@each_dtype
@pytest.mark.parametrize("case", SHARED_TILES, ids=lambda case: case.name)
def test_tiles_that_threads_share(case, dtype, rng):
    check_exact(case, dtype, rng, case.name)
    data, last = make_case(case, dtype, rng, integers=False), LAYOUTS["channels last"]
    for algorithm, _, (expected, *others) in by_each_algorithm(lambda mask: [
            conv(case, laid, output_mask=mask, num_threads=n)
            for laid in (data, tuple(map(last, data))) for n in (1, 2, 3)]):
        for got in others:
            check_same(got, expected, f"{algorithm}, {case.name}")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", SHARED_TILES, ids=lambda case: case.name)
def test_inf_and_nan_in_tiles_that_threads_share(case, dtype, rng):
    test_conv.test_inf_and_nan_reach_what_they_touch(case, dtype, "all", rng)


# Blocks of more positions than lines may have, or that only small tiles make small enough; more taps than rows of a
# task of grad_weight, of which it has one or two channels, or which are outer products; boxes of taps, the last ones
# smaller, as lines and as planes; and channels in the lanes under more taps than have sums of grad_weight there.
LONG_KERNELS = (ConvCase("large-block", 2, 1, 5, 3, (15, 63, 15), (7, 7, 7), (2, 2, 4)),
                ConvCase("small-tiles", 1, 1, 8, 4, (11, 36, 49), (7, 7, 5)),
                ConvCase("one-channel", 1, 1, 6, 20, (32, 42), (26, 23)),
                ConvCase("outer", 1, 1, 5, 24, (29, 30), (29, 29)),
                ConvCase("boxes", 2, 1, 26, 5, (9, 12, 6), (5, 7, 4), (1, 2, 1), (2, 0, 3)),
                ConvCase("boxes", 1, 2, 166, 6, (20, 11), (9, 10), 1, (8, 0), (2, 1)),
                ConvCase("boxes", 2, 1, 90, 3, (310,), (74,), 3, 40, 2),
                ConvCase("lanes", 2, 17, 17, 34, (19, 23), (17, 16), 1, (8, 7)),
                ConvCase("lanes", 1, 33, 33, 33, (30, 31), (9, 31), (2, 1), (4, 15), (2, 1)),
                ConvCase("chains in lanes", 2, 16, 16, 32, (13, 17), (31, 29), 1, (15, 14)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", LONG_KERNELS, ids=str)
def test_long_kernels(case, dtype):
    for check in (check_exact, check_threads, check_channels_last):
        check(case, dtype, np.random.default_rng(0), check.__name__)


# One output pixel of few samples: weights are read past their columns, grad_weight is written where it lies.
ONE_PIXEL = (*(ConvCase("one-pixel", batch, groups, cin * groups, 150 * groups, (1, 1), (1, 1))
               for batch, groups, cin in ((1, 1, 20), (1, 3, 48), (1, 2, 5), (3, 1, 70))),
             ConvCase("whole-image", 1, 1, 9, 13, (3, 5), (3, 5)), ConvCase("whole-image", 5, 2, 6, 70, (4,), (4,)))


@each_dtype
@pytest.mark.parametrize("case", ONE_PIXEL, ids=str)
def test_one_pixel(case, dtype):
    for check in (check_exact, check_threads, check_layout, check_channels_last):
        check(case, dtype, np.random.default_rng(0), check.__name__)


def test_zeros_of_underflow_do_not_depend_on_the_layout():
    """Geometries whose odd rows once had -0 or 0 by what lay behind them."""
    check_seeds(check_layout, "bfloat16", (40229, 41081, 42741, 43141, 43717, 43789, 43925, 43941))


@pytest.mark.parametrize(("dtype", "power"), [("float32", -100), ("float64", -600), ("bfloat16", -100)])
def test_zeros_of_underflow_in_depthwise_layers_do_not_depend_on_the_layout(dtype, power):
    """-0 by the last product that meets the image; behind it are those with padding, or none."""
    lay, tiny = LAYOUTS["channels last"], 2.0 ** power
    image = np.full((1, 32, 8, 8), tiny, dtype_of(dtype))
    weight = np.zeros((32, 1, 3, 3), image.dtype)
    for forward, row, column in (True, 0, 0), (False, 2, 2):
        weight[...] = 0
        weight[:, 0, row] = 1
        weight[:, 0, 1, column] = -tiny
        results = []
        for place in np.array, lay:
            out, placed = place(np.ones_like(image)), (place(image), weight)
            if forward:
                iop.conv(*placed, padding=1, groups=32, out=out)
            else:
                iop.conv_backward(place(image), *placed, padding=1, groups=32, output_mask=(True, False, False),
                                  out=(out, None, None))
            results.append(np.ascontiguousarray(out).tobytes())
        assert results[0] == results[1]


def gradients_of_weights(g, x, w, places=(np.array, LAYOUTS["channels last"]), threads=(1, 2, 4), old=None, **keywords):
    """grad_weight, contiguous, of each layout of x and of grad_weight, by each number of threads."""
    for of_x in places:
        for of_weight in np.array, LAYOUTS["channels last"]:
            for count in threads:
                out = of_weight(np.zeros_like(w) if old is None else old.copy())
                iop.conv_backward(g, of_x(x), w, output_mask=(False, True, False), out=(None, out, None),
                                  num_threads=count, accumulate=old is not None, **keywords)
                yield np.ascontiguousarray(out)


def test_subnormal_sums_of_several_tiles_do_not_depend_on_the_layout():
    """Which an instruction that rounds would count as 0."""
    g, x = np.zeros((2, 2, 32, 16, 16), dtype_of("bfloat16"))
    x[0, 0, 8, 8], x[1, 0, 8, 8], g[:, 0, 8, 8] = 1.5 * 2.0**-63, -1.25 * 2.0**-63, 2.0**-63
    w = np.zeros((32, 32, 3, 3), x.dtype)
    assert len({a.tobytes() for a in gradients_of_weights(g, x, w, padding=1)}) == 1


def test_an_inf_beside_sums_that_overflow_does_not_depend_on_threads():
    """3e38 of each sample, and -inf of the second: added to the sum of both, which is inf, it would be NaN."""
    x, g = np.zeros((2, 24, 56, 56), dtype_of("bfloat16")), np.zeros((2, 80, 56, 56), dtype_of("bfloat16"))
    x[:, 0, 5, 5], g[:, 0, 5, 5], x[1, 0, 5, 20], g[1, 0, 5, 20] = 1, 3e38, -np.inf, 1
    w = np.zeros((80, 24, 3, 3), x.dtype)
    assert len({np.isnan(a).tobytes() for a in gradients_of_weights(g, x, w, padding=1)}) == 1


def test_an_inf_before_products_that_overflow_does_not_depend_on_the_layout(monkeypatch):
    """Rows of odd length, or one of all pixels, which is even."""
    monkeypatch.setenv(FORCE, "grad_weight:gemm")
    g, x = np.zeros((2, 1, 64, 8, 9), dtype_of("bfloat16"))
    x[0, 0, 0, :2], g[0, 0, 0, :2] = (np.inf, 3e38), (1, -3e38)
    w = np.zeros((64, 64, 1, 1), x.dtype)
    places = np.array, LAYOUTS["padded rows"], LAYOUTS["channels last"]
    assert len({np.isnan(a).tobytes() for a in gradients_of_weights(g, x, w, places)}) == 1


def test_the_zeros_of_sums_that_are_added_to_zeros(monkeypatch):
    """-0, to which sums are added that underflow to it, with nothing behind them or a zero."""
    monkeypatch.setenv(FORCE, "grad_weight:gemm")
    x = np.full((1, 64, 8, 9), -2.0**-70, dtype_of("bfloat16"))
    w = np.zeros((64, 64, 1, 1), x.dtype)
    places = np.array, LAYOUTS["padded rows"], LAYOUTS["channels last"]
    assert len({a.tobytes() for a in gradients_of_weights(-x, x, w, places, old=-w)}) == 1


@pytest.mark.parametrize("case", [ConvCase("left-out", 6, 1, 40, 24, (5, 5), (3, 3), 1, 1),
                                  ConvCase("one-pixel", 6, 1, 40, 150, (1, 1), (1, 1))], ids=str)
def test_zeros_of_underflow_do_not_depend_on_the_batch(case):
    """Products that underflow, some to -0; and an inf that meets padding, so that its tile is multiplied as a whole:
    alone or beside other samples, the gradients of the weights have the same zeros."""
    data = make_case(case, "float32", np.random.default_rng(0), integers=False)
    for array in data[:2]:
        array *= 2.0 ** -76
    data.grad_output[3, 0, case.size[0] // 2, case.size[1] // 2] = np.inf

    def in_pieces(mask, edges):
        outs = masked(blanks(case, "float32"), mask)
        for first, last in pairwise(edges):
            conv(case, [data.grad_output[first:last], data.input[first:last], data.weight], out=outs, output_mask=mask,
                 accumulate=first > 0)
        return outs
    for algorithm, _, (whole, *cut) in by_each_algorithm(lambda mask: [
            in_pieces((False, *mask[1:]), edges) for edges in ((0, 6), (0, 3, 6), (0, 3, 4, 6))]):
        for got in cut:
            check_same(got, whole, algorithm)


def check_widened(case, dtype, rng, call):
    """What is multiplied in float32, or by two products an instruction, the earlier first, is float32's result rounded
    once; not what AMX sums, nor groups whose taps follow their channels."""
    data = make_case(case, dtype, rng, integers=False)
    lay = lay_at_random(rng)
    results = by_each_algorithm(lambda mask: [
        conv(case, [lay(array.astype(dtype_of(name))) for array in data], output_mask=mask)
        for name in (dtype, "float32")])
    for algorithm, _, (got, wide) in results:
        if "amx" not in algorithm and algorithm not in ("chosen", "grouped"):
            expected = [a if a is None else a.astype(dtype_of(dtype)) for a in wide]
            check_same(got, expected, f"{algorithm}, {call}: {case!r}")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_two_bytes_are_float32_rounded_once(dtype):
    check_seeds(check_widened, dtype, range(150))


def check_batch(case, dtype, rng, call):
    """grad_input of each sample alone; and, where sums stay in the compute type, the batch cut anywhere."""
    if case.batch == 0:
        return
    data = make_bits_case(case, dtype, rng)
    sums_stay = dtype in ("float32", "float64")
    cuts = sorted({0, case.batch, *(int(n) for n in rng.integers(0, case.batch + 1, 3))})

    def pieces(mask, edges):
        """The gradients of pieces of the batch: grad_input by pieces, the others accumulated."""
        outs = masked(blanks(case, dtype), mask)
        for n, (first, last) in enumerate(pairwise(edges)):
            part = [data.grad_output[first:last], data.input[first:last], data.weight]
            if mask[0]:
                conv(case, part, out=(outs[0][first:last], None, None), output_mask=(True, False, False))
            if mask[1] and sums_stay:
                conv(case, part, out=(None, *outs[1:]), output_mask=(False, True, True), accumulate=n > 0)
        return outs

    def call_all(mask):
        alone = pieces((mask[0], False, False), range(case.batch + 1))
        return conv(case, data, output_mask=mask), pieces(mask, cuts), alone
    for algorithm, mask, (whole, cut, alone) in by_each_algorithm(call_all):
        kept = (mask[0], mask[1] and sums_stay, mask[1] and sums_stay)
        check_same(masked(cut, kept), masked(whole, kept), f"{algorithm}, cut at {cuts}, {call}: {case!r}")
        kept = (mask[0], False, False)
        check_same(masked(alone, kept), masked(whole, kept), f"{algorithm}, samples alone, {call}: {case!r}")


@each_dtype
@pytest.mark.parametrize("block", range(2))
def test_bits_do_not_depend_on_the_batch(block, dtype):
    check_seeds(check_batch, dtype, range(60 * block, 60 * block + 60))
    check_seeds(check_batch, dtype, range(6 * block, 6 * block + 6), **LARGE)


def check_other_samples(case, dtype, rng, call):
    """grad_input of all samples but the first, whose grad_output gets an inf or NaN."""
    clean = make_case(case, dtype, rng, integers=False)
    dirty = clean._replace(grad_output=clean.grad_output.copy())
    dirty.grad_output[0].flat[rng.integers(clean.grad_output[0].size)] = rng.choice([np.inf, -np.inf, np.nan])
    for algorithm, mask, (a, b) in by_each_algorithm(lambda mask: [
            conv(case, data, output_mask=(mask[0], False, False)).grad_input for data in (clean, dirty)]):
        if mask[0]:
            check_same([a[1:]], [b[1:]], f"{algorithm}, {call}: {case!r}")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("check", [check_exact, check_threads, check_layout, check_channels_last, check_batch,
                                   check_other_samples])
def test_small_groups(check, dtype):
    """AMX joins them, for bfloat16; the last of them may be fewer."""
    for seed in range(20):
        case, rng = small_groups(seed)
        if check != check_other_samples or case.batch > 1:
            check(case, dtype, rng, f"small groups, seed {seed}")


@each_dtype
def test_inf_and_nan_keep_to_their_group(dtype):
    """What overflows in one group changes no bit of another one's output and grad_input."""
    for seed in range(40):
        case, rng = small_groups(seed)
        g, x, w = make_case(case, dtype, rng)
        results = []
        for value in (0, np.inf):
            g[-1, 0] += value
            x[-1, 0] += value
            output = iop.conv(x, w, **case.keywords)
            grad_input = conv(case, (g, x, w), output_mask=(True, False, False))[0]
            results.append([a[:, a.shape[1] // case.groups:] for a in (output, grad_input)])
        assert not np.isfinite(output.astype(float)).all()
        check_same(*results, f"small groups, seed {seed}: {case!r}")


@each_dtype
def test_inf_and_nan_keep_to_their_sample(dtype):
    """What overflows in one sample changes no bit of another one's grad_input."""
    for seed in range(60):
        case, rng = random_case(seed)
        if case.batch > 1 and case.cout:
            check_other_samples(case, dtype, rng, f"seed {seed}")


@each_dtype
def test_forced_algorithms(dtype, rng, monkeypatch):
    """A name is obeyed, or refused with the algorithm's reason and before anything is written."""
    case = CONV_CASES["tall-image"]
    data, outs = make_case(case, dtype, rng), blanks(case, dtype)
    obeyed, refused = [], []
    for algorithm in ALGORITHMS:
        monkeypatch.setenv(FORCE, algorithm)
        try:
            op = describe(case, data)
        except iop.BadParam as error:
            assert f"{FORCE} names an algorithm that refuses: " in str(error)  # noqa: PT017
            with pytest.raises(iop.BadParam, match=FORCE):
                conv(case, data, out=outs)
            assert all(np.isnan(a.astype(float)).all() for a in outs)
            refused.append(algorithm)
        else:
            assert f": {algorithm.rpartition(':')[2]};" in op.explain()
            obeyed.append(algorithm)
    assert {"grad_input:gemm", "grad_input:taps", "grad_weight:gemm", "grad_weight:im2col"} <= set(obeyed)
    assert "depthwise" in refused


def accepting(case, data):
    """Names of the algorithms that accept a case, and "chosen"."""
    return {algorithm for algorithm, *_ in by_each_algorithm(lambda mask: conv(case, data, output_mask=mask))}


def test_every_algorithm_accepts_something():
    """Else the tests above would say nothing of it. AMX wants a CPU that has it."""
    met = set()
    for dtype in DTYPES:
        for case, rng in (*map(random_case, range(80)), *map(small_groups, range(20))):
            met |= accepting(case, make_case(case, dtype, rng))
    amx = iop.core._core.build_info()["isa"] == "amx"
    assert met - {"chosen"} == {name for name in ALGORITHMS if amx or "amx" not in name}
