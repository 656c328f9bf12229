"""Does an installed infiniop_cy work, with nothing but NumPy beside it?

    python smoke.py [no-bfloat16] [openmp] [no-openmp] [gcc] [clang]       (what this build is expected to be)
    python smoke.py beside:torch beside:sklearn       (what it has to get on with, whichever is imported first)

Every operator runs once through its function and once through its descriptor, on data whose gradients are known.
"""
import json
import os
import subprocess
import sys

import numpy as np

import infiniop_cy as iop

EXPECTED = set(sys.argv[1:])
# The checkout, where this file lies, must not be what is tested.
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# 32 bits hold relu, leaky_relu and the values at 0 exactly; the rest is rounded to 8 digits.
X = [-1.0, 0.0, 2.0]
ELEMENTWISE = (
    ("relu_backward", "ReluBackwardDescriptor", {}, [0, 0, 1]),
    ("leaky_relu_backward", "LeakyReluBackwardDescriptor", {"negative_slope": 0.25}, [0.25, 0.25, 1]),
    ("gelu_backward", "GeluBackwardDescriptor", {}, [-0.083315471, 0.5, 1.0852319]),
    ("gelu_backward", "GeluBackwardDescriptor", {"approximate": "tanh"}, [-0.082964085, 0.5, 1.0860993]),
    ("sigmoid_backward", "SigmoidBackwardDescriptor", {}, [0.19661193, 0.25, 0.10499359]),
)
FORWARD = (
    ("relu", "ReluDescriptor", {}, [0, 0, 2]),
    ("leaky_relu", "LeakyReluDescriptor", {"negative_slope": 0.25}, [-0.25, 0, 2]),
    ("gelu", "GeluDescriptor", {}, [-0.15865525, 0, 1.9544997]),
    ("gelu", "GeluDescriptor", {"approximate": "tanh"}, [-0.15880801, 0, 1.9545977]),
    ("sigmoid", "SigmoidDescriptor", {}, [0.26894142, 0.5, 0.88079708]),
)


def check(name, got, expected, tolerance=1e-6):
    assert np.allclose(got, expected, rtol=tolerance, atol=0), f"{name}: got {got}, expected {expected}"


def check_elementwise(name, descriptor, parameters, expected, *grad_output):
    """expected: of X and, where there is one, that grad_output."""
    function = getattr(iop, name)
    for dtype in ("float16", "float32", "float64"):
        tolerance = 1e-3 if dtype == "float16" else 1e-6
        g, x = [np.full(3, value, dtype) for value in grad_output], np.array(X, dtype)
        check(name, function(*g, x, **parameters), expected, tolerance)
        out = np.empty((2, 3), dtype)[:, ::-1]
        assert function(*g, np.broadcast_to(x, (2, 3)), out=out, **parameters) is out
        check(name, out, [expected] * 2, tolerance)
        t = iop.TensorDescriptor.from_array(x)
        with iop.Handle("cpu") as handle, getattr(iop, descriptor)(handle, t, t, *[t for _ in g], **parameters) as op:
            workspace = iop.empty_workspace(handle, op.workspace_size)
            result = np.empty_like(x)
            op.calculate(workspace, result, x, *g)
            check(descriptor, result, expected, tolerance)


def check_many_threads():
    x = np.linspace(-4, 4, 100_001, dtype=np.float32)
    one, two = (iop.sigmoid_backward(x, x, num_threads=n) for n in (1, 2))
    assert np.array_equal(one, two)
    with iop.threads(2):
        assert np.array_equal(one, iop.sigmoid_backward(x, x))


def check_conv():
    """A 1 x 1 x 3 x 3 image, a 2 x 2 kernel; all integers, so every result is exact."""
    grad_output = np.array([[[[1, 2], [3, 4]]]], np.float32)
    input = np.arange(1, 10, dtype=np.float32).reshape(1, 1, 3, 3)
    weight = np.array([[[[1, -1], [2, 0]]]], np.float32)
    grad_input = [[[[1, 1, -2], [5, 5, -4], [6, 8, 0]]]]
    grad_weight = [[[[37, 47], [67, 77]]]]
    grads = iop.conv_backward(grad_output, input, weight)
    t = {name: iop.TensorDescriptor.from_array(array) for name, array in
         (("grad_output", grad_output), ("input", input), ("weight", weight), ("bias", np.zeros(1, np.float32)))}
    with iop.Handle() as handle, iop.ConvBackwardDescriptor(
            handle, t["grad_output"], t["input"], t["weight"], t["bias"], 0, 1, 1, 1) as op:
        results = np.empty_like(input), np.empty_like(weight), np.empty(1, np.float32)
        op.calculate(iop.empty_workspace(handle, op.workspace_size), *results, grad_output, input, weight)
    for got in (grads, iop.ConvGradients(*results)):
        assert np.array_equal(got.grad_input, grad_input), got.grad_input
        assert np.array_equal(got.grad_weight, grad_weight), got.grad_weight
        assert np.array_equal(got.grad_bias, [10]), got.grad_bias
    one = iop.conv_backward(np.float64([[[1, 2], [3, 4]]]), np.float64([[[1, 2, 3], [4, 5, 6]]]), np.ones((2, 1, 2)),
                            stride=2, padding=1, groups=2, output_mask=(False, True, False))
    assert one.grad_input is None
    assert one.grad_bias is None
    assert np.array_equal(one.grad_weight, [[[4, 7]], [[20, 36]]]), one.grad_weight


def raised_by(call):
    try:
        call()
    except iop.InfiniopError as error:
        return error
    return None


def check_errors():
    x = np.ones(3, np.float32)
    for error, call in ((iop.BadTensorShape, lambda: iop.relu_backward(x, np.ones(4, np.float32))),
                        (iop.BadTensorDtype, lambda: iop.relu_backward(x, np.ones(3, np.int32))),
                        (iop.BadParam, lambda: iop.gelu_backward(x, x, approximate="erf")),
                        (iop.NullPointer, lambda: iop.relu_backward(None, x)),
                        (iop.DeviceNotFound, lambda: iop.Handle("cpu", 1))):
        raised = raised_by(call)
        assert type(raised) is error, f"expected {error.__name__}, got {raised!r}"
        assert str(raised)


def check_without_bfloat16():
    """Descriptors know bfloat16 by name; the data is its bits."""
    try:
        import ml_dtypes
    except ImportError:
        pass
    else:
        raise AssertionError(f"ml_dtypes is here: {ml_dtypes.__file__}")
    t = iop.TensorDescriptor((2,), "bfloat16")
    assert t.dtype == "bfloat16"
    x, g, result = np.array([0xBF80, 0x3F80], np.uint16), np.array([0x4000] * 2, np.uint16), np.empty(2, np.uint16)
    with iop.Handle() as handle, iop.ReluBackwardDescriptor(handle, t, t, t) as op:
        op.calculate(None, result, x, g)
    assert result.tolist() == [0, 0x4000], result
    assert info()["bfloat16"] is None


def info():
    command = [sys.executable, "-m", "infiniop_cy", "info", "--json"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def check_device_sources():
    """The GPU's kernels travel with the package."""
    from infiniop_cy.core import _core
    for name in ("relu_backward", "conv"):
        _, source, _, folders = _core.cuda_build_request(name, "float32", 90)
        assert os.path.isfile(source), source
        assert all(os.path.isdir(folder) for folder in folders), folders


BESIDE = """
import sys
import numpy as np
import {first}
import {second}
import infiniop_cy as iop
x = np.linspace(-4, 4, 1_000_001, dtype=np.float32)
got = iop.sigmoid(x, num_threads=2)
if "torch" in sys.modules:
    import torch
    assert np.allclose(got, torch.sigmoid(torch.from_numpy(x)).numpy(), rtol=1e-5)
if "sklearn" in sys.modules:
    from sklearn.cluster import KMeans
    KMeans(3, n_init=1).fit(x[::100, None])
assert np.array_equal(got, iop.sigmoid(x, num_threads=2))
"""


def check_beside(module):
    """Both have threads of their own, by libraries that may not be the same."""
    for first, second in ((module, "infiniop_cy"), ("infiniop_cy", module)):
        code = BESIDE.format(first=first, second=second)
        subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
        print(f"{first}, then {second}: well")


def main():
    assert "site-packages" in iop.__file__, iop.__file__
    assert not iop.__file__.startswith(HERE + os.sep), iop.__file__
    for *row, expected in ELEMENTWISE:
        check_elementwise(*row, np.multiply(expected, 2), 2)
    for row in FORWARD:
        check_elementwise(*row)
    check_many_threads()
    check_conv()
    if sys.platform != "win32":
        check_device_sources()
    check_errors()
    facts = info()
    if "no-bfloat16" in EXPECTED:
        check_without_bfloat16()
    for openmp in EXPECTED & {"openmp", "no-openmp"}:
        assert bool(facts["openmp"]["version"]) is (openmp == "openmp"), facts["openmp"]
    for compiler in EXPECTED & {"gcc", "clang"}:
        assert facts["compiler"].startswith(compiler), facts["compiler"]
    for fact in EXPECTED:
        if fact.startswith("beside:"):
            check_beside(fact.removeprefix("beside:"))
    iop.show_config()


if __name__ == "__main__":
    main()
