"""What test_distributed.py runs under mpiexec, or under torch.distributed: one worker of a job.

    mpiexec -n 3 python mpi_worker.py hash          prints a hash of exact sums, and one of plain float32 sums
    mpiexec -n 3 python mpi_worker.py shape         ... or fails, in the way that is named
"""
import hashlib
import os
import signal
import sys
import time

import ml_dtypes
import numpy as np

from infiniop_cy import InfiniopError, distributed

SHARDS = 13
DTYPES = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)
SHAPES = {"weight": (700, 300), "bias": (5,), "scale": ()}


def gradient(name, dtype, shard):
    """The same wherever it is asked for; magnitudes of 2^-15 to 2^14, and special values in some places of a bias."""
    random = np.random.default_rng([shard, *name.encode()])
    with np.errstate(over="ignore", under="ignore"):
        values = np.ldexp(random.standard_normal(SHAPES[name]), random.integers(-15, 12, SHAPES[name]))
        values = np.asarray(values).astype(dtype)
    if name == "bias":
        values[0] = -0.0
        values[1:4] = np.inf if shard == 3 else values[1], -np.inf if shard in (3, 9) else np.inf, \
            np.nan if shard == 12 else 0
    return values


def hash_of(arrays):
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:16]


def exact_sums(workers):
    sums = distributed.GradientSum(workers, shards=SHARDS)
    for dtype in DTYPES:
        for name in SHAPES:
            sums.declare(f"{name} {np.dtype(dtype)}", np.zeros(SHAPES[name], dtype))
            for shard in reversed(sums.shards):
                sums.add(f"{name} {np.dtype(dtype)}", shard, gradient(name, dtype, shard))
        sums.start()
    return hash_of(sums.result().values())


def plain_sum(workers):
    """What everybody does: the sum of one's own, then a sum over all in float32."""
    from mpi4py import MPI
    total = np.zeros(SHAPES["weight"], np.float32)
    for shard in distributed.GradientSum(workers, shards=SHARDS).shards:
        total += gradient("weight", np.float32, shard)
    MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, total, MPI.SUM)
    return hash_of([total])


def fail(workers, way):
    """The last worker does something else than the others."""
    last = workers.rank == workers.size - 1
    sums = distributed.GradientSum(workers, shards=SHARDS + (last and way == "shards"))
    shape, dtype, name = (3, 4), np.float32, "weight"
    if last:
        shape = (4, 3) if way in ("shape", "caught") else shape
        dtype = np.float64 if way == "dtype" else dtype
        name = "bias" if way == "name" else name
        if way == "raise":
            raise RuntimeError("this worker cannot go on")
        if way == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if way == "exit":
            sys.exit()
        if way == "leave":
            return
    for shard in sums.shards:
        sums.add(name, shard, np.ones(shape, dtype))
    if way == "leave-late" and last:
        sums.start()
        return
    try:
        sums.result()
    except InfiniopError:
        if way != "caught" or not last:
            raise
    sums.declare("more", np.ones(300000, np.float32))
    for shard in sums.shards:
        sums.add("more", shard, np.ones(300000, np.float32))
    sums.result()


def main(way, engine):
    begin = time.monotonic()
    with engine() as workers:
        if way == "hash":
            exact = exact_sums(workers)
            plain = plain_sum(workers) if engine is distributed.mpi else ""
            if workers.rank == 0:
                print(f"exact={exact} plain={plain}", flush=True)
        else:
            fail(workers, way)
    if workers.rank == 0:
        print(f"all {workers.size} left after {time.monotonic() - begin:.1f} s", flush=True)


def gloo():
    import torch
    torch.distributed.init_process_group("gloo")
    return distributed.torch()


if __name__ == "__main__":
    main(sys.argv[1], gloo if "gloo" in sys.argv else distributed.mpi)
