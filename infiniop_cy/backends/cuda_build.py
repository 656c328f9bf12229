"""CUDA kernels, built when first needed for the GPU at hand, or beforehand by `infiniop-cy build-kernels`.

How nvcc is found and run, and how files are kept, is in core/cuda/compile.h and cache.h, which the C API shares.
"""
from infiniop_cy.core import _core
from infiniop_cy.status import DeviceArchitectureNotSupported, InternalError

# Machine code for every generation, which runs on its later GPUs too, and PTX for those that are yet to come.
EVERYWHERE = ("75", "80", "90", "100", "120", "ptx90")


def cubin(op, name, dtype, capability, fresh=False):
    """An image of a formula's kernels, or of convolutions', for GPUs of that compute capability (90 for 9.0).

    fresh: compile even where the cache has it. Raises DeviceArchitectureNotSupported, and InternalError with the
    compiler's own words where it is missing or fails.
    """
    if capability < _core.LOWEST_CAPABILITY:
        raise DeviceArchitectureNotSupported(f"{op}: the GPU has compute capability {capability / 10}, expected at "
                                             f"least {_core.LOWEST_CAPABILITY / 10}")
    image, words = _core.cuda_image(name, dtype, capability, fresh)
    if not image:
        raise InternalError(f"{op}: the kernels of {name} for {dtype} need a CUDA compiler, and there is none, or it "
                            f"fails: {words.strip()} (they would be kept in {_core.cuda_cache() or 'no folder'}, "
                            "which `infiniop-cy build-kernels` fills on another machine, too)")
    return image


def parse_target(text):
    """(capability, "cubin" or "ptx") of "90", "9.0", "sm_90", "ptx90" or "compute_90". Raises ValueError."""
    word = text.strip().lower()
    kind = "ptx" if word.startswith(("ptx", "compute_")) else "cubin"
    digits = word.removeprefix("ptx").removeprefix("compute_").removeprefix("sm_")
    major, point, minor = digits.partition(".")
    capability = 10 * int(major) + int(minor) if point else int(digits)
    if capability < _core.LOWEST_CAPABILITY:
        raise ValueError(f"{text}: expected a compute capability of at least {_core.LOWEST_CAPABILITY / 10}")
    return capability, kind
