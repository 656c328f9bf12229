"""A convolution's arrays in a memory layout, the check of its results, and the calls that are timed."""
from collections import deque
from functools import cache, lru_cache

import numpy as np
import peers

import infiniop_cy as iop
from infiniop_cy.testing import arrange, dtype_of
from infiniop_cy.testing.conv import ConvData, make_case, reference_conv_backward

LAYOUTS = {"contiguous": "contiguous", "channels_last": "channels last"}
POOL = 1 << 24     # normally distributed numbers that large arrays are cut from
ONE_SET = 10**10   # operations of a gradient from which one set of arrays is enough: no cache holds what it passed


@cache
def _pool():
    return np.random.default_rng(1).standard_normal(POOL, np.float32)


def random_sets(case, dtype, layout):
    """One or two sets of normally distributed arrays, cut from a pool: drawing them would take longer than all else."""
    start = 0
    for _ in range(1 if case.flops > ONE_SET else 2):
        arrays = []
        for shape in case.shapes:
            size = int(np.prod(shape))
            values = np.resize(_pool()[start:], size) if start + size > POOL else _pool()[start:start + size]
            arrays.append(arrange(values.reshape(shape).astype(dtype_of(dtype)), LAYOUTS[layout]))
            start = (start + size) % (POOL // 2)
        yield ConvData(*arrays)


def check(case, dtype, layout="contiguous"):
    """Stop where a result differs from that of float64, rounded once."""
    data = [arrange(array, LAYOUTS[layout]) for array in make_case(case, dtype, np.random.default_rng(5))]
    got = iop.conv_backward(*data, **case.keywords)
    for name, ours, exact in zip(got._fields, got, reference_conv_backward(*data, *case.geometry)):
        if not np.array_equal(ours, exact.astype(ours.dtype)):
            raise SystemExit(f"wrong result, not timed: {name} of {case} {dtype}")


@lru_cache(1)
def _exact_results(case, mask):
    """Small integers, whose sums float32 adds exactly in any order (below 2**24), and what torch makes of them."""
    import torch
    largest = 2 if max(case.terms) <= 1 << 22 else 1
    if max(case.terms) > 1 << 24:
        raise SystemExit(f"{case} cannot be checked: its sums have {max(case.terms)} terms")
    rng = np.random.default_rng(5)
    integers = [rng.integers(-largest, largest + 1, shape, np.int8).astype(np.float32) for shape in case.shapes]
    stride, padding, dilation, groups = case.geometry
    results = torch.ops.aten.convolution_backward.default(
        *map(torch.from_numpy, integers), [case.cout], stride, [p for p, _ in padding], dilation, False,
        [0] * len(stride), groups, mask)
    return integers, [None if result is None else result.numpy() for result in results]


def check_large(case, dtype, layout, mask):
    """Stop where a result differs from torch's in float32, rounded once. Both add integers without any rounding: so
    this takes a call of each, not float64's minutes."""
    integers, exact = _exact_results(case, mask)
    got = iop.conv_backward(*[arrange(array.astype(dtype_of(dtype)), LAYOUTS[layout]) for array in integers],
                            **case.keywords, output_mask=mask)
    for name, ours, expected in zip(got._fields, got, exact):
        if ours is not None and not np.array_equal(ours, expected.astype(ours.dtype)):
            raise SystemExit(f"wrong result, not timed: {name} of {case} {dtype} {layout}")


def bias_of(case, dtype):
    """Small integers."""
    return (np.arange(case.cout) % 5 - 2).astype(dtype_of(dtype))


def check_forward(case, dtype, layout, bias):
    """Stop where the output differs from torch's in float32, rounded once, on integers."""
    import torch
    integers, _ = _exact_results(case, (False, False, False))
    x, w = [array.astype(dtype_of(dtype)) for array in integers[1:]]
    b = bias_of(case, "float32") if bias else None
    stride, padding, dilation, groups = case.geometry
    exact = torch.ops.aten.convolution.default(
        *map(torch.from_numpy, integers[1:]), None if b is None else torch.from_numpy(b), stride,
        [p for p, _ in padding], dilation, False, [0] * len(stride), groups).numpy()
    ours = iop.conv(arrange(x, LAYOUTS[layout]), arrange(w, LAYOUTS[layout]), bias_of(case, dtype) if bias else None,
                    **case.keywords)
    if not np.array_equal(ours, exact.astype(ours.dtype)):
        raise SystemExit(f"wrong result, not timed: output of {case} {dtype} {layout}")


def keeping(name, statement, names, sets):
    """A contestant that keeps the results of its last calls, one for each set of arrays, two at least: so the next call
    writes to other memory, as a network's layers do, not to what the call before has left in the caches."""
    from timing import Contestant
    kept = deque(maxlen=max(len(sets), 2))
    return Contestant(name, f"keep({statement})", {**names, "keep": kept.append}, sets)


def forward_contestants(case, data, bias, layout, with_torch):
    """conv, its result in the memory layout of the arguments, as torch's is; and torch where it has this padding."""
    b = bias_of(case, str(data[0].input.dtype)) if bias else None
    geometry = ", ".join(f"{name}={value}" for name, value in case.keywords.items())
    out = "" if layout == "contiguous" else ", out=empty_like(g)"
    sets = [{"g": g, "x": x, "w": w} for g, x, w in data]
    yield keeping("ours", f"f(x, w, b, {geometry}{out})", {"f": iop.conv, "empty_like": np.empty_like, "b": b}, sets)
    if with_torch and all(before == after for before, after in case.geometry[1]):
        import torch
        stride, padding, dilation, groups = case.geometry
        yield keeping("torch", f"f(x, w, b, {stride}, {tuple(p for p, _ in padding)}, {dilation}, False, "
                               f"{(0,) * len(stride)}, {groups})",
                      {"f": torch.ops.aten.convolution.default, "b": None if b is None else peers.to_torch(b)},
                      [{name: peers.to_torch(array) for name, array in one.items()} for one in sets])


def our_call(case, mask, layout, function="f"):
    """A statement over g, x and w; results in the memory layout of the arguments, as torch's are."""
    geometry = ", ".join(f"{name}={value}" for name, value in case.keywords.items())
    out = ""
    if layout != "contiguous":
        likes = (f"empty_like({name})" if wanted else "None" for name, wanted in zip("xw", mask))
        out = f", out=({', '.join(likes)}, None)"
    return f"{function}(g, x, w, {geometry}, output_mask={mask}{out})"


def torch_call(case, mask):
    stride, padding, dilation, groups = case.geometry
    return (f"f(g, x, w, [{case.cout}], {stride}, {tuple(p for p, _ in padding)}, {dilation}, False, "
            f"{(0,) * len(stride)}, {groups}, {list(mask)})")


def contestants(case, data, mask, layout, with_torch):
    """Ours, and torch's where it has this padding."""
    sets = [{"g": g, "x": x, "w": w} for g, x, w in data]
    yield keeping("ours", our_call(case, mask, layout), {"f": iop.conv_backward, "empty_like": np.empty_like}, sets)
    if with_torch and all(before == after for before, after in case.geometry[1]):
        import torch
        yield keeping("torch", torch_call(case, mask), {"f": torch.ops.aten.convolution_backward.default},
                      [{name: peers.to_torch(array) for name, array in one.items()} for one in sets])
