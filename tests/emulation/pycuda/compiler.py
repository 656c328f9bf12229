"""pycuda.compiler: sources go through the nvcc that is on PATH."""

import os
import tempfile

from pytools.prefork import call_capture_output

DEFAULT_NVCC_FLAGS = os.environ.get("PYCUDA_DEFAULT_NVCC_FLAGS", "").split()


def get_nvcc_version(nvcc):
    return call_capture_output([nvcc, "--version"])[1].decode("utf-8", "replace")


def compile(
    source, nvcc="nvcc", options=None, keep=False, no_extern_c=False, arch=None, code=None, cache_dir=None,
    include_dirs=None, target="cubin",
):  # fmt: skip
    """The image that nvcc makes of a source; cache_dir and keep make no difference here."""
    from pycuda.driver import CompileError, Context, Error

    if target not in ("cubin", "ptx", "fatbin"):
        raise AssertionError(target)
    if not no_extern_c:
        source = f'extern "C" {{\n{source}\n}}\n'
    options = list(DEFAULT_NVCC_FLAGS if options is None else options)
    if arch is None:
        try:
            arch = "sm_{}{}".format(*Context.get_device().compute_capability())
        except Error:
            pass
    if arch is not None:
        options += ["-arch", arch]
    if code is not None:
        options += ["-code", code]
    options += ["-I" + folder for folder in include_dirs or ()]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "kernel.cu")
        with open(path, "w") as file:
            file.write(str(source))
        command = [nvcc, "--" + target, *options, "kernel.cu"]
        status, stdout, stderr = call_capture_output(command, cwd=folder, error_on_nonzero=False)
        texts = {"stdout": stdout.decode("utf-8", "replace"), "stderr": stderr.decode("utf-8", "replace")}
        if status:
            raise CompileError(f"nvcc compilation of {path} failed", command, **texts)
        with open(os.path.join(folder, "kernel." + target), "rb") as file:
            return file.read()


class SourceModule:
    def __init__(
        self, source, nvcc="nvcc", options=None, keep=False, no_extern_c=False, arch=None, code=None,
        cache_dir=None, include_dirs=None,
    ):  # fmt: skip
        from pycuda.driver import module_from_buffer

        image = compile(source, nvcc, options, keep, no_extern_c, arch, code, cache_dir, include_dirs)
        self.module = module_from_buffer(image)

    def get_function(self, name):
        return self.module.get_function(name)
