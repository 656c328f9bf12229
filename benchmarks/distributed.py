"""What sums with the same bits on any number of workers cost.

    python benchmarks/distributed.py                 # all of it, by mpiexec; needs pip install 'infiniop_cy[demo-mpi]'
    python benchmarks/distributed.py --most 1e6      # tensors of at most so many elements
    python benchmarks/distributed.py --json FILE

Three tables: the kernels beside copies of as many bytes, in one process on one thread, by its CPU time; a sum over two
processes beside a plain float32 Allreduce, by the clock; and the gradients of ResNet-50's convolutions on one and on
two processes, of one thread each. Contestants take turns, and medians count. All sums are checked before they are
timed.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

import numpy as np

import infiniop_cy as iop
from infiniop_cy.core import _core
from infiniop_cy.distributed import GradientSum, cut, mpi
from infiniop_cy.distributed.gradients import _PIECE as PIECE

SIZES = (1e3, 1e4, 1e5, 1e6, 1e7, 1e8)


def medians(calls, repeats, clock, before=lambda: None):
    """Seconds of each call, taken in turns; the first round does not count."""
    seconds = [[] for _ in calls]
    for _ in range(repeats + 1):
        for call, times in zip(calls, seconds):
            before()
            start = clock()
            call()
            times.append(clock() - start)
    return [statistics.median(times[1:]) for times in seconds]


# ---- kernels

def kernel_rows(size=1 << 23, repeats=21):
    """Bytes a second that each step reads and writes, and those of a copy of as many bytes."""
    random = np.random.default_rng(0)
    for dtype in ("float32", "float64", "float16"):
        shards = [random.standard_normal(size).astype(dtype) for _ in range(4)]
        sums, out = np.zeros(size, np.int64), np.empty(size, dtype)
        bytes_of = {"scan": shards[0].nbytes, "add 1 shard": shards[0].nbytes + sums.nbytes,
                    "add 4 shards": 4 * shards[0].nbytes + sums.nbytes, "round": sums.nbytes + out.nbytes}
        piece = np.empty(PIECE, np.int64)

        def add(count, shards=shards, piece=piece):
            for begin in range(0, size, PIECE):
                _core.add_to_grid(shards[:count], begin, piece, -50, 2)

        calls = {"scan": lambda shards=shards: _core.scan_magnitudes(shards[0]), "add 1 shard": lambda add=add: add(1),
                 "add 4 shards": lambda add=add: add(4),
                 "round": lambda sums=sums, out=out: _core.from_grid(sums, -50, out, 0)}
        for step, call in calls.items():
            source, target = np.ones(bytes_of[step] // 2, np.uint8), np.zeros(bytes_of[step] // 2, np.uint8)
            with iop.threads(1):
                ours, copy = medians((call, lambda t=target, s=source: np.copyto(t, s)), repeats, time.process_time)
            yield {"dtype": dtype, "step": step, "bytes": bytes_of[step], "seconds": ours, "copy_seconds": copy}


# ---- what a process of a job measures

def allreduce_rows(workers, most):
    from mpi4py import MPI
    world = MPI.COMM_WORLD
    for size in (int(size) for size in SIZES if size <= most):
        gradient = np.random.default_rng(workers.rank).standard_normal(size, np.float32)
        total = np.empty_like(gradient)
        sums = GradientSum(workers, shards=workers.size)

        def exact(sums=sums, gradient=gradient):
            sums.add("gradient", workers.rank, gradient)
            return sums.result()["gradient"]

        world.Allreduce(gradient, total)
        assert np.allclose(exact(), total, atol=1e-6)
        repeats = 25 if size <= 1e6 else 9 if size <= 1e7 else 3
        ours, plain = medians((exact, lambda g=gradient, t=total: world.Allreduce(g, t)), repeats, time.perf_counter,
                              world.Barrier)
        yield {"elements": size, "bytes": 8 * size, "plain_bytes": 4 * size, "seconds": ours, "plain_seconds": plain}


def resnet50_layers():
    """(channels in, channels out, kernel, stride, size) of each convolution behind the first."""
    channels = 64
    for width, blocks, size, stride in ((64, 3, 56, 1), (128, 4, 56, 2), (256, 6, 28, 2), (512, 3, 14, 2)):
        for block in range(blocks):
            step = stride if block == 0 else 1
            yield channels, width, 1, 1, size
            yield width, width, 3, step, size
            if block == 0:
                yield channels, 4 * width, 1, step, size
                size //= stride
            yield width, 4 * width, 1, 1, size
            channels = 4 * width


def resnet_seconds(workers, shards, repeats):
    """Of all gradients of one batch, one image a shard, layer by layer, each layer's sum under way during the next."""
    random, layers = np.random.default_rng(0), []
    for before, after, kernel, stride, size in resnet50_layers():
        layers.append((random.standard_normal((shards, after, size // stride, size // stride), np.float32),
                       random.standard_normal((shards, before, size, size), np.float32),
                       random.standard_normal((after, before, kernel, kernel), np.float32),
                       {"stride": stride, "padding": kernel // 2}))
    sums = GradientSum(workers, shards=shards)

    def step():
        for i, (grad_output, images, weight, geometry) in enumerate(layers):
            for shard, piece in zip(range(shards), cut(shards, shards)):
                if shard in sums.shards:
                    sums.add(f"layer {i}", shard, iop.conv_backward(
                        grad_output[piece], images[piece], weight, **geometry,
                        output_mask=(True, True, False)).grad_weight)
            sums.start()
        return sums.result()

    from mpi4py import MPI
    return medians((step,), repeats, time.perf_counter, MPI.COMM_WORLD.Barrier)[0]


def run_job(processes, *arguments):
    """What rank 0 of a job prints, as JSON."""
    beside = shutil.which("mpiexec", path=str(pathlib.Path(sys.executable).parent))
    mpiexec = beside or shutil.which("mpiexec") or sys.exit("error: there is no mpiexec; pip install mpich has one")
    done = subprocess.run([mpiexec, "-n", str(processes), sys.executable, "-m", "mpi4py", __file__, *arguments],
                          env=os.environ | {"OMP_NUM_THREADS": "1"}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          text=True, check=True)
    return json.loads(done.stdout)


def work(options):
    with mpi() as workers, iop.threads(1):
        measured = list(allreduce_rows(workers, options.most)) if options.job == "allreduce" else \
            resnet_seconds(workers, 4, options.repeats)
        if workers.rank == 0:
            print(json.dumps(measured), flush=True)


# ---- the report

def tables(kernels, allreduce, resnet):
    yield "| dtype | step | GB/s | of a copy |\n|---|---|---|---|"
    for row in kernels:
        yield (f"| {row['dtype']} | {row['step']} | {row['bytes'] / row['seconds'] / 1e9:.1f} "
               f"| {row['copy_seconds'] / row['seconds']:.0%} |")
    yield "\n| elements | bytes, plain | bytes, this one | plain, ms | this one, ms | ratio |"
    yield "|---|---|---|---|---|---|"
    for row in allreduce:
        ours, plain = row["seconds"], row["plain_seconds"]
        yield (f"| {row['elements']:.0e} | {row['plain_bytes']:,} | {row['bytes']:,} | {plain * 1e3:.3g} "
               f"| {ours * 1e3:.3g} | {ours / plain:.1f} |")
    if resnet:
        yield "\n| ResNet-50's convolutions, batch of 4 | seconds |\n|---|---|"
        yield from (f"| {n} process{'es' * (n != '1')} of one thread | {time:.2f} |" for n, time in resnet.items())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--most", type=float, default=1e8, help="elements of a tensor (default: %(default)g)")
    parser.add_argument("--repeats", type=int, default=5, help="of ResNet-50; 0: without (default: %(default)s)")
    parser.add_argument("--json", type=pathlib.Path, help="file for the results")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        work(options)
        return
    kernels = list(kernel_rows(max(PIECE, min(1 << 23, int(options.most)) // PIECE * PIECE)))
    allreduce = run_job(2, "--job", "allreduce", "--most", str(options.most))
    resnet = {str(n): run_job(n, "--job", "resnet", "--repeats", str(options.repeats)) for n in (1, 2)} \
        if options.repeats else {}
    print(*tables(kernels, allreduce, resnet), sep="\n")
    if options.json:
        options.json.write_text(json.dumps({"isa": _core.build_info()["isa"], "kernels": kernels,
                                            "allreduce": allreduce, "resnet50_seconds": resnet}, indent=1) + "\n")


if __name__ == "__main__":
    main()
