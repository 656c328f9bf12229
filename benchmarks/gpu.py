"""Speed on an NVIDIA GPU, beside torch (ATen, cuDNN) and beside the copy rate of its memory.

    python benchmarks/gpu.py --json benchmarks/results/gpu.json

Times are medians of CUDA events around whole rounds over rotating buffers larger than the L2 cache; contestants take
turns. Everything is checked before it is timed: elementwise results against the CPU's, gradients of convolutions
against torch in float64. Every row is written as soon as it is measured; one that fails is recorded with its error.
Needs a GPU, PyCUDA and torch; see docs/gpu.md and benchmarks/gpu.sh.
"""
import argparse
import os
import statistics
import sys
import time
from datetime import date
from functools import partial

import numpy as np
import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import peers
from conv_shapes import FAMILIES
from gpu_rows import Record, measure_all

import infiniop_cy as iop
from infiniop_cy.testing import DTYPES, GRADIENTS, dtype_of

ROTATED = 512 << 20   # bytes of buffers in rotation, at least: past any L2
REPEATS = 21
# Targets: 90 % of the copy rate and torch's speed elementwise (16-bit gelu 1.1), 10 us for a call; of cuDNN's speed:
CONV_TARGETS = {"float32": 0.7, "tf32": None, "float16": 0.4, "bfloat16": 0.4, "float64": None}


def random_tensor(shape, dtype, scale=1.0):
    return (scale * torch.randn(shape, device="cuda")).to(getattr(torch, dtype))


def to_numpy(tensor):
    if tensor.dtype == torch.bfloat16:
        return tensor.cpu().view(torch.int16).numpy().view(dtype_of("bfloat16"))
    return tensor.cpu().numpy()


def race(contestants, rounds):
    """Median seconds per call of each {name: function(round)}, taking turns."""
    times = {name: [] for name in contestants}
    for function in contestants.values():
        function(0)
    torch.cuda.synchronize()
    for _ in range(REPEATS):
        for name, function in contestants.items():
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            for i in range(rounds):
                function(i)
            end.record()
            end.synchronize()
            times[name].append(start.elapsed_time(end) / 1e3 / rounds)
    return {name: statistics.median(values) for name, values in times.items()}


def descriptor_of(case, handle, tensor):
    name = "".join(part.capitalize() for part in case.operator.name.split("_")) + "Descriptor"
    return getattr(iop, name)(handle, tensor, tensor, tensor, **case.parameters)


def elementwise_row(case, dtype, n, handle):
    itemsize = dtype_of(dtype).itemsize
    sets = max(2, -(-ROTATED // (3 * n * itemsize)))
    buffers = [[random_tensor(n, dtype, 2.0) for _ in range(3)] for _ in range(sets)]
    op = descriptor_of(case, handle, iop.TensorDescriptor((n,), dtype))
    addresses = [[t.data_ptr() for t in (out, x, g)] for g, x, out in buffers]

    def ours(i):
        op.calculate(None, *addresses[i % sets])

    def copy(i):
        buffers[i % sets][2].copy_(buffers[i % sets][1])

    ours(0)
    torch.cuda.synchronize()
    g, x, got = (to_numpy(t[:1 << 16]) for t in buffers[0])
    np.testing.assert_allclose(got.astype(float), case(g, x).astype(float), rtol=1e-2 if itemsize == 2 else 1e-6,
                               atol=1e-6)
    contestants = {"ours": ours, "copy": copy}
    name, arguments, out_arguments = peers.TORCH[case.operator.name]
    given = peers.parameters_of(case)
    operator = getattr(torch.ops.aten, name)
    source = f"lambda g, x, o: operator.grad_input({(out_arguments or arguments).format(**given)}, grad_input=o)"
    torch_call = eval(source, {"operator": operator, "sigmoid": torch.sigmoid})
    contestants["torch"] = lambda i: torch_call(*buffers[i % sets])
    seconds = race(contestants, sets * 4)
    copy_rate = 2 * n * itemsize / seconds["copy"]
    return {"seconds": seconds, "of_copy": 3 * n * itemsize / seconds["ours"] / copy_rate,
            "torch": seconds["torch"] / seconds["ours"], "copy_rate": copy_rate}


def launch_row(handle):
    tensor = iop.TensorDescriptor((1024,), "float32")
    buffers = [torch.zeros(1024, device="cuda") for _ in range(3)]
    with iop.ReluBackwardDescriptor(handle, tensor, tensor, tensor) as op:
        forms = {"addresses": [b.data_ptr() for b in buffers], "tensors": buffers}
        result = {}
        for form, values in forms.items():
            times = []
            for _ in range(REPEATS):
                torch.cuda.synchronize()
                start = time.perf_counter()
                for _ in range(200):
                    op.calculate(None, *values)
                times.append((time.perf_counter() - start) / 200)
            result[form] = statistics.median(times)
    return result


def conv_row(case, dtype, layout, handle):
    """dtype "tf32": float32 data on tensor cores, on both sides."""
    storage = "float32" if dtype == "tf32" else dtype
    os.environ["INFINIOP_CY_TF32"] = str(int(dtype == "tf32"))
    torch.backends.cudnn.allow_tf32 = dtype == "tf32"
    torch.backends.cudnn.benchmark = True
    tensors = [random_tensor(shape, storage) for shape in case.shapes]
    if layout == "channels_last":
        tensors = [t.to(memory_format=torch.channels_last) for t in tensors]
    g, x, w = tensors
    descriptors = [iop.TensorDescriptor(tuple(t.shape), storage, t.stride()) for t in tensors]
    stride, pairs, dilation, groups = case.geometry
    op = iop.ConvBackwardDescriptor(handle, *descriptors, iop.TensorDescriptor((case.cout,), storage),
                                    [p for p, _ in pairs], stride, dilation, groups)
    outs = [torch.empty(t.shape, dtype=t.dtype, device="cuda") for t in (x, w)]
    outs.append(torch.empty(case.cout, dtype=g.dtype, device="cuda"))
    workspace = torch.empty(op.workspace_size, dtype=torch.uint8, device="cuda")
    addresses = [t.data_ptr() for t in (workspace, *outs, g, x, w)]

    def ours(_):
        op.calculate(*addresses)

    def cudnn(_):
        return torch.ops.aten.convolution_backward(
            g, x, w, [case.cout], list(stride), [p for p, _ in pairs], list(dilation), False, [0] * len(stride), groups,
            [True] * 3)

    ours(0)
    exact = torch.ops.aten.convolution_backward(
        g.double(), x.double(), w.double(), [case.cout], list(stride), [p for p, _ in pairs], list(dilation), False,
        [0] * len(stride), groups, [True] * 3)
    error = max(float((got.double() - want).norm() / want.norm()) for got, want in zip(outs, exact))
    bound = {"float64": 1e-12, "float32": 1e-5, "tf32": 2e-3, "float16": 2e-3, "bfloat16": 1e-2}[dtype]
    if not error < bound:
        raise ArithmeticError(f"relative error {error}, expected at most {bound}")
    seconds = race({"ours": ours, "torch": cudnn}, 4)
    return {"seconds": seconds, "relative_error": error, "torch": seconds["torch"] / seconds["ours"],
            "flops": 2 * case.flops / seconds["ours"]}


def device_works():
    try:
        torch.cuda.synchronize()
        return bool(torch.ones(1, device="cuda").item())
    except RuntimeError:
        return False


def jobs(handle, elements):
    """(table, what tells a row from others, function that measures it), what matters most first."""
    yield "launch", {"what": "one call through a descriptor"}, lambda: launch_row(handle)
    for case in GRADIENTS:
        for dtype in DTYPES:
            if case.operator.name in peers.TORCH:
                yield ("elementwise", {"operator": str(case), "dtype": dtype, "elements": elements},
                       partial(elementwise_row, case, dtype, elements, handle))
    rows = [("typical", c, d, "contiguous") for d in CONV_TARGETS for c in FAMILIES["typical"]]
    rows += [("typical", c, d, "channels_last") for d in ("float16", "float32") for c in FAMILIES["typical"]
             if len(c.size) == 2]
    rows += [("resnet50", c, d, "contiguous") for d in ("float32", "float16") for c in FAMILIES["resnet50"]]
    for family, case, dtype, layout in rows:
        yield ("conv", {"family": family, "shape": str(case), "dtype": dtype, "layout": layout},
               partial(conv_row, case, dtype, layout, handle))


def show(table, row):
    names = ("what", "family", "operator", "shape", "dtype", "layout")
    what = " ".join(str(row[name]) for name in names if name in row)
    if "error" in row:
        measured = f"FAILED: {row['error']}"
    elif table == "launch":
        measured = ", ".join(f"{form} {row[form] * 1e6:.1f} us" for form in ("addresses", "tensors"))
    else:
        rate = f"copy {row['of_copy']:5.0%}" if table == "elementwise" else f"{row['flops'] / 1e12:7.2f} TF/s"
        measured = f"{row['seconds']['ours'] * 1e6:9.1f} us   {rate}   torch/ours {row['torch']:5.2f}"
    print(f"{what:60} {measured}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="file to write the results to, row by row")
    parser.add_argument("--seconds", type=float, default=240, help="stop starting rows after this long")
    parser.add_argument("--elements", type=int, default=1 << 26)
    parser.add_argument("--resume", action="store_true", help="measure only the rows that the file does not have")
    options = parser.parse_args()
    deadline = time.time() + options.seconds
    torch.manual_seed(0)
    record = Record(options.json, {
        "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(), "date": date.today().isoformat()}, options.resume)
    print("{gpu}, torch {torch}, CUDA {cuda}, cuDNN {cudnn}".format_map(record.facts))
    with iop.Handle("cuda") as handle:
        finished = measure_all(jobs(handle, options.elements), record, lambda: time.time() < deadline, device_works,
                               show)
    if not finished and options.json:  # a fault has ended this process's use of the device, not another's
        left = max(0, deadline - time.time())
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, __file__, "--json", options.json, "--seconds", str(left),
                                  "--elements", str(options.elements), "--resume"])
    failures = record.failures()
    print(f"{len(failures)} rows failed")
    return 1 if failures or not finished else 0


if __name__ == "__main__":
    sys.exit(main())
