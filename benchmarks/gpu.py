"""Speed on an NVIDIA GPU, beside torch (ATen, cuDNN) and beside the copy rate of its memory.

    python benchmarks/gpu.py --json benchmarks/results/gpu-h100.json

Times are medians of CUDA events around whole rounds over rotating buffers larger than the L2 cache; contestants take
turns. Everything is checked before it is timed: elementwise results against the CPU's, convolutions and their gradients
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
from infiniop_cy.testing import CASES, DTYPES, GRADIENTS, dtype_of

ROTATED = 512 << 20   # bytes of buffers in rotation, at least: past any L2
REPEATS = 21
DEVICE = "cuda"
# Targets: 90 % of the copy rate and torch's speed elementwise (16-bit gelu 1.1), 10 us for a call; of cuDNN's speed:
CONV_TARGETS = {"float32": 0.7, "tf32": None, "float16": 0.4, "bfloat16": 0.4, "float64": None}


def random_tensor(shape, dtype, scale=1.0):
    return (scale * torch.randn(shape, device=DEVICE)).to(getattr(torch, dtype))


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
    tensors = [tensor] * (case.count + 1)
    return getattr(iop, f"{case.operator.class_name}Descriptor")(handle, *tensors, **case.parameters)


def elementwise_row(case, dtype, n, handle):
    itemsize = dtype_of(dtype).itemsize
    tensors = case.count + 1
    sets = max(2, -(-ROTATED // (tensors * n * itemsize)))
    buffers = [[random_tensor(n, dtype, 2.0) for _ in range(tensors)] for _ in range(sets)]  # out, x and g, if any
    op = descriptor_of(case, handle, iop.TensorDescriptor((n,), dtype))
    addresses = [[t.data_ptr() for t in buffer] for buffer in buffers]

    def ours(i):
        op.calculate(None, *addresses[i % sets])

    def copy(i):
        buffers[i % sets][0].copy_(buffers[i % sets][1])

    ours(0)
    torch.cuda.synchronize()
    got, *inputs = (to_numpy(t[:1 << 16]) for t in buffers[0])
    np.testing.assert_allclose(got.astype(float), case(*inputs[::-1]).astype(float),
                               rtol=1e-2 if itemsize == 2 else 1e-6, atol=1e-6)
    contestants = {"ours": ours, "copy": copy}
    there = peers.torch_statements(case, torch.get_num_threads())
    if there:
        names, statement, _ = there
        torch_call = eval(f"lambda o, x, g=None: {statement}", names)
        contestants["torch"] = lambda i: torch_call(*buffers[i % sets])
    seconds = race(contestants, sets * 4)
    copy_rate = 2 * n * itemsize / seconds["copy"]
    return {"seconds": seconds, "of_copy": tensors * n * itemsize / seconds["ours"] / copy_rate, "copy_rate": copy_rate,
            "torch": seconds["torch"] / seconds["ours"] if there else None}


def launch_row(handle):
    tensor = iop.TensorDescriptor((1024,), "float32")
    buffers = [torch.zeros(1024, device=DEVICE) for _ in range(3)]
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


def conv_tensors(case, dtype, layout):
    """(grad_output, input, weight, bias) on the device. dtype "tf32": float32 data on tensor cores, on both sides."""
    storage = "float32" if dtype == "tf32" else dtype
    os.environ["INFINIOP_CY_TF32"] = str(int(dtype == "tf32"))
    torch.backends.cudnn.allow_tf32 = dtype == "tf32"
    torch.backends.cudnn.benchmark = True
    tensors = [random_tensor(shape, storage) for shape in case.shapes]
    if layout == "channels_last":
        tensors = [t.to(memory_format=torch.channels_last) for t in tensors]
    return *tensors, random_tensor(case.cout, storage)


def conv_seconds(dtype, flops, op, outs, inputs, peer):
    """The row of a descriptor and of torch's `peer`, a function of the inputs, once ours is near it in float64."""
    workspace = torch.empty(op.workspace_size, dtype=torch.uint8, device=DEVICE)
    addresses = [t.data_ptr() for t in (workspace, *outs, *inputs)]

    def ours(_):
        op.calculate(*addresses)

    ours(0)
    exact = peer(*(t.double() for t in inputs))
    exact = exact if isinstance(exact, tuple) else (exact,)
    error = max(float((got.double() - want).norm() / want.norm()) for got, want in zip(outs, exact))
    bound = {"float64": 1e-12, "float32": 1e-5, "tf32": 2e-3, "float16": 2e-3, "bfloat16": 1e-2}[dtype]
    if not error < bound:
        raise ArithmeticError(f"relative error {error}, expected at most {bound}")
    seconds = race({"ours": ours, "torch": lambda _: peer(*inputs)}, 4)
    return {"seconds": seconds, "relative_error": error, "torch": seconds["torch"] / seconds["ours"],
            "flops": flops / seconds["ours"]}


def described(*tensors):
    return [iop.TensorDescriptor(tuple(t.shape), str(t.dtype).removeprefix("torch."), t.stride()) for t in tensors]


def conv_row(case, dtype, layout, handle):
    g, x, w, b = conv_tensors(case, dtype, layout)
    stride, pairs, dilation, groups = case.geometry
    pads = [p for p, _ in pairs]
    op = iop.ConvBackwardDescriptor(handle, *described(g, x, w, b), pads, stride, dilation, groups)
    outs = [torch.empty(t.shape, dtype=t.dtype, device=DEVICE) for t in (x, w, b)]
    return conv_seconds(dtype, 2 * case.flops, op, outs, (g, x, w), lambda *t: torch.ops.aten.convolution_backward(
        *t, [case.cout], list(stride), pads, list(dilation), False, [0] * len(stride), groups, [True] * 3))


def conv_forward_row(case, dtype, layout, handle):
    y, x, w, b = conv_tensors(case, dtype, layout)  # an output lies as its gradient does
    stride, pairs, dilation, groups = case.geometry
    pads = [p for p, _ in pairs]
    op = iop.ConvDescriptor(handle, *described(y, x, w, b), pads, stride, dilation, groups)
    return conv_seconds(dtype, case.flops, op, [y], (x, w, b), lambda *t: torch.ops.aten.convolution(
        *t, list(stride), pads, list(dilation), False, [0] * len(stride), groups))


def device_works():
    try:
        torch.cuda.synchronize()
        return bool(torch.ones(1, device=DEVICE).item())
    except RuntimeError:
        return False


def elementwise_job(case, dtype, elements, handle):
    return ("elementwise", {"operator": str(case), "dtype": dtype, "elements": elements},
            partial(elementwise_row, case, dtype, elements, handle))


def jobs(handle, elements):
    """(table, what tells a row from others, function that measures it), what matters most first."""
    yield "launch", {"what": "one call through a descriptor"}, lambda: launch_row(handle)
    for case in GRADIENTS:
        for dtype in DTYPES:
            yield elementwise_job(case, dtype, elements, handle)
    rows = [("typical", c, d, "contiguous") for d in CONV_TARGETS for c in FAMILIES["typical"]]
    rows += [("typical", c, d, "channels_last") for d in ("float16", "float32") for c in FAMILIES["typical"]
             if len(c.size) == 2]
    rows += [("resnet50", c, d, "contiguous") for d in ("float32", "float16") for c in FAMILIES["resnet50"]]
    for family, case, dtype, layout in rows:
        key = {"family": family, "shape": str(case), "dtype": dtype, "layout": layout}
        yield "conv", key, partial(conv_row, case, dtype, layout, handle)
        yield "conv_forward", key, partial(conv_forward_row, case, dtype, layout, handle)
    for case in CASES:
        for dtype in () if case.operator.backward else DTYPES:
            yield elementwise_job(case, dtype, elements, handle)


def show(table, row):
    names = ("what", "family", "operator", "shape", "dtype", "layout")
    what = " ".join(str(row[name]) for name in names if name in row)
    if "error" in row:
        measured = f"FAILED: {row['error']}"
    elif table == "launch":
        measured = ", ".join(f"{form} {row[form] * 1e6:.1f} us" for form in ("addresses", "tensors"))
    else:
        rate = f"copy {row['of_copy']:5.0%}" if table == "elementwise" else f"{row['flops'] / 1e12:7.2f} TF/s"
        measured = f"{row['seconds']['ours'] * 1e6:9.1f} us   {rate}"
        if row["torch"]:
            measured += f"   torch/ours {row['torch']:5.2f}"
    print(f"{'forward ' * (table == 'conv_forward') + what:60} {measured}", flush=True)


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
    with iop.Handle(DEVICE) as handle:
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
