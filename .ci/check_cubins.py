"""Does nvcc compile every kernel without spilling a register?    python check_cubins.py NVCC

Every formula for one architecture in float64, which takes more registers than float32 and what computes in it; a cheap
one in each dtype; the two that take most registers, and the convolutions, for all architectures. For others than the
one, convolutions have two dtypes: what computes in float16 takes the registers of bfloat16, but where tensor cores have
float16 alone.
"""
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

from infiniop_cy.backends.cuda_build import EVERYWHERE, parse_target
from infiniop_cy.core import _core
from infiniop_cy.dtypes import STORAGE

ONE = "90"
FLOAT16_ALONE = "75"
# A division that is rounded right is a function, around whose call ptxas may keep two to four registers on the stack,
# though others are free.
CALL = r"^(8|16) bytes stack frame, (4|8|16) bytes spill stores, (4|8|16|32) bytes spill loads$"
CHEAP = "relu_backward"
LARGE = ("gelu_backward", "mish_backward")


def is_chosen(name, dtype, target):
    if name == "conv":
        return target in (ONE, FLOAT16_ALONE) or dtype in ("bfloat16", "float32")
    if dtype != "float64":
        return target == ONE and name == CHEAP
    return target == ONE or name in LARGE


def compile_module(nvcc, name, dtype, capability, kind):
    """(what, problems, most registers of a kernel)"""
    _, source, options, folders = _core.cuda_build_request(name, dtype, capability)
    arch = f"{'compute' if kind == 'ptx' else 'sm'}_{capability}"
    with tempfile.NamedTemporaryFile(suffix=f".{kind}") as file:
        ran = subprocess.run(
            [nvcc, f"--{kind}", f"-arch={arch}", *options, *(f"-I{folder}" for folder in folders), "-Xptxas", "-v",
             source, "-o", file.name], capture_output=True, text=True, check=False)
    text = ran.stdout + ran.stderr
    what = f"{name} {dtype} {arch}"
    if ran.returncode:
        return what, [text], 0
    problems = [line.strip() for line in text.splitlines() if re.search(r"warning|[1-9]\d* bytes (spill|stack)", line)]
    if name != "conv":
        problems = [line for line in problems if not re.search(CALL, line)]
    return what, problems, max(map(int, re.findall(r"Used (\d+) registers", text)), default=0)


def main(nvcc):
    jobs = [(nvcc, name, dtype, *parse_target(target)) for name in [*_core.formula_names(), "conv"]
            for dtype in STORAGE for target in EVERYWHERE if is_chosen(name, dtype, target)]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda job: compile_module(*job), jobs))
    bad = [(what, problem) for what, problems, _ in results for problem in problems]
    for what, problem in bad:
        print(f"{what}: {problem}")
    print(f"{len(results)} modules, at most {max(most for _, _, most in results)} registers, {len(bad)} problems")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
