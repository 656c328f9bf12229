"""Build of the extension module. Metadata is in pyproject.toml.

On Linux also libinfiniop.so and libinfinirt.so, the C API for any client: the same objects linked again, with all
that belongs to Python left out by the linker, since nothing exported reaches it.

One extension, infiniop_cy.core._core: Cython, plus three object files per instruction set, each compiled with its own
flags and chosen at run time: one of each direction of the elementwise operators, and one of the rest. OpenMP is used
where the compiler has it; INFINIOP_CY_OPENMP=0 leaves it out. INFINIOP_CY_DEBUG=1 checks bounds and asserts, and
INFINIOP_CY_SANITIZE=address,undefined compiles with those sanitizers.
"""
import importlib.util
import os
import pathlib
import platform
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

CORE = "infiniop_cy/core"
KERNELS = "infiniop_cy/kernels"
CAPI = "infiniop_cy/capi"
X86 = platform.machine().lower() in ("x86_64", "amd64")
DEBUG = os.environ.get("INFINIOP_CY_DEBUG") == "1"
SANITIZE = os.environ.get("INFINIOP_CY_SANITIZE")

# Instruction set: the flags of its object file.
ISA_FLAGS = {"generic": []}
if X86:
    ISA_FLAGS["avx2"] = ["-mavx2", "-mfma", "-mf16c"]
    ISA_FLAGS["avx512"] = ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma", "-mf16c",
                           "-mprefer-vector-width=512"]

# Of kernels/elementwise.cpp, by the names of kernels/formula.h.
DIRECTIONS = ("gradient_of", "value_of")

# No contraction: the bits must not depend on what the compiler fuses.
COMPILE_FLAGS = ["-std=c++17", "-g0", "-ffp-contract=off", "-fno-strict-aliasing", "-fvisibility=hidden",
                 "-ffunction-sections", "-fdata-sections",
                 # gcc's own AVX-512 headers set off the first; clang does not know it
                 "-Wno-maybe-uninitialized", "-Wno-unknown-warning-option"]
COMPILE_FLAGS += ["-O1", "-g", "-UNDEBUG"] if DEBUG or SANITIZE else ["-O3"]
LINK_FLAGS = []
if SANITIZE:
    COMPILE_FLAGS += [f"-fsanitize={SANITIZE}", "-fno-omit-frame-pointer"]
    LINK_FLAGS += [f"-fsanitize={SANITIZE}"]

OPENMP_HINT = """
infiniop_cy: this compiler does not build with OpenMP (-fopenmp), so every call will run on one thread.
  Debian, Ubuntu with clang: apt install libomp-dev      macOS: brew install libomp
Set INFINIOP_CY_OPENMP=0 to silence this message.
"""


def load(path):
    """A module of the package, without importing the package, which is not built yet."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class BuildExtension(build_ext):
    def run(self):
        # The C functions of each operator follow from the table.
        operators = load(pathlib.Path("infiniop_cy/operators.py")).OPERATORS
        render = load(pathlib.Path(CAPI, "render.py")).render
        sources = render(operators, pathlib.Path(CAPI), pathlib.Path("build/capi"))
        self.operator_sources = [str(path) for path in sources]
        stubs = load(pathlib.Path("infiniop_cy/stubs.py"))
        self.write_stub(pathlib.Path("infiniop_cy/elementwise.pyi"), stubs.render(operators))
        for name, text in stubs.render_bridges(operators).items():
            self.write_stub(pathlib.Path(f"infiniop_cy/bridges/{name}.pyi"), text)
        super().run()

    def write_stub(self, path, text):
        """In the source, for an editable install, and into the package that is built."""
        for target in {path, pathlib.Path("." if self.inplace else self.build_lib) / path}:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)

    def build_extension(self, extension):
        extension.extra_compile_args = COMPILE_FLAGS + self.openmp_flags()
        extension.extra_link_args = LINK_FLAGS + self.openmp_flags()
        jobs = []
        for isa, flags in ISA_FLAGS.items():
            for direction in DIRECTIONS:
                macros = [f"-DINFINIOP_ISA={isa}", f"-DINFINIOP_DIRECTION={direction}"]
                jobs.append((f"{KERNELS}/elementwise.cpp", [*macros, *flags], f"{self.build_temp}/{isa}/{direction}"))
            jobs.append((f"{KERNELS}/kernels_{isa}.cpp", flags, self.build_temp))
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # compilers are processes of their own
            objects = [pool.submit(self.compile, [source], flags, folder) for source, flags, folder in jobs]
            extension.extra_objects += [path for one in objects for path in one.result()]
        super().build_extension(extension)
        if sys.platform == "linux":
            self.build_c_api(extension)

    def compile(self, sources, flags=(), folder=None):
        return self.compiler.compile(sources, output_dir=folder or self.build_temp,
                                     extra_postargs=[*COMPILE_FLAGS, *flags],
                                     include_dirs=[f"{CAPI}/include", CAPI], depends=self.extensions[0].depends)

    def build_c_api(self, extension):
        package = pathlib.Path(self.get_ext_fullpath(extension.name)).parent.parent
        library = package / "capi/lib"
        library.mkdir(parents=True, exist_ok=True)
        # No package list knows the generated ones.
        for header in [*pathlib.Path(CAPI, "include").rglob("*.h"), pathlib.Path(CAPI, "infiniop.pxd")]:
            target = package / "capi" / header.relative_to(CAPI)
            target.parent.mkdir(parents=True, exist_ok=True)
            self.copy_file(str(header), str(target))
        flags = [*LINK_FLAGS, "-Wl,--gc-sections", f"-Wl,--version-script={CAPI}/exports.map", "-Wl,-rpath,$ORIGIN"]
        runtime = self.compile([f"{CAPI}/infinirt.cpp"])
        self.compiler.link_shared_object(runtime, str(library / "libinfinirt.so"), target_lang="c++",
                                         extra_postargs=[*flags, "-Wl,-soname,libinfinirt.so"])
        core = self.compiler.object_filenames([s for s in extension.sources if not s.endswith("infinirt.cpp")],
                                              output_dir=self.build_temp)
        calls = self.compile([f"{CAPI}/acl.cpp", *self.operator_sources])
        self.compiler.link_shared_object(
            core + extension.extra_objects + calls, str(library / "libinfiniop.so"), target_lang="c++",
            libraries=["infinirt"], library_dirs=[str(library)],
            extra_postargs=[*flags, *self.openmp_flags(), "-Wl,-soname,libinfiniop.so"])

    def copy_extensions_to_source(self):
        """For an editable install."""
        super().copy_extensions_to_source()
        for built in pathlib.Path(self.build_lib, CAPI, "lib").glob("*.so"):
            pathlib.Path(CAPI, "lib").mkdir(exist_ok=True)
            self.copy_file(str(built), f"{CAPI}/lib/{built.name}")

    def openmp_flags(self):
        if os.environ.get("INFINIOP_CY_OPENMP") == "0":
            return []
        if not hasattr(self, "_openmp_flags"):
            self._openmp_flags = ["-fopenmp"] if self.compiles_with("-fopenmp") else []
            if not self._openmp_flags:
                print(OPENMP_HINT, file=sys.stderr)
        return self._openmp_flags

    def compiles_with(self, flag):
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "probe.cpp")
            with open(source, "w") as file:
                file.write("#include <omp.h>\nint probe() { return omp_get_max_threads(); }\n")
            try:
                objects = self.compiler.compile([source], output_dir=folder, extra_postargs=[flag])
                self.compiler.link_shared_object(objects, os.path.join(folder, "probe.so"), extra_postargs=[flag])
            except Exception:  # distutils has one class per compiler and step
                return False
        return True


def files(folder, *endings):
    """The files below a folder whose names end so, in one order on every machine."""
    return sorted(str(path) for path in pathlib.Path(folder).rglob("*") if path.name.endswith(endings))


extension = Extension(
    "infiniop_cy.core._core",
    sources=[f"{CORE}/_core.pyx", f"{KERNELS}/dispatch.cpp", f"{CAPI}/infinirt.cpp"],
    depends=files(CORE, ".pxi", ".h") + files(KERNELS, ".h") + files(CAPI, ".h", ".in", ".py"),
    include_dirs=[numpy.get_include(), CORE, f"{CAPI}/include"],
    define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION"),
                   ("CYTHON_EXTERN_C", 'extern "C"'),  # linkage of the C API's functions
                   *[("INFINIOP_X86_KERNELS", None)] * X86],
    language="c++",
)

setup(
    ext_modules=cythonize([extension], compiler_directives={"boundscheck": DEBUG, "initializedcheck": DEBUG},
                          build_dir="build/cython"),
    cmdclass={"build_ext": BuildExtension},
)
