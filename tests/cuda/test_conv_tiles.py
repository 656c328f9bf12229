"""A convolution's tiles follow the device's size; its bits do not."""
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from test_build import TESTS

import infiniop_cy as iop
from infiniop_cy.testing import LAYOUTS

SCRIPT = """
    import hashlib, os, sys
    sys.path.insert(0, os.environ["TESTS"])
    import emulation
    emulation.install(os.environ["EMULATION_FOLDER"])
    import numpy as np, infiniop_cy as iop
    from infiniop_cy.testing.conv import CONV_CASES, make_case
    digest = hashlib.sha256()
    for name in ("many-channels", "parallel", "parallel-stride", "parallel-tiny-images", "many-columns",
                 "3d-everything"):
        case = CONV_CASES[name]
        data = make_case(case, {dtype!r}, np.random.default_rng(1), integers=False)
        output = iop.conv(*data[1:], **case.keywords, device="cuda")
        for result in (output, *iop.conv_backward(*data, **case.keywords, device="cuda")):
            digest.update(result.tobytes())
    print(digest.hexdigest())
    """


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_multiprocessors_do_not_change_bits(dtype, emulator):
    digests = set()
    for count in ("1", "132"):
        script = textwrap.dedent(SCRIPT).replace("{dtype!r}", repr(dtype))
        ran = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True,
                             env={**os.environ, "TESTS": str(TESTS), "EMULATION_MULTIPROCESSORS": count})
        assert ran.returncode == 0, ran.stderr
        digests.add(ran.stdout)
    assert len(digests) == 1


@pytest.mark.parametrize("tf32", ["0", "1"])
def test_tf32_only_on_request(tf32, emulator):
    """Ten bits of a factor are enough for TF32, eleven more are not; INFINIOP_CY_TF32=1 allows output and grad_input to
    lose them. grad_weight of images so small is a chain, which tensor cores do not do."""
    script = """
        import os, sys
        sys.path.insert(0, os.environ["TESTS"])
        import emulation
        emulation.install(os.environ["EMULATION_FOLDER"])
        import numpy as np, infiniop_cy as iop
        from infiniop_cy.testing.conv import CONV_CASES, make_case, reference_conv_backward, reference_conv_forward
        case = CONV_CASES["many-channels"]
        for scale in (1, 1 + 2.0**-12):
            g, x, w = make_case(case, "float32", np.random.default_rng(1))
            data = g * np.float32(scale), x, w * np.float32(scale)
            got = iop.conv_backward(*data, **case.keywords, device="cuda")[:2]
            got = iop.conv(x, data[2], **case.keywords, device="cuda"), *got
            want = reference_conv_backward(*data, *case.geometry)[:2]
            want = reference_conv_forward(x, data[2], *case.geometry), *want
            errors = [float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(got, want)]
            assert max(errors) == 0 or scale != 1, errors  # whole numbers, which tensor cores add exactly, too
        print(*("rounded" if error > 1e-5 else "exact" for error in errors))
        """
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False, capture_output=True, text=True,
                         env={**os.environ, "TESTS": str(TESTS), "INFINIOP_CY_TF32": tf32})
    expected = "rounded rounded exact\n" if tf32 == "1" else "exact exact exact\n"
    assert ran.stdout == expected, ran.stdout + ran.stderr


def test_long_sums_on_tensor_cores(monkeypatch, rng):
    """4096 products of one sign: tensor cores cut off what their sums have below the last place, about two places in
    four products, so that one sum of all would be off by 2e-4. Runs of 256, added with rounding, lose those of 64 steps
    of at most five places (3.8e-5) and 16 roundings."""
    monkeypatch.setenv("INFINIOP_CY_TF32", "1")
    conv, long = iop.conv_backward._function, 4096

    def numbers(*shape):
        return (rng.integers(512, 1024, shape) / 1024).astype(np.float32)  # of ten bits, as TF32
    groups = 32  # so many weights that a unit has 2048 pixels
    g, x, w = numbers(1, 8 * groups, long), numbers(1, 8 * groups, long), numbers(8 * groups, 8, 1)
    grad_weight = conv(g, x, w, groups=groups, device="cuda", output_mask=(False, True, False)).grad_weight
    exact = np.concatenate([a @ b.T for a, b in zip(np.split(g[0].astype(float), groups), np.split(x[0], groups))])
    pairs = [(grad_weight[:, :, 0], exact)]
    g, x, w = numbers(1, long, 16), numbers(1, 8, 16), numbers(long, 8, 1)
    grad_input = conv(g, x, w, device="cuda", output_mask=(True, False, False)).grad_input
    pairs.append((grad_input[0], w[:, :, 0].T.astype(float) @ g[0]))
    x, w = numbers(1, long, 16), numbers(8, long, 1)
    pairs.append((iop.conv._function(x, w, device="cuda")[0], w[:, :, 0].astype(float) @ x[0]))
    for got, exact in pairs:
        assert np.abs(got / exact - 1).max() <= 64 * 5 * 2.0**-23 + 16 * 2.0**-24


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("shape", [(2, 40, 9, 7), (3, 70, 5), (1, 33, 3, 4, 5), (2, 8, 40, 40)], ids=str)
def test_images_whose_channels_are_neighbours(shape, accumulate, rng):
    """They are packed first, and results unpacked: the bits are those of contiguous ones, what is added to as well."""
    def apart(array):
        return np.ascontiguousarray(np.moveaxis(array, 1, -1))

    def together(array):
        return np.moveaxis(array, -1, 1)
    channels = shape[1]
    g, x, old_x = (rng.standard_normal(shape).astype(np.float32) for _ in range(3))
    w, old_w = (rng.standard_normal((channels, channels, *[1] * (len(shape) - 2))).astype(np.float32) for _ in range(2))
    results = []
    for lay in (np.copy, lambda array: together(apart(array))):
        out = lay(old_x), old_w.copy(), None
        iop.conv_backward(lay(g), lay(x), w, out=out, output_mask=(True, True, False), accumulate=accumulate)
        results.append([iop.conv(lay(x), w), *out[:2]])
    for plain, packed in zip(*results):
        assert plain.tobytes() == packed.tobytes()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_few_channels_under_many_taps(channels, dtype, rng):
    """Taps and channels are one axis of the sums of an output, and of a grad_input without phases; of whole numbers, so
    that they are exact in any order."""
    geometries = ((7, 7), 2, 1, 1), ((3, 5), 1, 2, 2), ((11,), (4,), 1, 1), ((2, 3, 3), 1, 1, 1)
    for kernel, stride, dilation, groups in geometries:
        space = tuple(13 + 2 * d for d in range(len(kernel)))
        x = rng.integers(-3, 4, (2, channels * groups, *space)).astype(dtype)
        w = rng.integers(-3, 4, (9 * groups, channels, *kernel)).astype(dtype)
        keywords = {"stride": stride, "dilation": dilation, "padding": 2, "groups": groups}
        got, want = (iop.conv._function(x, w, device=device, **keywords) for device in ("cuda", "cpu"))
        assert got.tobytes() == want.tobytes()
        back = exchanged(w, groups)
        x = rng.integers(-3, 4, (2, 9 * groups, *space)).astype(dtype)
        g = rng.integers(-3, 4, iop.conv._function(x, back, device="cpu", **keywords).shape).astype(dtype)
        got, want = (iop.conv_backward._function(g, x, back, output_mask=(True, False, False), device=device,
                                                 **keywords).grad_input for device in ("cuda", "cpu"))
        assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("of_weights", [True, False])
def test_inf_among_terms(of_weights, rng):
    """One of weights meets no padding, and is found among the places of a dense sum; one of pixels meets no place past
    the last."""
    x, w = rng.standard_normal((1, 3, 9, 9)).astype(np.float32), rng.standard_normal((8, 3, 3, 3)).astype(np.float32)
    if of_weights:
        w[5, 1, 0, 2] = np.inf
    else:
        x[0, 1, 4, 4] = np.inf
    got, want = (iop.conv._function(x, w, padding=1, device=device) for device in ("cuda", "cpu"))
    assert np.array_equal(np.isfinite(got), np.isfinite(want))
    assert not np.isfinite(got).all()
    assert np.array_equal(np.isnan(got), np.isnan(want))


def images(batch, channels, space, rng, dtype):
    return rng.integers(-1, 2, (batch, channels, *space)).astype(dtype)


def exchanged(w, groups):
    """The same products from the other side: channels of the result in those of what is read, in each group."""
    return np.swapaxes(w.reshape(groups, -1, *w.shape[1:]), 1, 2).reshape(-1, w.shape[0] // groups, *w.shape[2:])


def output_and_grad_input(x, w, stride=1, out=None, device="cuda", **keywords):
    """The output of x by w; and of x as a grad_output the grad_input, by w exchanged, so that it has as many sums. out:
    what it is added to."""
    padding, dilation, groups = ({"padding": 0, "dilation": 1, "groups": 1, **keywords}[name]
                                 for name in ("padding", "dilation", "groups"))
    output = iop.conv._function(x, w, device=device, **keywords)
    space = [(n - 1) * stride + dilation * (k - 1) + 1 - 2 * p
             for n, k, p in zip(x.shape[2:], w.shape[2:], np.broadcast_to(padding, x.ndim - 2))]
    like = out if out is not None else np.zeros((x.shape[0], w.shape[0], *space), x.dtype)
    gradients = iop.conv_backward._function(
        x, like, exchanged(w, groups), stride=stride, device=device, output_mask=(True, False, False),
        out=None if out is None else (out, None, None), accumulate=out is not None, **keywords)
    return output, gradients.grad_input


LONG_SUMS = {  # channels of the result, summed ones, image, kernel, groups
    "1x1": (70, 1040, (3, 3), (1, 1), 1),
    "taps": (9, 190, (4, 3), (3, 3), 2),
    "line": (66, 50, (19,), (45,), 1),
    "most": (8, 33, (3, 2, 4), (5, 5, 5), 1),
}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", LONG_SUMS)
def test_sums_in_parts(name, dtype, rng):
    """Of few pixels and many products, by blocks that share them: of whole numbers, so exact in any order."""
    result, summed, space, kernel, groups = LONG_SUMS[name]
    x = images(3, summed * groups, space, rng, dtype)
    w = images(result * groups, summed, kernel, rng, dtype)
    keywords = {"padding": tuple(k // 2 for k in kernel), "groups": groups}
    for got, want in zip(*(output_and_grad_input(x, w, device=device, **keywords) for device in ("cuda", "cpu"))):
        assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_parts_do_not_follow_the_batch(dtype, rng):
    result, summed, space, kernel, groups = LONG_SUMS["taps"]
    x, w = (rng.standard_normal(shape).astype(np.float32).astype(iop.testing.dtype_of(dtype)) for shape in (
        (7, summed * groups, *space), (result * groups, summed, *kernel)))
    keywords = {"padding": 1, "groups": groups}
    whole = output_and_grad_input(x, w, **keywords)
    cut = [output_and_grad_input(x[a:b], w, **keywords) for a, b in ((0, 1), (1, 5), (5, 7))]
    for got, pieces in zip(whole, zip(*cut)):
        assert got.tobytes() == np.concatenate(pieces).tobytes()


def test_waves_of_parts_without_steps(rng):
    """So many sums that their room holds those of some pixels at a time; of one tap, so that most parts have none."""
    w = rng.integers(-3, 4, (2, 8, 1024)).astype(np.float32)
    g, x, old = (rng.integers(-3, 4, (34000, channels, 1)).astype(np.float32) for channels in (2, 8, 8))
    got, want = old.copy(), old.copy()
    for device, out in ("cuda", got), ("cpu", want):
        iop.conv_backward._function(g, x, w, stride=1024, padding=512, device=device, accumulate=True,
                                    output_mask=(True, False, False), out=(out, None, None))
    assert np.array_equal(got, want)


def test_waves_of_parts(rng, on_emulation):
    """So many sums that their room holds those of some pixels at a time."""
    if on_emulation:
        pytest.skip("an emulated device would take minutes")
    x, w = images(80, 1024, (3, 3), rng, np.float32), images(12288, 1024, (1, 1), rng, np.float32)
    got = iop.conv._function(x, w, device="cuda")
    assert np.array_equal(got[-1].reshape(12288, 9), w[:, :, 0, 0] @ x[-1].reshape(1024, 9))
    assert np.array_equal(got[17].reshape(12288, 9), w[:, :, 0, 0] @ x[17].reshape(1024, 9))


@pytest.mark.parametrize(("shapes", "keywords"), [
    (((1, 16, 1, 1), (1024, 16, 1, 1)), {"stride": 2, "padding": 1}),
    (((3, 20, 1, 1, 7), (230, 10, 6, 1, 5)),
     {"stride": (2, 4, 1), "padding": ((6, 4), (2, 4), (6, 0)), "dilation": (1, 3, 3), "groups": 2})])
def test_parts_of_one_pixel_that_no_tap_meets(shapes, keywords, rng):
    x, w = (rng.integers(-2, 3, shape).astype(np.float32) for shape in shapes)
    g = rng.integers(-2, 3, iop.conv._function(x, w, device="cpu", **keywords).shape).astype(np.float32)
    got, want = (iop.conv_backward._function(g, x, w, device=device, output_mask=(True, False, False), **keywords)
                 for device in ("cuda", "cpu"))
    assert np.array_equal(got.grad_input, want.grad_input)


@pytest.mark.parametrize("batch", [1, 2])
def test_the_sign_of_a_sum_that_underflows(batch):
    """It follows neither from the layout nor from how a batch is cut, though absent pixels behind the last one make -0
    a 0, and how many there are does."""
    x, g = np.zeros((2, batch, 8, 1, 8 // batch), np.float32)
    x[0, ..., -1], g[0, ..., -1] = -1e-30, 1e-30
    x[1:] = -1
    w, signs = np.zeros((8, 8, 1, 1), np.float32), set()
    for lay in np.array, LAYOUTS["channels last"]:
        for parts in {1, batch}:
            out = np.zeros_like(w)
            for n, (some_g, some_x) in enumerate(zip(np.split(g, parts), np.split(x, parts))):
                iop.conv_backward._function(lay(some_g), lay(some_x), w, device="cuda", accumulate=n > 0,
                                            output_mask=(False, True, False), out=(None, out, None))
            signs.add(np.signbit(out).tobytes())
    assert len(signs) == 1


@pytest.mark.parametrize("channels", [1, 8])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_sum_that_underflows_is_added_to_minus_zero(channels, dtype):
    """Its sign follows from neither the layout nor how a batch is cut, what it is added to being -0 or 0."""
    tiny = 1e-30 if dtype == "float32" else 1e-200
    g, x = np.full((2, 4, channels, 1, 72), tiny, dtype)
    w, signs = np.zeros((channels, channels, 1, 1), dtype), set()
    for lay in np.array, LAYOUTS["channels last"]:
        for parts in 1, 4:
            out = np.full_like(w, -0.0)
            for some_g, some_x in zip(np.split(g, parts), np.split(-x, parts)):
                iop.conv_backward._function(lay(some_g), lay(some_x), w, device="cuda", accumulate=True,
                                            output_mask=(False, True, False), out=(None, out, None))
            signs.add(np.signbit(out).tobytes())
    assert len(signs) == 1


def test_finite_factors_stay_finite_as_tf32(monkeypatch):
    """Rounded to inf, they would make NaN of the zeros in the padding, which they meet."""
    monkeypatch.setenv("INFINIOP_CY_TF32", "1")
    x, w = np.ones((1, 8, 10, 10), np.float32), np.zeros((8, 8, 3, 3), np.float32)
    w[0, 0, 0, 0] = np.finfo(np.float32).max
    output = iop.conv._function(x, w, padding=1, device="cuda")
    assert np.isfinite(output).all()
    assert not output[0, 0, 0].any()
    assert not output[0, 0, :, 0].any()
    g = np.zeros_like(x)
    g[0, 0, 0, 0] = np.finfo(np.float32).max
    gradient = iop.conv_backward._function(g, x, w, padding=1, device="cuda").grad_weight
    assert np.isfinite(gradient).all()
    assert not gradient[0, 0, 0].any()


@pytest.mark.parametrize("where", ["parts", "few"])
def test_inf_where_it_meets_no_padding(where, rng):
    result, summed, space, kernel, groups = LONG_SUMS["taps"]
    if where == "few":
        result = 3
    x = rng.standard_normal((2, summed * groups, *space)).astype(np.float32)
    w = rng.standard_normal((result * groups, summed, *kernel)).astype(np.float32)
    w[1, 100, 0, 2] = np.inf
    pairs = zip(*(output_and_grad_input(x, w, padding=1, groups=groups, device=device) for device in ("cuda", "cpu")))
    for got, want in pairs:
        assert np.array_equal(np.isfinite(got), np.isfinite(want))
        assert not np.isfinite(got).all()
        assert np.array_equal(np.isnan(got), np.isnan(want))


FEW_CHANNELS = (  # batch, summed channels, image, kernel, stride of grad_input, dilation, groups
    (9, 40, (7, 8), (3, 3), 2, 1, 1), (2, 9, (300,), (4,), 1, 3, 2), (3, 8, (2, 4, 3), (2, 3, 5), 3, 1, 2))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("channels", [1, 2, 3, 5, 7])
def test_few_channels_of_the_result(channels, dtype, rng):
    """A thread sums several of them; more products than a block keeps weights of, phases, pixels of several samples."""
    def together(array):
        return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)
    for batch, summed, space, kernel, stride, dilation, groups in FEW_CHANNELS:
        x = images(batch, summed * groups, space, rng, np.int8).astype(iop.testing.dtype_of(dtype))
        w = images(channels * groups, summed, kernel, rng, np.int8).astype(x.dtype)
        keywords = {"padding": tuple(dilation * (k - 1) // 2 for k in kernel), "dilation": dilation, "groups": groups,
                    "stride": stride}
        old = output_and_grad_input(x, w, device="cpu", **keywords)[1]
        for lay, out in (np.array, None), (together, None), (np.array, old), (together, old):
            results = [output_and_grad_input(lay(x), w, out=out if out is None else lay(out), device=device, **keywords)
                       for device in ("cuda", "cpu")]
            for got, want in zip(*results):
                assert got.tobytes() == want.tobytes()
