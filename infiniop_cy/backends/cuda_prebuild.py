"""infiniop-cy build-kernels: fills the cache of CUDA kernels, for GPUs that need not be here."""
import os
import sys
from concurrent.futures import ThreadPoolExecutor

from infiniop_cy.backends.cuda_build import EVERYWHERE, parse_target
from infiniop_cy.core import _core
from infiniop_cy.dtypes import STORAGE

DESCRIPTION = """Compile the CUDA kernels now, rather than when a GPU first needs them, into the cache (the folder of
INFINIOP_CY_CACHE_DIR, or one in the user's). It needs nvcc and no GPU; a machine with the filled cache needs no nvcc.
Without --arch: for the GPUs of this machine, or where there is none for all that nvcc and the kernels know."""


def add_arguments(parser):
    parser.add_argument("--arch", metavar="LIST", help="comma-separated compute capabilities, such as 90 or 8.6; ptx90 "
                        f"is PTX, which later GPUs' drivers compile; all is {','.join(EVERYWHERE)}")
    parser.add_argument("--only", metavar="NAME", help="one operator, such as gelu_backward; conv is both directions")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N",
                        help="compilers at a time (default: %(default)s)")
    parser.add_argument("--fresh", action="store_true", help="compile even what the cache has")


def targets_of(text):
    """[(capability, "cubin" or "ptx")] of --arch. Raises ValueError."""
    from infiniop_cy.devices import probe_cuda
    if text is None:
        here = sorted({_core.device_capability(index) for index in range(probe_cuda()[0])})
        if here:
            return [(capability, "cubin") for capability in here]
    words = EVERYWHERE if text in (None, "all") else text.split(",")
    return list(dict.fromkeys(map(parse_target, words)))


def main(arguments):
    """The exit code: 0, 1 where something does not compile or cannot be kept, 2 where the arguments are wrong."""
    names = [*_core.formula_names(), "conv"]
    try:
        targets = targets_of(arguments.arch)
        if arguments.only and arguments.only not in names:
            raise ValueError(f"{arguments.only}: expected one of {', '.join(names)}")
    except ValueError as error:
        print(f"infiniop-cy build-kernels: {error}", file=sys.stderr)
        return 2
    if not _core.cuda_cache():
        print("infiniop-cy build-kernels: no folder to keep them in: set INFINIOP_CY_CACHE_DIR, or HOME to an absolute "
              "path", file=sys.stderr)
        return 1
    jobs = [(name, dtype, target) for name in ([arguments.only] if arguments.only else names) for dtype in STORAGE
            for target in targets]
    with ThreadPoolExecutor(max(1, arguments.jobs)) as pool:
        results = list(pool.map(lambda job: _make(*job, arguments.fresh), jobs))
    problems = [text for text, _ in results if text]
    print(f"{len(results) - len(problems)} of {len(results)} modules in {_core.cuda_cache()}, "
          f"{sum(size for _, size in results)} bytes")
    return 1 if problems else 0


def _make(name, dtype, target, fresh):
    """(problem or "", bytes) of one image, once it is in the cache; a line on the terminal."""
    capability, kind = target
    image, words = _core.cuda_image(name, dtype, capability, fresh, kind)
    problem = ""
    if not image:
        problem = words.strip() or "no image"
    elif not _core.cuda_is_cached(name, dtype, capability, kind == "ptx"):
        problem = "cannot be kept there: the folder must be writable, and this user's or root's"
    what = f"{name} {dtype} {'compute' if kind == 'ptx' else 'sm'}_{capability}"
    print(f"{what}: {problem or f'{len(image)} bytes'}", flush=True)
    return problem, 0 if problem else len(image)
