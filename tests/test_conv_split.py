"""float32 as a sum of bfloat16, multiplied by AMX: as accurate as by float32 products, on all numbers there are."""
import numpy as np
import pytest
from test_conv import GRADIENTS, ISA, blanks, check_same, check_same_bits, conv, describe

import infiniop_cy as iop
from infiniop_cy.testing import arrange
from infiniop_cy.testing.conv import ConvCase, ConvData, make_case, reference_conv_backward

SPLIT = "INFINIOP_CY_SPLIT"
CASES = [ConvCase("3x3", 3, 1, 40, 48, (17, 19), (3, 3), 1, 1), ConvCase("1x1", 4, 1, 128, 96, (14, 14), (1, 1)),
         ConvCase("strided", 2, 1, 33, 70, (21, 20), (3, 3), 2, 1),
         ConvCase("deep", 5, 1, 32, 160, (9, 9), (3, 3), 1, 1),
         ConvCase("groups", 2, 2, 64, 64, (24, 24), (3, 3), 1, 1),
         ConvCase("late", 2, 1, 224, 288, (7, 7), (3, 3), 1, 1),
         ConvCase("late 1x1", 2, 1, 544, 256, (7, 7), (1, 1))]
each_case = pytest.mark.parametrize("case", CASES, ids=str)


@pytest.fixture(autouse=True)
def needs_amx(on_gpu):
    if on_gpu or ISA != "amx":
        pytest.skip("float32 is multiplied as it is")


def by_both(monkeypatch, case, data, **keywords):
    """The gradients as a sum of bfloat16, and as float32 products."""
    assert " amx; " in describe(case, data).explain()
    split = conv(case, data, **keywords)
    monkeypatch.setenv(SPLIT, "0")
    assert " amx; " not in describe(case, data).explain()
    return split, conv(case, data, **keywords)


def wide(array, rng):
    """Numbers of all magnitudes from 2^-30 to 2^30."""
    return array * np.exp2(rng.integers(-30, 31, array.shape)).astype(np.float32)


def cancelling(array):
    """Large numbers whose sum over channels almost vanishes."""
    signs = np.where(np.arange(array.shape[1]) % 2, 1, -1).reshape(1, -1, *[1] * (array.ndim - 2))
    return array + np.float32(512) * signs.astype(np.float32)


@each_case
@pytest.mark.parametrize("kind", ["normal", "wide", "cancelling"])
def test_error_is_no_larger_than_that_of_float32_products(case, kind, rng, monkeypatch):
    """The largest and the mean error over sum|a||b|. Of numbers of all magnitudes one product makes most of a sum; it
    is added in parts, each rounded: then the two are even, up to chance, as the largest errors of few sums are."""
    slack = 1.6 if kind == "wide" else 1.25 if kind == "cancelling" else 1
    data = make_case(case, "float32", rng, integers=False)
    if kind == "wide":
        data = ConvData(*(wide(a, rng) for a in data))
    elif kind == "cancelling":
        data = ConvData(cancelling(data.grad_output), data.input, data.weight)
    reference = reference_conv_backward(*data, *case.geometry)
    sizes = reference_conv_backward(*map(np.abs, data), *case.geometry)
    for name, split, plain, exact, size in zip(GRADIENTS[:2], *by_both(monkeypatch, case, data), reference, sizes):
        by_parts, by_products = (np.abs(a.astype(float) - exact) / np.maximum(size, 1e-300) for a in (split, plain))
        assert by_parts.max() <= slack * by_products.max(), name
        assert by_parts.mean() <= max(1, slack - 0.25) * by_products.mean(), name


@each_case
@pytest.mark.parametrize("tensor", range(3), ids=["grad_output", "input", "weight"])
@pytest.mark.parametrize("value", [1e-45, 1e-39, 1e-30, 1e-13, 1e19, 3.4e38, np.inf, np.nan])
def test_numbers_that_bfloat16_cannot_hold(case, tensor, value, rng, monkeypatch):
    """A sample that has such a number is computed by float32 products, the others are not. Weights are everyone's."""
    data = make_case(case, "float32", rng, integers=False)
    expected = conv(case, data)
    n = int(rng.integers(case.batch))
    array = data[tensor][n:n + 1] if tensor < 2 else data[tensor]
    array.flat[rng.integers(array.size)] = value
    split, plain = by_both(monkeypatch, case, data)
    held = value == 1e-13 and tensor == 0
    for sample in range(case.batch):
        by_products = (tensor == 2 or (tensor == 0 and sample == n)) and not held
        check_same(split.grad_input[sample:sample + 1],
                   plain.grad_input[sample:sample + 1] if by_products else expected.grad_input[sample:sample + 1]
                   if tensor != 0 or sample != n else split.grad_input[sample:sample + 1], f"sample {sample}")
    assert np.array_equal(np.isfinite(split.grad_weight), np.isfinite(plain.grad_weight))
    finite = np.isfinite(plain.grad_weight)
    scale = np.abs(plain.grad_weight[finite]).max(initial=0)
    assert np.allclose(split.grad_weight[finite], plain.grad_weight[finite], rtol=1e-5, atol=1e-5 * min(scale, 1e3))


@each_case
@pytest.mark.parametrize("small", [2.0 ** -80, 2.0 ** -126, 2.0 ** -140])
def test_small_numbers_keep_float32_accuracy(case, small, rng):
    """Products and parts that AMX would count as 0."""
    data = make_case(case, "float32", rng)
    data = ConvData((data.grad_output * small).astype(np.float32), data.input, data.weight)
    for got, exact in zip(conv(case, data), reference_conv_backward(*data, *case.geometry)):
        assert np.array_equal(got, exact.astype(np.float32))  # small integers, scaled by a power of two


@each_case
def test_mixed_samples_accumulate_and_cut(case, rng):
    """Samples of both kinds, in order: the batch cut anywhere and accumulated gives the same bits."""
    data = make_case(case, "float32", rng, integers=False)
    for n in range(0, case.batch, 2):
        data.grad_output[n].flat[3] = 1e-33
    data.input[case.batch - 1].flat[5] = 1e-20
    whole = conv(case, data, out=blanks(case, "float32"))
    for cut in range(1, case.batch):
        outs = blanks(case, "float32")
        for part, accumulate in ((slice(0, cut), False), (slice(cut, None), True)):
            piece = ConvData(data.grad_output[part], data.input[part], data.weight)
            conv(case, piece, out=(None, *outs[1:]), output_mask=(False, True, True), accumulate=accumulate)
            conv(case, piece, out=(outs[0][part], None, None), output_mask=(True, False, False))
        check_same(outs, whole, f"cut at {cut}")
    for threads in (2, 3):
        check_same(conv(case, data, num_threads=threads), whole, f"{threads} threads")


def late_layer(rng):
    """A few small images of many channels; with some, units and tasks end in the midst of others."""
    channels = [int(n) for n in rng.choice([130, 224, 260, 288, 520], 2)]
    kernel, size = ((1, 1), (3, 3), (3, 3), (1, 3), (5, 5))[rng.integers(5)], int(rng.integers(6, 9))
    stride = int(rng.choice([1, 1, 2])) if kernel == (1, 1) else 1
    return ConvCase("late", int(rng.integers(1, 5)), int(rng.choice([1, 1, 2])), *channels, (size, size + stride - 1),
                    kernel, stride, tuple(k // 2 for k in kernel))


@pytest.mark.parametrize("seed", range(24))
def test_late_layers(seed, monkeypatch):
    """What many tasks need is packed once, what one needs is packed by it: exact for integers, in every dtype, with
    weights of either layout, for any number of threads. inf, NaN and what bfloat16 cannot hold are found by tasks, too,
    and then all is as by products."""
    rng = np.random.default_rng(seed)
    case, dtype = late_layer(rng), ("float32", "bfloat16", "float16")[seed % 3]
    data = make_case(case, dtype, rng)
    exact = reference_conv_backward(*data, *case.geometry)
    output = iop.conv(data.input, data.weight, num_threads=1, **case.keywords)
    for threads in (1, 2, 3):
        with iop.threads(threads):
            for weight in (data.weight, arrange(data.weight, "channels last")):
                laid = ConvData(data.grad_output, data.input, weight)
                out = (None, np.full_like(weight, 3), None)
                for name, got, want in zip(GRADIENTS, conv(case, laid, out=out), exact):
                    check_same(got, want.astype(dtype), f"{case} {dtype} {name}, {threads} threads")
                check_same(iop.conv(data.input, weight, **case.keywords), output, f"{case} {dtype} output")
    for tensor in range(3):
        check_spoilt_layer(case, data, tensor, rng, monkeypatch)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("size", "kernel", "stride", "padding"), [
    ((1,), (2,), 2, ((1, 5),)), ((1,), (5,), 3, ((3, 1),)), ((2, 1), (3, 4), 3, ((2, 2), (3, 3))),
    ((1, 4), (2, 3), 2, ((1, 1), (1, 1)))])
def test_images_smaller_than_the_stride(size, kernel, stride, padding, dtype, rng):
    """Some taps meet no pixel, so that the only phase has fewer than there are."""
    for channels in ((27, 26), (130, 96)):
        case = ConvCase("small", 1, 1, *channels, size, kernel, stride, padding)
        data = make_case(case, dtype, rng)
        for name, got, want in zip(GRADIENTS, conv(case, data), reference_conv_backward(*data, *case.geometry)):
            check_same(got, want.astype(dtype), f"{case} {dtype} {name}")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_more_input_channels_than_are_saved_at_a_time(dtype, rng):
    """One task has all of them, in rows of grad_weight that are longer than what a kernel joins."""
    case = ConvCase("many columns", 2, 1, 1100, 72, (9, 9), (1, 1))
    data = make_case(case, dtype, rng)
    exact = reference_conv_backward(*data, *case.geometry)[1]
    with iop.threads(1):
        check_same(conv(case, data).grad_weight, exact.astype(dtype), dtype)


def check_spoilt_layer(case, data, tensor, rng, monkeypatch):
    """One number of a tensor is inf, NaN or too small: samples are computed alike alone and beside others, and the
    gradients are those without AMX, up to rounding."""
    spoilt = ConvData(*(a.copy() for a in data))
    spoilt[tensor].flat[rng.integers(spoilt[tensor].size)] = rng.choice([np.inf, np.nan, 6e-8])
    alone = [conv(case, ConvData(spoilt.grad_output[n:n + 1], spoilt.input[n:n + 1], spoilt.weight),
                  output_mask=(True, False, False)).grad_input for n in range(case.batch)]
    got = conv(case, spoilt)
    check_same_bits(got.grad_input, np.concatenate(alone), f"{case} sample by sample, {tensor}")
    if data.input.dtype in (np.float32, np.float16):
        with monkeypatch.context() as patch:
            patch.setenv(SPLIT, "0")
            for name, a, b in zip(GRADIENTS[:2], got, conv(case, spoilt)):
                check_close(a, b, f"{case} {name}, {tensor}")


def check_close(got, want, text):
    """Up to rounding, with the same inf and NaN."""
    got, want = got.astype(float), want.astype(float)
    scale = np.abs(want[np.isfinite(want)]).max(initial=1)
    assert np.allclose(got, want, 0, scale * 1e-3, equal_nan=True), text


def reads_all(case, of_input):
    """Whether every pixel of the input meets a tap, or every pixel of the output has one inside the image, axis by
    axis."""
    stride, pairs, dilation, _ = case.geometry
    for axis, (n, k) in enumerate(zip(case.size, case.kernel)):
        outputs = np.arange((n + sum(pairs[axis]) - dilation[axis] * (k - 1) - 1) // stride[axis] + 1)
        met = outputs[:, None] * stride[axis] - pairs[axis][0] + np.arange(k) * dilation[axis]
        inside = (met >= 0) & (met < n)
        if not (len(np.unique(met[inside])) == n if of_input else inside.any(1).all()):
            return False
    return True


def test_what_looks_on_the_way_reads_all_pixels():
    """Where a pixel is read by nothing, packing cannot find what is in it."""
    rng, met = np.random.default_rng(1), {True: 0, False: 0}
    for _ in range(2000):
        kernel, stride, dilation = (int(rng.choice(some)) for some in ([1, 2, 3, 5], [1, 1, 2, 3], [1, 1, 2, 3, 9]))
        size, padding = int(rng.integers(1, 14)), int(rng.integers(0, dilation * (kernel - 1) + 3))
        if size + 2 * padding <= dilation * (kernel - 1):
            continue
        case = ConvCase("one axis", 1, 1, 1, 1, (size,), (kernel,), stride, padding, dilation)
        for step in describe(case, make_case(case, "float32", rng)).plan.facts["steps"]:
            wanted = reads_all(case, False) and ("grad_weight" not in step["gradients"] or reads_all(case, True))
            assert step["looks_first"] or wanted, f"{case} {step['gradients']}"
            met[step["looks_first"]] += wanted
    assert 9 * met[True] < met[False]  # where all is read, it is seldom looked first


def geometry_read_in_part(rng):
    """A convolution whose borders, gaps and padding may leave pixels that nothing reads; some are like first layers."""
    stride, dilation = (tuple(int(n) for n in rng.choice(some, 2)) for some in ([1, 1, 1, 2, 3], [1, 1, 2]))
    size = tuple(int(n * s) for n, s in zip(rng.integers(16, 25, 2), stride))
    padding = tuple((int(a), int(b)) for a, b in rng.integers(0, 5, (2, 2)))
    kind = rng.integers(3)
    if kind == 0:
        return ConvCase("few channels", 2, 1, 3, 64, (24, 24), (7, 5), 2, padding)
    channels, kernel = (256, (1, 1)) if kind == 1 else (160, tuple(int(k) for k in rng.integers(1, 5, 2)))
    return ConvCase("read in part", 2, 1, channels, channels, size, kernel, stride, padding, dilation)


def spoil_pixel(array, rng):
    """Make one number of sample 0 one that bfloat16 cannot hold, and one in each channel of sample 1, so that it is
    found. Pixels of the border come up as often as others."""
    pixel = tuple(int(rng.choice([0, n - 1, rng.integers(n)])) for n in array.shape[2:])
    array[(0, int(rng.integers(array.shape[1])), *pixel)] = rng.choice([1e-39, 1e-20, -1e30, np.nan])
    array[(1, slice(None), *(n // 2 for n in array.shape[2:]))] = 1e-30


@pytest.mark.parametrize("seed", range(80))
def test_a_sample_is_judged_alike_alone_and_beside_others(seed, monkeypatch):
    """Packing looks for such numbers as it reads, where it reads all pixels; then all samples are looked at, as they
    are where gradients are added to others. No pixel may be seen by one and not by the other."""
    rng = np.random.default_rng(seed)
    case = geometry_read_in_part(rng)
    data = make_case(case, "float32", rng, integers=False)
    for tensor in (0, 1):
        for _ in range(4):
            spoilt = ConvData(*(a.copy() for a in data))
            spoil_pixel(spoilt[tensor], rng)
            alone = ConvData(spoilt.grad_output[:1], spoilt.input[:1], spoilt.weight)
            zeros = (np.zeros_like(alone.input), np.zeros_like(data.weight), None)
            looked_at = conv(case, alone, out=zeros, output_mask=(True, True, False), accumulate=True)
            got = conv(case, alone)
            for name, a, b in zip(GRADIENTS[:2], got, looked_at):
                check_same_bits(a + np.float32(0), b + np.float32(0), f"{case} {name}")
            check_same_bits(got.grad_input, conv(case, spoilt).grad_input[:1], f"{case} beside others")
            output = iop.conv(alone.input, data.weight, **case.keywords)
            check_same_bits(output, iop.conv(spoilt.input, data.weight, **case.keywords)[:1], f"{case} output")
            with monkeypatch.context() as patch:
                patch.setenv(SPLIT, "0")
                assert np.allclose(output, iop.conv(alone.input, data.weight, **case.keywords), 1e-3, 1e-3,
                                   equal_nan=True), f"{case} output"
