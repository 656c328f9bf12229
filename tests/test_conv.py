"""conv_backward: the right values, the same bits everywhere, and nothing written that should not be."""
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import device_mirror
import numpy as np
import pytest
from device_mirror import calculate, open_handle
from hypothesis import given, settings
from hypothesis import strategies as st

import infiniop_cy as iop
from infiniop_cy.core._core import build_info, conv_algorithms
from infiniop_cy.testing import DTYPES, LAYOUTS, arrange, dtype_of, random_values, same_bits, ulp_of
from infiniop_cy.testing.conv import (
    CONV_CASES,
    ConvCase,
    make_case,
    reference_conv_backward,
    reference_conv_forward,
)

ISA = build_info()["isa"]
GRADIENTS = ("grad_input", "grad_weight", "grad_bias")
MASKS = tuple(product((False, True), repeat=3))
ALL = tuple(CONV_CASES.values())
FEW = tuple(CONV_CASES[name] for name in (
    "1d-dilated", "2d-1x1", "2d-groups", "2d-stride", "3d-everything", "tiny-images", "large-image", "many-channels",
    "parallel-stride", "2d-depthwise", "depthwise-stride", "far-taps"))
PARALLEL = tuple(case for case in ALL if case.name.startswith("parallel"))
SYMMETRIC = tuple(case for case in ALL if all(before == after for before, after in case.geometry[1]))
CUT = tuple(case for case in ALL if case.batch > 1)

each_case = pytest.mark.parametrize("case", ALL, ids=str)
few_cases = pytest.mark.parametrize("case", FEW, ids=str)
symmetric_cases = pytest.mark.parametrize("case", SYMMETRIC, ids=str)
each_dtype = pytest.mark.parametrize("dtype", DTYPES)
each_float = pytest.mark.parametrize("dtype", ["float32", "float64"])


def conv(case, data, **keywords):
    return iop.conv_backward(*data, **case.keywords, **keywords)


FORCE = "INFINIOP_CY_CONV"
ALGORITHMS = [name for name in conv_algorithms() if not name.startswith("output:")]  # of the gradients


def gradients_of(algorithm):
    """The mask of what an algorithm computes; grad_bias, too, where it is summed on the way."""
    return tuple(algorithm in ("depthwise", "grouped", f"{gradient}:{algorithm.rpartition(':')[2]}")
                 or (gradient == "grad_bias" and not algorithm.startswith("grad_input")) for gradient in GRADIENTS)


def forcing_each(algorithms, call):
    """(algorithm, call(algorithm)) for every one that accepts."""
    try:
        for algorithm in algorithms:
            os.environ[FORCE] = algorithm
            try:
                result = call(algorithm)
            except iop.BadParam as error:
                if FORCE not in str(error):
                    raise
                continue
            yield algorithm, result
    finally:
        os.environ.pop(FORCE, None)


def by_each_algorithm(call):
    """(algorithm, mask, call(mask)) for every algorithm that accepts, and for the choice of the library itself."""
    yield "chosen", (True, True, True), call((True, True, True))
    for algorithm, result in forcing_each(ALGORITHMS if device_mirror.DEVICE == "cpu" else (),
                                          lambda algorithm: call(gradients_of(algorithm))):
        yield algorithm, gradients_of(algorithm), result


def masked(values, mask):
    return [value if wanted else None for value, wanted in zip(values, mask)]


def blanks(case, dtype, layout="contiguous"):
    """Outputs full of NaN: a pixel that is not written shows."""
    shapes = (*case.shapes[1:], (case.cout,))
    return tuple(arrange(np.full(shape, np.nan, dtype_of(dtype)), layout) for shape in shapes)


def random_outs(case, dtype, rng):
    return tuple(random_values(rng, out.shape, dtype) for out in blanks(case, dtype))


def copies(arrays):
    return tuple(a.copy() for a in arrays)


def check_same_bits(got, expected, call):
    if not same_bits(got, expected):
        where = np.argwhere(~((got == expected) | ((got != got) & (expected != expected))))
        raise AssertionError(f"{call}: {len(where)} of {got.size} differ, first at {where[:3].tolist()}")


def check_same(got, expected, call=""):
    """Bit for bit; None for None."""
    for name, a, b in zip(GRADIENTS, got, expected):
        assert (a is None) == (b is None)
        if a is not None:
            check_same_bits(a, b, f"{call} {name}")


def check_values(got, reference, call):
    """== with the reference rounded once, NaN equal to NaN; where a gradient is None it was not asked for."""
    for name, a, exact in zip(GRADIENTS, got, reference):
        if a is None:
            continue
        assert a.shape == exact.shape
        with np.errstate(invalid="ignore"):
            rounded = exact.astype(a.dtype).astype(float)
        np.testing.assert_array_equal(a.astype(float), rounded, f"{call} {name}")


def lay_at_random(rng):
    """A function that copies an array into a layout that it draws; None stays None."""
    layouts = [*LAYOUTS.values()]
    return lambda array: None if array is None else layouts[int(rng.integers(len(layouts)))](array)


# ---- values

@pytest.mark.parametrize("name", ["1d-dilated", "2d-one-sided", "2d-stride-over-input", "3d-everything"])
def test_reference_is_the_definition(name, rng):
    """The sums of conv.py written as loops over single products."""
    case = CONV_CASES[name]
    g, x, w = make_case(case, "float64", rng)
    stride, pairs, dilation, groups = case.geometry
    y, gx, gw = np.zeros_like(g), np.zeros_like(x), np.zeros_like(w)
    for (n, co, *o), (ci, *k) in product(np.ndindex(g.shape), np.ndindex(w.shape[1:])):
        i = [a * s + b * d - p for a, s, b, d, (p, _) in zip(o, stride, k, dilation, pairs)]
        if all(0 <= a < size for a, size in zip(i, case.size)):
            here = (n, co // (case.cout // groups) * w.shape[1] + ci, *i)
            tap, pixel = (co, ci, *k), (n, co, *o)
            y[pixel] += x[here] * w[tap]
            gx[here] += g[pixel] * w[tap]
            gw[tap] += g[pixel] * x[here]
    np.testing.assert_array_equal(reference_conv_forward(x, w, *case.geometry), y)
    for got, expected in zip(reference_conv_backward(g, x, w, *case.geometry), (gx, gw, g.swapaxes(0, 1).reshape(
            case.cout, -1).sum(axis=1))):
        np.testing.assert_array_equal(got, expected)


@each_case
@each_dtype
def test_exact(case, dtype, rng):
    data = make_case(case, dtype, rng)
    before = copies(data)
    reference = reference_conv_backward(*before, *case.geometry)

    def into_blanks(mask):
        outs = masked(blanks(case, dtype), mask)
        got = conv(case, data, output_mask=mask, out=outs)
        assert all(a is b for a, b in zip(got, outs))
        return got
    results = {algorithm: got for algorithm, _, got in by_each_algorithm(into_blanks)}
    for algorithm, got in results.items():
        check_values(got, reference, f"{algorithm}, {case}")
    check_same(conv(case, data), results["chosen"])
    assert all(map(same_bits, data, before)), "an input was changed"


@st.composite
def geometries(draw):
    axes, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))

    def each(strategy):
        return tuple(draw(strategy) for _ in range(axes))
    kernel, dilation = each(st.integers(1, 4)), each(st.integers(1, 3))
    pairs = each(st.tuples(st.integers(0, 5), st.integers(0, 5)))
    least = [max(0, d * (k - 1) + 1 - sum(p)) for k, d, p in zip(kernel, dilation, pairs)]
    size = tuple(n + draw(st.integers(0, 4)) for n in least)
    return ConvCase("drawn", draw(st.integers(0, 5)), groups, groups * draw(st.integers(0, 5)),
                    groups * draw(st.integers(0, 5)), size, kernel, each(st.sampled_from((1, 2, 3, 11))), pairs,
                    dilation)


@settings(max_examples=150)
@given(geometries(), st.sampled_from(DTYPES), st.sampled_from([*LAYOUTS]), st.integers(1, 3), st.integers(0, 9))
def test_any_geometry(case, dtype, layout, num_threads, seed):
    data = make_case(case, dtype, np.random.default_rng(seed))
    got = conv(case, [arrange(a, layout) for a in data], out=blanks(case, dtype, layout), num_threads=num_threads)
    check_values(got, reference_conv_backward(*data, *case.geometry), case)


@each_case
def test_adjoint(case, rng):
    """<conv(x, w), g> = <x, grad_input> = <w, grad_weight>; integers, so exactly."""
    g, x, w = make_case(case, "float64", rng)
    got = conv(case, (g, x, w))
    product = np.vdot(reference_conv_forward(x, w, *case.geometry), g)
    assert (np.vdot(x, got.grad_input), np.vdot(w, got.grad_weight)) == (product, product)


def tensor_core_error(terms, size):
    """A bound on the error of a GPU's sum of so many 16-bit products, whose magnitudes add up to `size`.

    Tensor cores add a few products at a time and cut off, of each and of their sum, what is below a last place of at
    most eps = 2**-23 of `size`: two such places a product, as long as there are but 256 of them. Those runs, and the
    units that a weight gradient is cut into, are then added with rounding, by at most eps/2 each."""
    eps = np.finfo(np.float32).eps
    return (2 * min(terms, 256) + terms / 256 + 1) * eps * size


@each_case
@each_dtype
def test_accuracy(case, dtype, rng, on_gpu):
    """|error| <= K*u*sum|a||b|: K fused multiply-adds in any order round K times by at most u = eps/2 of a partial
    sum, which sum|a||b| bounds; twice in float64, whose reference rounds as often. 16 bits: and half an ulp."""
    data = make_case(case, dtype, rng, integers=False)
    reference = reference_conv_backward(*data, *case.geometry)
    sizes = reference_conv_backward(*map(np.abs, data), *case.geometry)
    eps = np.finfo(np.float64 if dtype == "float64" else np.float32).eps
    for algorithm, _, gradients in by_each_algorithm(lambda mask: conv(case, data, output_mask=mask)):
        for name, got, exact, size, terms in zip(GRADIENTS, gradients, reference, sizes, case.terms):
            if got is None:
                continue
            bound = terms * eps / 2 * size * (2 if dtype == "float64" else 1)
            if dtype in ("float16", "bfloat16"):
                if on_gpu:
                    bound = tensor_core_error(terms, size)
                bound += ulp_of(np.abs(exact) + bound, dtype) / 2
            excess = np.abs(got.astype(float) - exact) - bound
            assert (excess <= 0).all(), f"{algorithm}, {case} {name}: {excess.max()} over the bound"


@each_case
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("accumulate", [False, True], ids=["overwrite", "accumulate"])
def test_16_bit_results_are_float32_ones_rounded_once(case, dtype, accumulate, rng, on_gpu):
    data, old = make_case(case, dtype, rng, integers=False), random_outs(case, dtype, rng)
    wide = conv(case, [a.astype(np.float32) for a in data], out=[a.astype(np.float32) for a in old],
                accumulate=accumulate)
    got = conv(case, data, out=old, accumulate=accumulate)
    if not on_gpu and ISA != "amx":
        check_same(got, [a.astype(dtype_of(dtype)) for a in wide], case)
        return
    sizes = reference_conv_backward(*map(np.abs, data), *case.geometry)
    for a, exact, before, size, terms in zip(got, wide, old, sizes, case.terms):
        error = np.abs(a.astype(float) - exact.astype(float))
        if on_gpu:  # beside the float32 sum's own error, terms roundings
            size = size + np.abs(before.astype(float))
            bound = tensor_core_error(terms, size) + terms * np.finfo(np.float32).eps / 2 * size
        else:  # AMX adds in another order: float32 results a few roundings apart
            bound = 4e-6 * max(1, np.abs(exact).max(initial=0))
        assert (error <= ulp_of(np.abs(exact) + bound, dtype) / 2 + bound).all()


# float64 is computed as float32 is without AMX, and float16 is as it is with AMX.
NONFINITE = [(dtype, where) for dtype, places in (
    ("float32", ("grad_output", "input", "weight", "all")), ("bfloat16", ("grad_output", "input", "weight", "all")),
    ("float16", ("all",)), ("float64", ("all",))) for where in places]


@each_case
@pytest.mark.parametrize(("dtype", "where"), NONFINITE)
def test_inf_and_nan_reach_what_they_touch(case, dtype, where, rng):
    """Weights' inf and NaN never meet padding; in grad_weight padding is a 0 like any other."""
    data = make_case(case, dtype, rng)
    targets = data if where == "all" else (getattr(data, where),)
    for target, value in product(targets, (np.inf, -np.inf, np.nan)):
        if target.size:
            target.flat[rng.integers(target.size)] = value
    with np.errstate(invalid="ignore"):
        reference = reference_conv_backward(*data, *case.geometry)
    for algorithm, _, got in by_each_algorithm(lambda mask: conv(case, data, output_mask=mask)):
        check_values(got, reference, f"{algorithm}, {case}")


def test_inf_times_inf_is_inf(rng):
    """Also where a weight's inf had to be kept from padding."""
    data = make_case(CONV_CASES["2d-1x1"], "float32", rng)
    for array in data:
        array[...] = np.abs(array) + 1
    data.grad_output[0, 0, 3, 3] = data.weight[0, 0, 0, 0] = np.inf
    assert np.isposinf(conv(CONV_CASES["2d-1x1"], data).grad_input[0, 0]).all()


# ---- parameters

@pytest.mark.parametrize(("kernel", "padding", "pairs"), [
    ((3, 2), 2, ((2, 2), (2, 2))), ((3, 2), (1, 3), ((1, 1), (3, 3))), ((3, 2), np.array([1, 3]), ((1, 1), (3, 3))),
    ((3, 2), ((1, 0), 2), ((1, 0), (2, 2))), ((3, 2), [[0, 2], [1, 4]], ((0, 2), (1, 4))),
    ((3, 2), "valid", ((0, 0), (0, 0))), ((3, 2), "same", ((2, 2), (1, 2))), ((1, 4), "same", ((0, 0), (4, 5))),
    ((3,), 1, ((1, 1),)), ((3,), (2,), ((2, 2),)), ((3,), [(2, 1)], ((2, 1),)),
    ((2, 3, 1), "same", ((1, 1), (3, 3), (0, 0))),
], ids=str)
def test_padding_forms(kernel, padding, pairs, rng):
    dilation = (2, 3, 1)[:len(kernel)]
    case = ConvCase("padding", 2, 1, 3, 4, (9, 10, 3)[:len(kernel)], kernel, 1, pairs, dilation)
    data = make_case(case, "float32", rng)
    expected = conv(case, data)
    check_same(iop.conv_backward(*data, padding=padding, dilation=dilation), expected)
    if isinstance(padding, str) and padding == "same":
        assert case.out_size == case.size


@pytest.mark.parametrize("two", [2, (2, 2), [2, 2], np.int32(2), np.array([2, 2])], ids=repr)
def test_number_forms(two, rng):
    """An integer or one per axis, for the function and the descriptor."""
    case = ConvCase("forms", 2, 1, 3, 4, (9, 8), (3, 2), 2, 2, 2)
    data, outs = make_case(case, "float32", rng), blanks(case, "float32")
    expected = conv(case, data)
    check_same(iop.conv_backward(*data, stride=two, padding=two, dilation=two), expected)
    with open_handle() as handle:
        tensors, bias = map(iop.TensorDescriptor.from_array, data), iop.TensorDescriptor((4,), "float32")
        op = iop.ConvBackwardDescriptor(handle, *tensors, bias, two, two, two, 1)
        calculate(op, iop.empty_workspace(handle, op.workspace_size), *outs, *data)
    check_same(outs, expected)


@few_cases
@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_output_mask(case, mask, rng):
    data = make_case(case, "float32", rng, integers=False)
    expected = [a if wanted else None for a, wanted in zip(conv(case, data), mask)]
    check_same(conv(case, data, output_mask=mask), expected, case)


# ---- memory

@pytest.mark.parametrize(("case", "layout", "dtype"), [
    pytest.param(case, layout, ("bfloat16", "float32")[(i + j) % 2], id=f"{case}-{layout}")
    for i, case in enumerate(FEW) for j, layout in enumerate(LAYOUTS)])
def test_layout(case, layout, dtype, rng):
    """Inputs and outputs in any strides: the bits of contiguous ones, and nothing written between the elements."""
    lay = LAYOUTS[layout]
    data = make_case(case, dtype, rng, integers=False)
    expected = conv(case, data)
    check_same(conv(case, map(lay, data)), expected, case)
    outs = tuple(map(lay, blanks(case, dtype)))
    for inputs in (data, tuple(map(lay, data))):
        got = conv(case, inputs, out=outs)
        assert all(a is b for a, b in zip(got, outs))
        check_same(got, expected, case)
    for out in outs:
        out[...] = 0
        while isinstance(out.base, np.ndarray):
            out = out.base
        assert not out.astype(float).any(), "written outside of the elements"


@few_cases
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("where", ["grad_output", "input", "weight"])
def test_broadcast_input(case, where, axis, rng):
    """Stride 0 gives the bits of a contiguous copy."""
    data = make_case(case, "float32", rng, integers=False)
    array = getattr(data, where)
    repeated = np.broadcast_to(array.take([0], axis), array.shape)
    check_same(conv(case, data._replace(**{where: repeated})), conv(case, data._replace(**{where: repeated.copy()})))


@pytest.mark.parametrize("accumulate", [False, True], ids=["overwrite", "accumulate"])
@pytest.mark.parametrize("offset", [0, 1, -1, 30])
@pytest.mark.parametrize("gradient", [0, 1, 2], ids=GRADIENTS)
@pytest.mark.parametrize("where", ["grad_output", "input", "weight"])
def test_out_that_overlaps_an_input(where, gradient, offset, accumulate, rng):
    """As if there were no overlap."""
    case = CONV_CASES["2d"]
    data, outs = make_case(case, "float32", rng), [None] * 3
    mask = tuple(i == gradient for i in range(3))
    shape, source = blanks(case, "float32")[gradient].shape, getattr(data, where)
    memory = rng.standard_normal(2000).astype(np.float32)
    shared = memory[500:500 + source.size].reshape(source.shape)
    shared[...] = source
    start = 500 + offset
    outs[gradient] = memory[start:start + np.prod(shape)].reshape(shape)
    apart = [None if out is None else out.copy() for out in outs]
    expected = conv(case, data, output_mask=mask, out=apart, accumulate=accumulate)
    got = conv(case, data._replace(**{where: shared}), output_mask=mask, out=outs, accumulate=accumulate)
    check_same(got, expected)


@pytest.mark.parametrize(("first", "second"), [(0, 1), (0, 2), (1, 2)])
def test_outs_that_overlap_each_other(first, second, rng):
    case = CONV_CASES["2d"]
    outs, memory = list(blanks(case, "float32")), np.full(3000, 7, np.float32)
    for i, start in ((first, 0), (second, outs[first].size - 1)):
        outs[i] = memory[start:start + outs[i].size].reshape(outs[i].shape)
    with pytest.raises(iop.BadParam, match=f"{GRADIENTS[second]} overlaps {GRADIENTS[first]}"):
        conv(case, make_case(case, "float32", rng), out=outs)
    assert (memory == 7).all()
    outs[second] = blanks(case, "float32")[second]
    conv(case, make_case(case, "float32", rng), out=outs)  # the same call without the overlap


# ---- accumulation, batches, threads

@each_case
@each_float
def test_accumulate_adds_to_grad_input(case, dtype, rng):
    data, old = make_case(case, dtype, rng, integers=False), random_outs(case, dtype, rng)
    expected = old[0] + conv(case, data).grad_input
    got = conv(case, data, out=old, accumulate=True)
    assert got.grad_input is old[0]
    assert same_bits(got.grad_input, expected)


@pytest.mark.parametrize("case", CUT, ids=str)
@each_float
def test_batch_cut_anywhere(case, dtype, rng):
    """Pieces of the batch, accumulated, give the bits of the whole."""
    data = make_case(case, dtype, rng, integers=False)
    whole = conv(case, data)
    for cuts in ([1], [case.batch // 2], [case.batch - 1], [0, 1, case.batch - 1], [*range(1, case.batch)][:20]):
        outs = [None, *blanks(case, dtype)[1:]]
        for first, last in zip([0, *cuts], [*cuts, case.batch]):
            conv(case, [data.grad_output[first:last], data.input[first:last], data.weight], out=outs,
                 output_mask=(False, True, True), accumulate=first > 0)
        check_same(outs, [None, *whole[1:]], f"{case} cut at {cuts}")


@each_dtype
def test_empty_batch(dtype, rng):
    """Nothing to add: zeros, or what was there."""
    case = CONV_CASES["batch-0"]
    data, outs = make_case(case, dtype, rng), blanks(case, dtype)
    conv(case, data, out=outs)
    assert all((out == 0).all() for out in outs)
    old = random_outs(case, dtype, rng)
    check_same(conv(case, data, out=copies(old), accumulate=True), old)


@pytest.mark.parametrize("empty", range(3), ids=str)
@pytest.mark.parametrize("channels", [1, 10, 40])
def test_images_without_pixels(empty, channels, on_gpu):
    """They are part of larger ones whose channels lie side by side, so that their strides say so, too. All taps meet
    padding."""
    if on_gpu:
        pytest.skip("plans are the CPU's")
    size = [2, 2, 2]
    size[empty] = 0
    images = np.ones((2, 2, 2, 2, channels), np.float32)[:, :size[0], :size[1], :size[2]]
    x = np.moveaxis(images, -1, 1)
    w = np.moveaxis(np.ones((20, 1, 1, 1, channels), np.float32), -1, 1)
    g = np.ones((2, 20, *(4 + s for s in size)), np.float32)
    for threads in (1, 2):
        _, grad_weight, grad_bias = iop.conv_backward(g, x, w, padding=2, out=(x, None, None), num_threads=threads)
        assert not grad_weight.any()
        assert (grad_bias == g[:, 0].size).all()


@pytest.mark.parametrize("case", dict.fromkeys((*FEW, *PARALLEL)), ids=str)
@each_dtype
def test_threads_do_not_change_bits(case, dtype, rng, on_gpu):
    """The parallel cases have work for all of them (test_guards.py counts them)."""
    if on_gpu:
        pytest.skip("the threads are the CPU's")
    data = make_case(case, dtype, rng, integers=False)
    expected = conv(case, data, num_threads=1)
    for n in (2, 3, 7):
        check_same(conv(case, data, num_threads=n), expected, f"{case} num_threads={n}")


# ---- algorithms

# What explain() says of grad_input and grad_weight, whatever the instruction set and dtype.
CHOSEN = {"2d-depthwise": ("depthwise", "depthwise"), "depthwise-3d": ("depthwise", "depthwise"),
          "depthwise-stride": ("depthwise", "depthwise"), "depthwise-valid": ("depthwise", "depthwise"),
          "few-channels": ("pixels", None), "few-channels-stride": ("pixels", "dot"), "far-taps": ("taps", "im2col"),
          "tall-image": ("gemm", "gemm"), "channels-over-tasks": ("gemm", "gemm"),
          "parallel-tiny-images": ("gemm", "gemm"), "2d-kernel-is-image": ("col2im", "outer"),
          "2d-stride-over-kernel": ("col2im", "outer")}
CHOSEN_FOR_AMX = {name: ("amx", "amx") for name in (
    "tall-image", "channels-over-tasks", "parallel-tiny-images", "wide-3d")} | {
        "few-inputs-stride": ("amx_fused", "amx_fused")}


# Where nearly all pixels under taps meet padding, so that what multiplies it takes ten times as long, or more.
MOSTLY_PADDING = (ConvCase("nearly-covering", 2, 1, 23, 64, (8, 8, 8), (7, 7, 7)),
                  ConvCase("far-depthwise", 2, 17, 17, 17, (41, 45), (3, 5), dilation=(20, 11)),
                  ConvCase("far-groups", 2, 43, 86, 86, (29, 13, 41), (5, 5, 5), stride=(2, 1, 1), dilation=(7, 3, 10)))


def check_chosen(case, dtype, expected, rng):
    text = describe(case, make_case(case, dtype, rng)).explain()
    for gradient, algorithm in zip(GRADIENTS, expected):
        assert algorithm is None or any(gradient in line.split(": ")[0].split(" and ") and f": {algorithm};" in line
                                        for line in text.splitlines()), text
    assert "threads: " in text
    assert "workspace: " in text


def test_groups_of_few_channels_that_lie_side_by_side_are_a_task(monkeypatch, rng, on_gpu):
    """What lies between two cache lines is fetched once for the groups that share them; planes share none."""
    if on_gpu:
        pytest.skip("the algorithms are the CPU's")
    case = ConvCase("few-channels-a-group", 2, 8, 64, 64, (14, 14), (3, 3), padding=1)
    planes = make_case(case, "float32", rng)
    pixels = map(LAYOUTS["channels last"], planes)
    monkeypatch.setenv(FORCE, "grad_input:gemm")
    assert "groups a task" in describe(case, pixels).explain()
    assert "groups a task" not in describe(case, planes).explain()


@pytest.mark.parametrize("name", CHOSEN)
@each_dtype
def test_chosen_algorithms(name, dtype, rng, on_gpu):
    if on_gpu:
        pytest.skip("the algorithms are the CPU's")
    split = ISA == "amx" and dtype in ("float16", "float32") and name in CHOSEN_FOR_AMX
    short_vectors = ISA == "generic" and dtype == "float64" and "outer" in CHOSEN[name]
    if split or short_vectors:
        pytest.skip("as they are measured to pay")
    by_amx = (dtype, ISA) == ("bfloat16", "amx")
    expected = (CHOSEN | CHOSEN_FOR_AMX if by_amx else CHOSEN)[name]
    if name == "2d-stride-over-kernel" and dtype == "bfloat16" and ISA in ("avx512", "amx"):
        expected = "col2im", None  # gemm where pairs of bfloat16 are multiplied at once, which not every such CPU does
    check_chosen(CONV_CASES[name], dtype, expected, rng)


@pytest.mark.parametrize("case", MOSTLY_PADDING, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_padding_is_not_most_of_the_work(case, dtype, rng, on_gpu):
    if on_gpu:
        pytest.skip("the algorithms are the CPU's")
    check_chosen(case, dtype, ("col2im", None if case.groups == 1 else "outer"), rng)


def test_lanes_are_not_filled_with_padding(rng, on_gpu):
    """A long kernel of few output channels, nearly as large as the image along each axis."""
    if on_gpu:
        pytest.skip("the algorithms are the CPU's")
    check_chosen(ConvCase("padded-lanes", 2, 1, 59, 3, (19, 19, 19), (9, 19, 5), stride=(1, 2, 1)), "float32",
                 ("taps", "gemm"), rng)


@pytest.mark.parametrize("name", CHOSEN_FOR_AMX)
def test_chosen_algorithms_for_amx(name, rng, on_gpu):
    if on_gpu or ISA != "amx":
        pytest.skip("wants kernels of amx")
    check_chosen(CONV_CASES[name], "bfloat16", CHOSEN_FOR_AMX[name], rng)


def test_explain_on_a_gpu(rng, on_gpu):
    if not on_gpu:
        pytest.skip("wants a GPU")
    case = CONV_CASES["2d"]
    assert "GPU" in describe(case, make_case(case, "float32", rng)).explain()


@pytest.mark.parametrize("names", ["grad_input:none", "gemm", "grad_input:gemm,", "grad_input:gemmm", ",depthwise"])
def test_forcing_what_there_is_not(names, rng, on_gpu, monkeypatch):
    if on_gpu:
        pytest.skip("the algorithms are the CPU's")
    case = CONV_CASES["2d"]
    data, outs = make_case(case, "float32", rng), random_outs(case, "float32", rng)
    before = copies(outs)
    monkeypatch.setenv(FORCE, names)
    with pytest.raises(iop.BadParam, match=f"{FORCE} names an algorithm that refuses: there is no algorithm of such"):
        conv(case, data, out=outs)
    check_same(outs, before)


# ---- descriptors

GUARD, FILL = 64, 0xFF  # NaN in every dtype: uninitialised workspace that is used shows


def guarded(shape, dtype, shift=0):
    """An array of FILL bytes between two guards, and the memory of all three."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.full(size + 2 * GUARD, FILL, np.uint8)
    return memory[GUARD + shift:GUARD + shift + size].view(dtype).reshape(shape), memory


def check_guards(arrays, memories):
    for array, memory in zip(arrays, memories):
        array.view(np.uint8)[...] = FILL
        assert (memory == FILL).all(), "written outside of the array"


def describe(case, arrays):
    """A descriptor whose handle and tensor descriptors are gone."""
    stride, pairs, dilation, groups = case.geometry
    with open_handle() as handle:
        tensors = [iop.TensorDescriptor.from_array(a) for a in arrays]
        bias = iop.TensorDescriptor((case.cout,), tensors[0].dtype)
        op = iop.ConvBackwardDescriptor(handle, *tensors, bias, [p for p, _ in pairs], stride, dilation, groups)
    del handle, tensors, bias
    return op


def symmetric(case):
    """Descriptors pad alike on both sides."""
    return case if case in SYMMETRIC else ConvCase(**{**vars(case), "padding": 2})


@symmetric_cases
@pytest.mark.parametrize(("dtype", "form"), [*((dtype, "arrays") for dtype in DTYPES), ("float32", "addresses")])
def test_descriptor_is_the_function(case, dtype, form, rng):
    data = make_case(case, dtype, rng, integers=False)
    before, expected = copies(data), conv(case, data)
    op = describe(case, data)
    outs, memories = zip(*(guarded(a.shape, a.dtype) for a in expected))
    workspace, workspace_memory = guarded(op.workspace_size, np.uint8, shift=1)  # at any address
    arrays = (workspace, *outs, *data)
    calculate(op, *arrays, addresses=form == "addresses")
    check_same(outs, expected, case)
    check_guards((*outs, workspace), (*memories, workspace_memory))
    assert all(map(same_bits, data, before)), "an input was changed"


@few_cases
def test_descriptor_of_strided_inputs(case, rng):
    case = symmetric(case)
    data = make_case(case, "float32", rng, integers=False)
    for lay in map(LAYOUTS.get, ("channels last", "reversed", "every other")):
        laid, outs = tuple(map(lay, data)), blanks(case, "float32")
        op = describe(case, laid)
        calculate(op, iop.empty_workspace(open_handle(), op.workspace_size), *outs, *laid)
        check_same(outs, conv(case, data), case)


@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_descriptor_skips_none(mask, rng):
    case = CONV_CASES["2d-groups"]
    data = make_case(case, "float32", rng)
    op, outs = describe(case, data), [a if wanted else None for a, wanted in zip(blanks(case, "float32"), mask)]
    calculate(op, iop.empty_workspace(open_handle(), op.workspace_size), *outs, *data)
    check_same(outs, conv(case, data, output_mask=mask))


@few_cases
def test_descriptor_in_four_threads(case, rng):
    case = symmetric(case)
    sets = [make_case(case, "float32", rng, integers=False) for _ in range(4)]
    expected = [conv(case, data) for data in sets]
    op = describe(case, sets[0])

    def work(i):
        for _ in range(5):
            outs = blanks(case, "float32")
            calculate(op, iop.empty_workspace(open_handle(), op.workspace_size), *outs, *sets[i])
            check_same(outs, expected[i], case)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


@few_cases
def test_workspace_too_small(case, rng):
    case = symmetric(case)
    data = make_case(case, "float32", rng)
    op, outs = describe(case, data), random_outs(case, "float32", rng)
    before = copies(outs)
    for workspace in (None, 0, np.empty(op.workspace_size - 1, np.uint8)):
        with pytest.raises(iop.InsufficientWorkspace, match=str(op.workspace_size)):
            calculate(op, workspace, *outs, *data)
    check_same(outs, before)


# ---- bfloat16's subnormals

def within(value, low, high):
    return ((low <= value) & (value <= high)).all()


@pytest.mark.parametrize(("channels", "size", "kernel"), [(8, 12, 3), (8, 30, 1), (32, 9, 3), (64, 20, 3), (1, 6, 3)])
def test_bfloat16_subnormals_count_as_themselves_or_as_zero(channels, size, kernel):
    """The bfloat16 products of AMX and AVX512_BF16 know no subnormals: with them, and only with them, a product may be
    0 where its factor is one, and nothing in between. 8 channels of 1e-39 times 1e30 are 8e-9, or 0."""
    case = ConvCase("", 2, 1, channels, channels, (size, size), (kernel, kernel))
    for subnormal in range(3):
        data = [np.full(shape, 1e-39 if i == subnormal else 1e30, dtype_of("bfloat16"))
                for i, shape in enumerate(case.shapes)]
        if subnormal:
            data[0] = np.full(case.shapes[0], 1, dtype_of("bfloat16"))
        for algorithm, _, got in by_each_algorithm(lambda mask, data=data: conv(case, data, output_mask=mask)):
            for name, value, expected in zip(GRADIENTS[:2], got, reference_conv_backward(*data, *case.geometry)):
                if value is None or expected.max() < 1e-30:
                    continue  # of ordinary numbers that underflow
                value = value.astype(float)
                kept = within(value, expected * 0.99, expected * 1.01)
                assert kept or within(value, 0, 0), f"{algorithm} {name}"
                assert kept or ISA in ("amx", "avx512"), f"{algorithm} {name}"


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_other_subnormals_count_as_themselves(dtype):
    smallest = np.finfo(dtype).smallest_subnormal
    case = ConvCase("", 2, 1, 32, 32, (9, 9), (3, 3))
    g, x, w = (np.full(shape, value, dtype) for shape, value in zip(case.shapes, (smallest, 8, 8)))
    for algorithm, _, got in by_each_algorithm(lambda mask: conv(case, (g, x, w), output_mask=mask)):
        for name, value, expected in zip(GRADIENTS, got, reference_conv_backward(g, x, w, *case.geometry)):
            if value is not None:
                np.testing.assert_array_equal(value.astype(float), expected, f"{algorithm} {name}")
