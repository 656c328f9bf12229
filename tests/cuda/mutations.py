"""Does the suite notice? One thing at a time is taken out of a copy of the library: tests on the emulated GPU fail.

    python tests/cuda/mutations.py [TEXT]     those whose description holds TEXT

Barriers: each __syncthreads() of every .cu and .cuh file. Bounds: the guards of loads and stores. Waits: between
streams, and before a staging buffer is used again. What must live on: owners of tensors, sources of uploads. Which
memory: from whom workspaces and results come. Long sums: their runs. Run by .ci/run.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import NamedTuple

CHECKOUT = pathlib.Path(__file__).parents[2]
SCHEDULES = ("forward", "reverse", "random")
WORKERS = 2  # mutations at a time, each in a copy of its own

SPACES, ARRAYS = "infiniop_cy/backends/cuda_spaces.py", "infiniop_cy/backends/cuda_arrays.py"

ELEMENTWISE = ("tests/test_conformance.py", "-k",
               "test_layout and (4-d or matrix) and float32 and relu or test_broadcast and relu")
KINDS = ("(test_exact or test_inf_and_nan) and (float32 or bfloat16) and (not parallel or parallel-float32) or "
         "test_accuracy and many-channels or test_batch_cut and tiny")
CONV = ("tests/test_conv.py", "-k", KINDS)
INPUT = ("tests/test_conv.py", "tests/cuda/test_conv_tiles.py", "-k", f"{KINDS} or no_padding and parts")
FEW = ("tests/cuda/test_conv_tiles.py", "-k", "few_channels_of or no_padding and few")
CHANNELS = ("tests/cuda/test_drawn_convolutions.py", "-k", "float16")
PARTS = ("tests/cuda/test_conv_tiles.py", "-k", "sums_in_parts or no_padding and parts or no_tap_meets")
TF32 = ("tests/cuda/test_conv_tiles.py", "-k", "finite_factors")
SIGNS = ("tests/cuda/test_conv_tiles.py", "-k", "underflows")
FORWARD = ("tests/test_conv_forward.py", "-k",
           "(test_exact or test_inf_and_nan) and float32 and (2d- or wide-3d) and not random or "
           "test_bits_do_not_depend_on_the_layout and float32")
STREAMS = ("tests/cuda/test_streams.py",)
LONG = ("tests/cuda/test_conv_tiles.py", "-k", "long_sums")
LAID = ("tests/test_conv.py", "-k", "test_layout")
IMAGES = ("tests/cuda/test_conv_tiles.py", "-k", "neighbours")
TERMS = ("tests/cuda/test_conv_tiles.py", "-k", "few_channels or among_terms")
CONTEXTS = ("tests/cuda/test_contexts.py",)
TORCH = ("tests/cuda/test_torch.py",)
DLPACK = ("tests/cuda/test_arrays.py", "-k", "dlpack")
HOST = ("tests/cuda/test_host_arrays.py", "-k", "staging or threads")
LAYOUTS = ("tests/cuda/test_host_arrays.py", "-k", "test_every_layout and long and reversed and float64 or test_conv")


class Mutation(NamedTuple):
    file: str
    position: int  # of the text that goes
    old: str
    new: str
    tests: tuple

    def __str__(self):
        line = (CHECKOUT / self.file).read_text()[:self.position].count("\n") + 1
        return f"{self.file}:{line}: {self.old!r} -> {self.new!r}"


# (file, text, what comes for it, tests); each place where the text stands is one mutation
REPLACEMENTS = [
    ("cuda/elementwise.cu", "first + VECTOR <= a.size", "true", ELEMENTWISE),
    ("cuda/elementwise.cu", "if (n < Index(a.size)) ", "", ELEMENTWISE),
    ("cuda/elementwise.cu", "if (column < columns && lane < rows)", "", ELEMENTWISE),
    ("cuda/elementwise.cu", "if (row >= rows || lane >= columns) continue;", "", ELEMENTWISE),
    ("cuda/conv_grad_input.cuh", "if ((s + 1) % (TENSOR_CORE_RUN / Tile::depth) == 0) sums.settle();", "", LONG),
    ("cuda/conv_grad_weight.cuh", "if (s + 1 == steps) ", "if (s + 1 == steps && left <= CUDA_CONV_CHUNK) ", LONG),
    ("cuda/conv_grad_input.cuh", " * int(c.axis[d].step)", "", FORWARD),
    ("cuda/conv_grad_input.cuh", "co * v.channel - offset(v, term.back)", "co * v.channel", TERMS),
    ("cuda/conv_grad_input.cuh", "bool there = place < left;", "bool there = true;", TERMS),
    ("cuda/conv_grad_input.cuh", "co = block.co;", "co = 0;", PARTS),
    ("cuda/conv_grad_input.cuh", "if (!block.steps) return;", "", PARTS),
    ("cuda/conv_grad_input.cuh", "find_nonfinite(nonfinite, a, block.group, block.row, rows);", "", PARTS),
    ("cuda/conv_grad_input.cuh", "column >= a.columns || at.n >= c.batch", "false", PARTS),
    ("cuda/conv_few_channels.cuh", "if (at.n >= c.batch) break;", "", FEW),
    ("cuda/conv_few_channels.cuh", "if (co == 0) pixels", "pixels", FEW),
    ("cuda/conv_few_channels.cuh", "nonfinite = 1;", "", FEW),
    ("cuda/conv_grad_weight.cuh", "total[at[i]] + S(0)", "total[at[i]]", SIGNS),
    ("cuda/conv_grad_weight.cuh", "to_compute(*out[i]) + S(0)", "to_compute(*out[i])", SIGNS),
    ("cuda/conv_tensor_cores.cuh", "__uint_as_float(bits & ~0x1000u)", "v", TF32),
    (ARRAYS, "for kind in type(value).__mro__:", "for kind in (type(value),):", TORCH),
    ("cuda/conv_grad_weight.cuh", "a.by_channels ? tap * c.cin + ci", "false ? 0", CHANNELS),
    ("cuda/conv_grad_weight.cuh", "p.start[0] != CONV_ABSENT && row < rows", "row < rows", CHANNELS),
    ("cuda/conv_grad_weight.cuh", "p.start[0] != CONV_ABSENT && row < rows", "p.start[0] != CONV_ABSENT", CHANNELS),
    ("cuda/conv_images.cuh", "if (a.in_line)", "if (true)", LAID),
    ("cuda/conv_grad_weight.cuh", "if (a.together)", "if (true)", LAID),
    ("cuda/conv_direct.cuh", "pixel * I(a.step)", "pixel", FORWARD),
    ("cuda/conv_direct.cuh", "if (bias.data) sum += ", "if (false) sum += ", FORWARD),
    ("cuda/conv_direct.cuh", "channel * bias.n", "channel", FORWARD),
    ("cuda/conv_direct.cuh", "group * c.weight_group", "group * c.cout * wv.n", FORWARD),
    ("cuda/conv_grad_input.cuh", "group * c.weight_group", "group * c.cout * v.n", FORWARD),
    (SPACES, "self.call.follow(other, op)", "pass", STREAMS),
    (SPACES, "self.call.lead(other, self._op)", "pass", STREAMS),
    (SPACES, "self.call.hold(d.owner)", "pass", DLPACK),
    (SPACES, "self._uploaded.append(array)", "pass", LAYOUTS),
    (SPACES, "if not cuda_arrays.is_current_stream(self._like, self.stream):", "if True:", TORCH),
    (ARRAYS, "stream, *others = named or [LEGACY_STREAM]", "stream, others = 0, []", TORCH),
    (ARRAYS, "allocator(index) if allocate is driver.mem_alloc else allocate", "allocate", CONTEXTS),
    ("infiniop_cy/backends/cuda_context.py", "event.synchronize()  # the copy that last used", "pass  #", HOST),
    ("infiniop_cy/backends/cuda_context.py", "buffer, event, part = copied\n        event.synchronize()",
     "buffer, event, part = copied", HOST),
]


def mutations():
    for path in sorted((CHECKOUT / "cuda").glob("*.cu*")):
        file = path.relative_to(CHECKOUT).as_posix()
        tests = {"elementwise.cu": ELEMENTWISE, "conv_images.cuh": IMAGES, "conv_grad_input.cuh": INPUT,
                 "conv_few_channels.cuh": FEW}.get(path.name, CONV)
        for found in re.finditer(r"__syncthreads\(\);", path.read_text()):
            yield Mutation(file, found.start(), found[0], ";", tests)
    for file, old, new, tests in REPLACEMENTS:
        text = (CHECKOUT / file).read_text()
        places = [found.start() for found in re.finditer(re.escape(old), text)]
        assert places, f"{file} has no {old!r} any more"
        for position in places:
            yield Mutation(file, position, old, new, tests)


def noticed(mutation, copy):
    """The schedule under which a test failed, None where all passed under all of them."""
    target = copy / mutation.file
    original = target.read_text()
    target.write_text(original[:mutation.position] + mutation.new + original[mutation.position + len(mutation.old):])
    try:
        for schedule in SCHEDULES:
            ran = subprocess.run(
                [sys.executable, "-m", "pytest", "-x", "-q", "--device", "emulated", "-p", "no:cacheprovider",
                 *mutation.tests],
                cwd=copy, capture_output=True, text=True, check=False,
                env={**os.environ, "PYTHONPATH": str(copy), "EMULATION_SCHEDULE": schedule,
                     "OMP_WAIT_POLICY": "passive", "EMULATION_CXXFLAGS": "-O0"})  # compiling takes longest
            assert ran.returncode <= 1 or ran.returncode < 0, ran.stdout + ran.stderr  # failed or crashed, not unusable
            if ran.returncode:
                return schedule
        return None
    finally:
        target.write_text(original)


def copy_of_library(folder):
    """Where one mutation at a time is made, and tested."""
    folder.mkdir()
    for name in ("infiniop_cy", "cuda", "tests", "pyproject.toml"):
        source = CHECKOUT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    if (CHECKOUT / "build/emulation").is_dir():
        shutil.copytree(CHECKOUT / "build/emulation", folder / "build/emulation")
    return folder


def main(wanted=""):
    chosen = [mutation for mutation in mutations() if wanted in str(mutation)]
    unnoticed = []
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(WORKERS) as pool:
        copies = SimpleQueue()  # those that no worker is using
        for worker in range(WORKERS):
            copies.put(copy_of_library(pathlib.Path(scratch, f"copy{worker}")))

        def schedule_of(mutation):
            copy = copies.get()
            try:
                return noticed(mutation, copy)
            finally:
                copies.put(copy)
        for mutation, schedule in zip(chosen, pool.map(schedule_of, chosen)):
            print(f"{mutation}: {f'noticed ({schedule})' if schedule else 'NOT NOTICED'}", flush=True)
            if not schedule:
                unnoticed.append(mutation)
    print(f"{len(chosen) - len(unnoticed)} of {len(chosen)} deletions noticed")
    return bool(unnoticed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
