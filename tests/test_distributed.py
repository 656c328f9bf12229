"""Sums of gradients over logical shards: against exact arithmetic, by threads that stand for workers, and under MPI."""
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import threading
from fractions import Fraction
from math import frexp, ldexp

import ml_dtypes
import numpy as np
import pytest

import infiniop_cy as iop
from infiniop_cy import distributed
from infiniop_cy.distributed import GradientSum, Workers, cut, gradients, sum_gradient

HERE = pathlib.Path(__file__).parent
WORKER = HERE / "mpi_worker.py"
# (dtype, bits of a number, exponent of the smallest one, exponent above all)
FORMATS = {
    "float16": (np.float16, 11, -24, 16),
    "bfloat16": (ml_dtypes.bfloat16, 8, -133, 128),
    "float32": (np.float32, 24, -149, 128),
    "float64": (np.float64, 53, -1074, 1024),
}
LIMIT = 60  # seconds: a hang is a failure


# ---- exact arithmetic

def guard_bits(shards):
    return (shards - 1).bit_length()


def unit_exponent(shards, lowest):
    """Of the grid, by the definition: so that no number has more than 2^62 units over the number of shards."""
    largest = max((abs(float(v)) for shard in shards for v in shard.ravel()), default=0.0)
    return max(lowest, frexp(largest)[1] - 62 + guard_bits(len(shards))) if largest else lowest


def rounded(number, bits, lowest, above):
    """A Fraction to the nearest number of a format, ties to even."""
    if number == 0:
        return 0.0
    size = abs(number)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent += size >= Fraction(2) ** exponent  # now 2^(exponent - 1) <= size < 2^exponent
    ulp = Fraction(2) ** max(exponent - bits, lowest)
    size = round(size / ulp) * ulp
    return float("inf") * (1 if number > 0 else -1) if size >= Fraction(2) ** above else float(size) * (
        1 if number > 0 else -1)


def reference(shards, name):
    _, bits, lowest, above = FORMATS[name]
    unit = Fraction(2) ** unit_exponent(shards, lowest)
    sums = [sum(round(Fraction(float(v)) / unit) for v in values) for values in zip(*(s.ravel() for s in shards))]
    totals = np.array([rounded(n * unit, bits, lowest, above) for n in sums])
    minus_zero = np.all([(s == 0) & np.signbit(s) for s in shards], axis=0)
    return np.where(minus_zero, -0.0, totals)


def random_shards(random, name, count, size):
    """Magnitudes anywhere in the format, or close together, so that sums cancel and overflow; also subnormal ones."""
    dtype, _, lowest, above = FORMATS[name]
    top = random.integers(lowest, above + 1)
    exponents = np.clip(top - random.integers(0, random.integers(1, 130), (count, size)), lowest, above)
    values = np.ldexp(random.uniform(-1, 1, (count, size)), exponents)
    with np.errstate(over="ignore", under="ignore"):
        values = values.astype(dtype)
    values[~np.isfinite(values)] = 0
    return list(values)


@pytest.mark.parametrize("name", FORMATS)
def test_sums_are_those_of_exact_arithmetic(name):
    random = np.random.default_rng(0)
    for _ in range(60):
        shards = random_shards(random, name, random.integers(1, 20), random.integers(1, 70))
        result = sum_gradient(shards, len(shards))
        assert result.dtype == shards[0].dtype
        assert result.astype(np.float64).tobytes() == reference(shards, name).tobytes()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("count", [1, 2, 3, 8, 9])
def test_largest_magnitudes_do_not_overflow(name, count):
    dtype = FORMATS[name][0]
    largest = ml_dtypes.finfo(dtype).max
    shards = [np.array([largest, -largest, largest, ldexp(1, FORMATS[name][2])], dtype) for _ in range(count)]
    for shard in shards[::2]:
        shard[2] = -largest
    result = sum_gradient(shards, count)
    assert result.astype(np.float64).tobytes() == reference(shards, name).tobytes()
    assert np.isinf(result[:2]).all() == (count > 1)
    assert result[2] == (-largest if count % 2 else 0)  # sums that are beyond the format on the way


def test_sums_of_the_largest_number_of_shards():
    shard = np.full(3, np.finfo(np.float32).max / 2**16, np.float32)
    count = 32767
    result = sum_gradient([shard.copy() for _ in range(count)], count)
    assert result.tolist() == [float(np.float32(Fraction(float(shard[0])) * count))] * 3


@pytest.mark.parametrize("name", FORMATS)
def test_error_is_within_the_bound(name):
    _, bits, lowest, _ = FORMATS[name]
    random = np.random.default_rng(1)
    for count in (1, 5, 16):
        shards = [np.ldexp(random.standard_normal(50), random.integers(-60, 4, 50)).astype(FORMATS[name][0])
                  for _ in range(count)]
        largest = max(Fraction(float(np.abs(s).max())) for s in shards)
        bound = 0 if name == "float16" else count**2 * largest / 2**61
        for values, result in zip(zip(*shards), sum_gradient(shards, count)):
            exact = sum(Fraction(float(v)) for v in values)
            half_ulp = max(Fraction(2) ** (lowest - 1), (abs(exact) + bound) / 2**bits)
            assert abs(Fraction(float(result)) - exact) <= bound + half_ulp


def test_cancellation_that_float32_loses():
    shards = [np.float32([1e8]), np.float32([1]), np.float32([-1e8])]
    assert np.float32(shards[0] + shards[1]) + shards[2] != 1
    assert sum_gradient(shards, 3).tolist() == [1]
    assert sum_gradient(np.ones((3, 2), np.float32), 3).tolist() == [3, 3]  # shards stacked in one array


SPECIAL = (  # of three shards, and their sum
    ((np.nan, 1, 2), np.nan), ((np.inf, -np.inf, 1), np.nan), ((np.inf, 1, np.inf), np.inf),
    ((1, -np.inf, 2), -np.inf), ((-0.0, -0.0, -0.0), -0.0), ((-0.0, 0.0, -0.0), 0.0), ((1, -1, -0.0), 0.0),
    ((np.inf, np.nan, -np.inf), np.nan), ((0.0, 0.0, 0.0), 0.0), ((1, 2, 3), 6), ((-0.0, -0.0, 2), 2),
)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("places", [SPECIAL, SPECIAL[4:7], SPECIAL[8:9], SPECIAL[4:5]], ids=len)
def test_special_values(name, places):
    dtype = FORMATS[name][0]
    for length in (1, 40):  # also beside numbers
        shards = [np.array([v[s] for v, _ in places] + [1.5] * (length - 1), dtype) for s in range(3)]
        expected = np.array([total for _, total in places] + [4.5] * (length - 1)).astype(dtype)
        result = sum_gradient(shards, 3)
        assert np.array_equal(np.isnan(result), np.isnan(expected))
        number = ~np.isnan(expected)
        assert result[number].tobytes() == expected[number].tobytes()  # the sign of 0, too


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("length", [1, 40])
def test_nan_of_all_ones(name, length):
    """Payloads are no numbers: CUDA writes this NaN, and so do those who fill memory with 0xff."""
    dtype = np.dtype(FORMATS[name][0])
    for sign in ("7f", "ff"):
        shards = [np.full(length, 2).astype(dtype) for _ in range(2)]
        shards[1][-1:] = np.frombuffer(bytes.fromhex("ff" * (dtype.itemsize - 1) + sign), dtype)
        result = sum_gradient(shards, 2).astype(float)
        assert np.isnan(result[-1])
        assert (result[:-1] == 4).all()


def test_shapes_layouts_and_inputs():
    random = np.random.default_rng(2)
    for shape in ((), (0,), (3, 0), (4, 5), (2, 3, 4)):
        shards = [random.standard_normal(shape) for _ in range(3)]
        strided = [np.asfortranarray(np.repeat(s, 2, axis=0)[::2]) if s.ndim else s for s in shards]
        before = [s.copy() for s in strided]
        result = sum_gradient(strided, 3)
        assert result.shape == shape
        assert result.tobytes() == sum_gradient(shards, 3).tobytes()
        assert all(np.array_equal(a, b) for a, b in zip(strided, before))


@pytest.mark.parametrize("name", FORMATS)
def test_threads_and_pieces_do_not_change_bits(name, monkeypatch):
    monkeypatch.setattr(gradients, "_PIECE", 1 << 17)
    random = np.random.default_rng(3)
    size = 300_001  # several pieces, some tasks each
    shards = [random.standard_normal(size).astype(FORMATS[name][0]) for _ in range(3)]
    shards[1][size - 1] = np.inf
    with iop.threads(1):
        alone = sum_gradient(shards, 3)
    with iop.threads(3):
        assert sum_gradient(shards, 3).tobytes() == alone.tobytes()
    for part in (slice(0, 1), slice(131_000, 131_100), slice(size - 1, size)):
        largest = max(np.abs(s[:-1]).max() for s in shards)  # for the grid of the whole
        with_all = [np.array([*s[part], v], s.dtype) for s, v in zip(shards, (largest, 0, 0))]
        assert sum_gradient(with_all, 3)[:-1].tobytes() == alone[part].tobytes()


# ---- workers, as threads

class Together(Workers):
    """A worker that is a thread. Operations of different kinds or lengths at a time are errors, as is waiting long."""

    def __init__(self, rank, size, shared):
        self.rank, self.size, self._shared = rank, size, shared

    def _reduce(self, array, operation):
        arrays, barrier = self._shared
        arrays[self.rank] = operation, array.copy()
        barrier.wait()
        assert len({(op, values.size) for op, values in arrays}) == 1, "the workers do different things"
        total = operation.reduce([values for _, values in arrays])
        barrier.wait()
        return Later(array, total)

    def maximum(self, array):
        return self._reduce(array, np.maximum)

    def sum(self, array):
        return self._reduce(array, np.add)

    def abort(self):
        self._shared[1].abort()


class Later:
    """A request: nothing is there before wait()."""

    def __init__(self, array, total):
        self._array, self._total = array, total
        array[...] = -1

    def wait(self):
        self._array[...] = self._total


def run_workers(size, work):
    """The results of work(workers) on so many threads, or the errors that they raised."""
    shared, results = ([None] * size, threading.Barrier(size, timeout=LIMIT)), [None] * size

    def run(rank):
        try:
            with Together(rank, size, shared) as workers:
                results[rank] = work(workers)
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 20])
def test_bits_do_not_depend_on_workers(size, monkeypatch):
    monkeypatch.setattr(gradients, "_PIECE", 1 << 15)
    monkeypatch.setattr(gradients, "_UNDER_WAY", 3)
    random = np.random.default_rng(4)
    names = {f"{name} {i}": random_shards(random, name, 13, n) for name in FORMATS
             for i, n in enumerate((1, 7, 140_000))}
    names["float32 0"][5][0] = np.nan
    for shard in names["float16 1"]:
        shard[3] = -0.0
    expected = {name: sum_gradient(shards, 13).tobytes() for name, shards in names.items()}

    def work(workers):
        sums = GradientSum(workers, shards=13)
        for step in range(2):  # a sum is used again and again
            for i, (name, shards) in enumerate(names.items()):
                sums.declare(name, shards[0])
                for shard in sums.shards:
                    sums.add(name, shard, shards[shard])
                if i % 3 == step:
                    sums.start()
            results = sums.result()
            assert list(results) == list(names)
        return {name: result.tobytes() for name, result in results.items()}

    assert run_workers(size, work) == [expected] * size


def test_many_small_gradients_share_operations():
    operations = []

    class Counted(Workers):
        def maximum(self, array):
            operations.append("maximum")

        def sum(self, array):
            operations.append("sum")

    sums = GradientSum(Counted(), shards=2)
    for i in range(200):
        for shard in sums.shards:
            sums.add(f"bias {i}", shard, np.full(10, i + shard, np.float32))
    assert [r[0] for r in sums.result().values()] == [2 * i + 1 for i in range(200)]
    assert operations == ["maximum", "sum"] * 3


def test_two_sums_over_the_same_workers():
    def work(workers):
        first, second = GradientSum(workers, shards=4), GradientSum(workers, shards=2)
        for shard in first.shards:
            first.add("a", shard, np.full(3, shard, np.float32))
        first.start()
        for shard in second.shards:
            second.add("b", shard, np.full(200_000, shard, np.float32))
        second.start()
        return first.result()["a"][0], second.result()["b"][-1]

    assert run_workers(2, work) == [(6, 1)] * 2


def test_each_worker_has_its_block_of_shards():
    for size in (1, 2, 3, 7, 20):
        blocks = run_workers(size, lambda workers: GradientSum(workers, shards=13).shards)
        assert [s for block in blocks for s in block] == list(range(13))
        assert max(map(len, blocks)) - min(map(len, blocks)) <= 1


def test_cut():
    for samples, shards in ((0, 3), (2, 3), (10, 3), (12, 4), (7, 1)):
        pieces = [range(samples)[piece] for piece in cut(samples, shards)]
        assert len(pieces) == shards
        assert [i for piece in pieces for i in piece] == list(range(samples))
        assert max(map(len, pieces)) - min(map(len, pieces)) <= 1


# ---- errors

ONE, TWO = np.ones(3, np.float32), np.ones(4, np.float32)
FOUR = np.arange(4, dtype=np.float32)


def sums_of(*added, shards=2, finish=True):
    sums = GradientSum(shards=shards)
    for name, shard, gradient in added:
        sums.add(name, shard, gradient)
    return sums.result() if finish else sums


def started():
    sums = sums_of(("w", 0, ONE), ("w", 1, ONE.copy()), finish=False)
    sums.start()
    sums.add("w", 0, ONE)


@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda: GradientSum(shards=0), iop.BadParam, "shards is 0, expected a whole number of 1 to 32767"),
    (lambda: GradientSum(shards=32768), iop.BadParam, "shards is 32768"),
    (lambda: GradientSum(shards=True), iop.BadParam, "shards is True"),
    (lambda: GradientSum(shards=2.0), iop.BadParam, "shards is 2.0"),
    (lambda: GradientSum(object(), shards=2), iop.BadParam, "workers is a object, expected mpi"),
    (lambda: cut(-1, 2), iop.BadParam, "samples is -1"),
    (lambda: cut(1, "two"), iop.BadParam, "shards is 'two'"),
    (lambda: sums_of(("w", 2, ONE)), iop.BadParam, "shard is 2, expected a whole number of 0 to 1"),
    (lambda: sums_of((3, 0, ONE)), iop.BadParam, "the name of a gradient is 3, expected a str"),
    (lambda: sums_of(("w", 0, None)), iop.NullPointer, "gradient 'w' is None"),
    (lambda: sums_of(("w", 0, np.ones(3, int))), iop.BadTensorDtype, "gradient 'w' has dtype int64, expected float16"),
    (lambda: sums_of(("w", 0, ONE), ("w", 1, TWO)), iop.BadTensorShape, r"'w' has shape \(4,\), expected \(3,\)"),
    (lambda: sums_of(("w", 0, ONE), ("w", 1, np.ones(3))), iop.BadTensorDtype, "float64, expected float32"),
    (lambda: sums_of(("w", 0, ONE), ("w", 0, ONE.copy())), iop.BadParam, "shard 0 of gradient 'w' was added before"),
    (lambda: sums_of(("w", 0, ONE), ("w", 1, ONE)), iop.BadParam, "shard 1 is in the same memory as that of shard 0"),
    (lambda: sums_of(("w", 0, FOUR[:3]), ("w", 1, FOUR[1:])), iop.BadParam, "shard 1 is in the same memory as that of"),
    (lambda: sums_of(("w", 0, FOUR[1:]), ("w", 1, FOUR[:3])), iop.BadParam, "shard 1 is in the same memory as that of"),
    (lambda: sums_of(("w", 0, ONE)), iop.BadParam, r"gradient 'w' lacks shard 1, expected all of range\(0, 2\)"),
    (started, iop.BadParam, r"gradient 'w' was started before, expected result\(\) in between"),
    (lambda: sum_gradient([ONE], 2), iop.BadParam, "gradients has 1 entries, expected one for each"),
])
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_what_was_added_before_an_error_is_kept():
    sums = sums_of(("w", 0, ONE), finish=False)
    for wrong in (TWO, np.ones(3), ONE):
        with pytest.raises(iop.InfiniopError):
            sums.add("w", 1, wrong)
    sums.add("w", 1, 2 * ONE)
    assert sums.result()["w"].tolist() == [3, 3, 3]


def test_workers_that_do_not_agree_all_say_so():
    def work(workers):
        odd = workers.rank == 1
        return sum_gradient([np.ones(4 if odd else 3, np.float64 if odd else np.float32)], 3, workers)

    errors = run_workers(3, work)
    assert [type(error) for error in errors] == [iop.BadTensorDtype] * 3
    assert len({str(error) for error in errors}) == 1
    assert "rank 0 has a gradient 'gradient' of dtype float32 and shape (3,), but rank 1 has" in str(errors[0])
    assert "rank 1 has a gradient 'gradient' of dtype float64 and shape (4,)" in str(errors[0])


def test_an_error_of_one_sum_leaves_another_as_it_was():
    def work(workers):
        first, second = GradientSum(workers, shards=2), GradientSum(workers, shards=2)
        for shard in first.shards:
            first.add("a", shard, TWO if workers.rank else ONE)
            second.add("b", shard, ONE)
        first.start()
        with pytest.raises(iop.BadTensorShape, match="gradient 'a'"):
            second.start()
        return second.result()["b"].tolist(), first.result()

    assert run_workers(2, work) == [([2, 2, 2], {})] * 2


@pytest.mark.parametrize("goes_on", [True, False])
def test_an_error_that_one_worker_catches_ends_the_others_with_it(goes_on):
    """What it sums next nobody else does; where it sums nothing more, it leaves with them."""
    def work(workers):
        try:
            sum_gradient([TWO if workers.rank else ONE], 3, workers)
        except iop.BadTensorShape:
            if workers.rank != 1:
                raise
            return goes_on and sum_gradient([ONE], 3, workers)

    errors = run_workers(3, work)
    if not goes_on:
        assert [type(error) for error in errors] == [iop.BadTensorShape, bool, iop.BadTensorShape]
        return
    # The first to end the job may cut off what another would say.
    assert {type(error) for error in errors} <= {iop.BadParam, threading.BrokenBarrierError}
    assert any("rank 0 leaves its `with` block, but rank 1 sums 3 shards" in str(error) for error in errors)


def test_a_worker_without_shards_has_to_be_told_what_it_sums():
    def work(workers):
        gradients = [ONE] if workers.rank else []
        return sum_gradient(gradients, 1, workers)

    errors = run_workers(2, work)
    assert "gradients is empty, expected like=" in str(errors[0])


def test_shards_of_another_worker_are_refused():
    def work(workers):
        sums = GradientSum(workers, shards=4)
        with pytest.raises(iop.BadParam, match=r"is not one of rank \d, expected one of range"):
            sums.add("w", (sums.shards[0] + 2) % 4, ONE)

    assert run_workers(2, work) == [None, None]


# ---- processes

def mpiexec():
    pytest.importorskip("mpi4py")
    beside = shutil.which("mpiexec", path=str(pathlib.Path(sys.executable).parent))
    return beside or shutil.which("mpiexec") or pytest.skip("there is no mpiexec")


def run_mpi(size, *arguments):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run([mpiexec(), "-n", str(size), sys.executable, str(WORKER), *arguments], env=environment,
                          capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL, check=False)


def test_processes_of_any_number_give_the_same_bits():
    exact, plain = set(), set()
    for size in (1, 2, 3, 4, 7):
        done = run_mpi(size, "hash")
        assert done.returncode == 0, done.stderr
        words = dict(word.split("=") for word in done.stdout.split() if "=" in word)
        exact.add(words["exact"])
        plain.add(words["plain"])
    assert len(exact) == 1
    assert len(plain) > 1  # this is what it takes to fail


@pytest.mark.parametrize(("way", "words"), [
    ("shape", ("BadTensorShape", "rank 0 has", "shape (3, 4)", "rank 2 has", "shape (4, 3)")),
    ("shards", ("BadParam", "rank 0 sums 13 shards", "rank 2 sums 14 shards")),
    ("leave-late", ("BadParam", "rank 2 leaves its `with` block", "rank 0 sums 13 shards")),
    ("exit", ("BadParam", "rank 2 leaves its `with` block")),
    ("caught", ("rank 0 has", "but rank 2 has", "ends the job", "rank 0 leaves its `with` block, but rank 2 sums 13")),
    ("raise", ("rank 2 of 3 ends the job", "RuntimeError: this worker cannot go on")),
    ("kill", ()),
])
def test_a_worker_that_does_not_go_along_ends_the_job(way, words):
    done = run_mpi(3, way)
    assert done.returncode != 0
    assert "all 3 left" not in done.stdout
    assert all(word in done.stderr for word in words), done.stderr


def test_mpi_outside_of_its_context_is_refused():
    mpiexec()
    call = "from infiniop_cy import distributed as d; d.GradientSum(d.mpi(), shards=1).result()\n" \
        "d.sum_gradient([__import__('numpy').ones(1)], 1, d.mpi())"
    done = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, timeout=LIMIT, check=False)
    assert "BadParam: _Mpi: used outside of its context" in done.stderr


def test_mpi_has_one_context():
    mpiexec()
    call = "from infiniop_cy import distributed as d; w = d.mpi()\nfor _ in 'ab':\n    with w: pass"
    done = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, timeout=LIMIT, check=False)
    assert "BadParam: mpi(): its `with` block has ended" in done.stderr


@pytest.mark.parametrize("way", ["hash", "shape", "raise"])
def test_torch_distributed(way):
    pytest.importorskip("torch")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    workers = [subprocess.Popen(
        [sys.executable, str(WORKER), way, "gloo"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                          "OMP_NUM_THREADS": "1"}) for rank in range(2)]
    outputs = [worker.communicate(timeout=LIMIT) for worker in workers]
    if way == "hash":
        assert f"exact={hash_of_one_process()}" in outputs[0][0], outputs
    else:
        assert all(worker.returncode for worker in workers), outputs


def hash_of_one_process():
    sys.path.insert(0, str(HERE))
    from mpi_worker import exact_sums
    return exact_sums(distributed.alone())
