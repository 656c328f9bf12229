"""Timing several ways to do the same thing interleaved, in one process: what disturbs one disturbs the others."""
import ctypes
import os
import shlex
import subprocess
import sysconfig
import tempfile
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import median

SAMPLE = 50e-6     # seconds that a sample takes at least
PORTION = 50.0     # seconds for which a lock is held


@dataclass(frozen=True)
class Bounds:
    """How often each contestant of a row is sampled; the median counts."""

    repeats: int = 25
    patience: float = 6.0           # seconds of all samples of a row, beyond which there are fewer
    least: int = 20                 # samples even then
    slow: float = float("inf")      # seconds of a call, beyond which it gets
    least_of_slow: int = 0          # so many even then
    hopeless: float = float("inf")  # times the fastest, beyond which it gets
    of_hopeless: int = 3            # so many


@dataclass
class Contestant:
    """A statement over one set of buffers (names -> objects), and the sets that it goes through in turn."""

    name: str
    statement: str
    names: dict
    sets: list[dict]
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self):
        buffers = sorted(self.sets[0])
        text = (f"def run(sets, number):\n    for _ in range(number):\n"
                f"        for {', '.join(buffers)}, in sets:\n            {self.statement}\n")
        namespace = dict(self.names)
        exec(compile(text, f"<{self.name}>", "exec"), namespace)
        self._run, self._number = namespace["run"], 1
        self._sets = [tuple(one[name] for name in buffers) for one in self.sets]
        self._next = 0

    def once(self):
        """The first call: compiles, allocates, warms up."""
        self._run(self._sets, 1)

    def calibrate(self):
        started = time.perf_counter()
        self._run(self._sets, 1)
        took = time.perf_counter() - started
        self.slow = took / len(self._sets)
        self._number = max(1, int(SAMPLE / took)) if took else 1000

    def sample(self):
        if self._number == 1 and self.slow > SAMPLE:  # one set at a time, in rotation
            sets, calls = [self._sets[self._next]], 1
            self._next = (self._next + 1) % len(self._sets)
        else:
            sets, calls = self._sets, self._number * len(self._sets)
        started = time.perf_counter()
        self._run(sets, self._number)
        self.seconds.append((time.perf_counter() - started) / calls)


def race(contestants, bounds=Bounds()):
    """Median seconds per call of each, by name."""
    for one in contestants:
        one.once()
        one.calibrate()
    limit = bounds.hopeless * min(one.slow for one in contestants)
    racing = [one for one in contestants if one.slow <= limit]
    for one in [one for one in contestants if one.slow > limit] * bounds.of_hopeless:
        one.sample()
    least = bounds.least_of_slow if max(one.slow for one in racing) > bounds.slow else bounds.least
    for turn in range(max(least, min(bounds.repeats, int(bounds.patience / sum(one.slow for one in racing))))):
        start = turn % len(racing)
        for one in racing[start:] + racing[:start]:
            one.sample()
    return {one.name: median(one.seconds) for one in contestants}


def keep_freed_memory():
    """What is freed stays this process's (glibc alone). Else calls that make large results are timed with the page
    faults of fresh memory, whichever of the contestants happens to free the top of the heap."""
    mmap_max, trim_threshold = -4, -1
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(mmap_max, 0)
    mallopt(trim_threshold, 2**31 - 1)


class Portions:
    """Holds a file exclusively, as flock -x does, and lets go of it between rows every PORTION seconds. Calls
    `before_letting_go` then, and at the end however that comes. Without a file nothing is held."""

    def __init__(self, path, before_letting_go):
        self.file, self.before_letting_go = open(path, "a") if path else None, before_letting_go

    def __enter__(self):
        self._take()
        return self

    def __exit__(self, *_):
        self.before_letting_go()
        if self.file:
            self.file.close()

    def _take(self):
        if self.file:
            import fcntl
            fcntl.flock(self.file, fcntl.LOCK_EX)
            self._until = time.monotonic() + PORTION

    def between_rows(self):
        if self.file and time.monotonic() > self._until:
            import fcntl
            self.before_letting_go()
            fcntl.flock(self.file, fcntl.LOCK_UN)
            time.sleep(1)
            self._take()


@cache
def ceilings():
    """The library compiled from ceilings.cpp, None where no compiler can be found."""
    compiler = os.environ.get("CXX") or sysconfig.get_config_var("CXX") or "c++"
    source = Path(__file__).with_name("ceilings.cpp")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "ceilings.so")
        for command in (shlex.split(compiler), ["c++"], ["g++"], ["clang++"]):
            try:
                subprocess.run([*command, "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", str(source), "-o",
                                str(library)], check=True, capture_output=True)
            except (OSError, subprocess.CalledProcessError):
                continue
            loaded = ctypes.CDLL(str(library))
            loaded.triad.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64, ctypes.c_int]
            loaded.triad.restype = None
            for function in (loaded.multiply_add_float, loaded.multiply_add_double, loaded.multiply_add_bfloat16):
                function.argtypes, function.restype = [ctypes.c_int64, ctypes.c_int], ctypes.c_double
            return loaded
    return None


def triad():
    """triad(g, x, out, n, threads) on addresses, None without a compiler."""
    return ceilings().triad if ceilings() else None


best_rates = {}


def arithmetic_peak(threads, dtype="float32"):
    """The most floating-point operations per second that so many threads have reached: multiply-adds of float32 or
    float64, or bfloat16 products by AMX, else float32's. None without a compiler."""
    if not ceilings():
        return None
    by_amx = dtype == "bfloat16" and ceilings().multiply_add_bfloat16(1, 1)
    name = dtype if dtype == "float64" or by_amx else "float32"
    function = {"float32": ceilings().multiply_add_float, "float64": ceilings().multiply_add_double,
                "bfloat16": ceilings().multiply_add_bfloat16}[name]
    for _ in range(9):
        started = time.perf_counter()
        done = function(200_000, threads)
        rate = done / (time.perf_counter() - started)
        best_rates[threads, name] = max(rate, best_rates.get((threads, name), 0))
    return best_rates[threads, name]
