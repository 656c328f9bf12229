"""CUDA kernels: compiled by PyCUDA when first needed, for the GPU at hand, and kept on disk.

What a module is made of, and what it is called in the cache, is in core/cuda/build.h, which the C API shares.
INFINIOP_CY_CACHE_DIR chooses the folder.
"""
import os
import pathlib
import shutil
import sys
import tempfile

from infiniop_cy.status import DeviceArchitectureNotSupported, InternalError


def find_nvcc():
    """Path of nvcc: on PATH, in the toolkit's folder, or of the nvidia-cuda-nvcc wheel; "nvcc" where there is none."""
    found = shutil.which("nvcc")
    if found:
        return found
    folders = [pathlib.Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    folders.append(pathlib.Path("/usr/local/cuda"))
    for site in sys.path:
        folders += sorted(pathlib.Path(site or ".").glob("nvidia/cu*"), reverse=True)
    for folder in folders:
        if (folder / "bin/nvcc").is_file():
            return str(folder / "bin/nvcc")
    return "nvcc"


def cubin(op, name, dtype, capability, fresh=False):
    """Machine code of a formula's kernels, or of conv_backward's, for GPUs of that compute capability (90 for 9.0).

    fresh: compile even where the cache has it. Raises DeviceArchitectureNotSupported, and InternalError with the
    compiler's own words where it is missing or fails.
    """
    from infiniop_cy.core import _core
    if capability < _core.LOWEST_CAPABILITY:
        raise DeviceArchitectureNotSupported(f"{op}: the GPU has compute capability {capability / 10}, expected at "
                                             f"least {_core.LOWEST_CAPABILITY / 10}")
    path, source, options, folders = _core.cuda_build_request(name, dtype, capability)
    path = pathlib.Path(path)
    if not fresh:
        try:
            return path.read_bytes()
        except OSError:
            pass
    image = _compile(f"{op}: the kernels of {name} for {dtype}", source, options, folders, capability, path)
    _keep(path, image)
    return image


def _compile(what, source, options, folders, capability, path):
    from pycuda import compiler, driver
    nvcc = find_nvcc()
    try:
        return compiler.compile(pathlib.Path(source).read_text(), nvcc=nvcc, options=options, arch=f"sm_{capability}",
                                no_extern_c=True, cache_dir=False, include_dirs=folders)
    except driver.CompileError as error:
        text = " ".join(part for part in (str(error), getattr(error, "stderr", "")) if part)
        raise InternalError(f"{what} do not compile with {nvcc}: {text}") from error
    except OSError as error:
        raise InternalError(f"{what} need a CUDA compiler, which does not start ({error}): install the CUDA toolkit or "
                            f"the wheel nvidia-cuda-nvcc, or fill {path.parent}") from error


def _keep(path, image):
    """Write to the cache in one step, so that no other process reads half of it. A cache that cannot be written is
    no error: the next process compiles again."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
    except OSError:
        return
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(image)
        os.replace(temporary, path)
    except OSError:
        pathlib.Path(temporary).unlink(missing_ok=True)
