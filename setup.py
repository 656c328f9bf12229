"""Build of the extension module. Metadata is in pyproject.toml.

For Linux also libinfiniop.so and libinfinirt.so, the C API for any client: the object of the core linked again, with
all that belongs to Python left out by the linker, since nothing exported reaches it. There the kernels, two thirds of
the code, are a library that both use, libinfiniop_kernels.so.

One extension, infiniop_cy.core._core: Cython, plus three object files per instruction set, each compiled with its own
flags and chosen at run time: one of each direction of the elementwise operators, and one of the rest. Which
instruction sets, and for which system, the compiler says (tools/toolchain.py): CC, CXX, CPPFLAGS, CFLAGS, CXXFLAGS and
LDFLAGS are those of any build, and flags given so go after the ones chosen here.

OpenMP is used where the compiler has it; INFINIOP_CY_OPENMP=0 leaves it out. INFINIOP_CY_DEBUG=1 checks bounds and
asserts, and INFINIOP_CY_SANITIZE=address,undefined compiles with those sanitizers. With INFINIOP_CY_EMULATE_AMX=1 the
code for AMX runs wherever there is AVX-512, by a model of its instructions: to test it, not to time it. Likewise that
for AVX-512 wherever there is AVX2 with INFINIOP_CY_EMULATE_AVX512=1, by the headers of SIMDe (Debian's libsimde-dev).
"""
import importlib.util
import os
import pathlib
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

CORE = "infiniop_cy/core"
KERNELS = "infiniop_cy/kernels"
CAPI = "infiniop_cy/capi"
DEBUG = os.environ.get("INFINIOP_CY_DEBUG") == "1"
SANITIZE = os.environ.get("INFINIOP_CY_SANITIZE")
EMULATE_AMX = os.environ.get("INFINIOP_CY_EMULATE_AMX") == "1"
EMULATE_AVX512 = os.environ.get("INFINIOP_CY_EMULATE_AVX512") == "1"

# Instruction set: the flags of its object files. Of each kind of CPU, the sets that are chosen among at run time.
ISA_FLAGS = {
    "generic": [],
    "avx2": ["-mavx2", "-mfma", "-mf16c"],
    "avx512": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma", "-mf16c",
               "-mprefer-vector-width=512"],
}
ISAS = {"x86_64": ("avx512", "avx2", "generic")}
# Builds for checks take half as long where those for AVX-512 are not optimised and not watched on a CPU without it.
CPU_INFO = pathlib.Path("/proc/cpuinfo")
if (DEBUG or SANITIZE) and not EMULATE_AVX512 and CPU_INFO.exists() and "avx512f" not in CPU_INFO.read_text():
    ISA_FLAGS["avx512"] += ["-O0", "-fno-sanitize=all"]

# Of kernels/elementwise.cpp, by the names of kernels/formula.h.
DIRECTIONS = ("gradient_of", "value_of")

# No contraction: the bits must not depend on what the compiler fuses.
COMPILE_FLAGS = ["-std=c++17", "-g0", "-ffp-contract=off", "-fno-strict-aliasing", "-fvisibility=hidden",
                 "-ffunction-sections", "-fdata-sections",
                 # gcc's own AVX-512 headers set off the first; clang does not know it
                 "-Wno-maybe-uninitialized", "-Wno-unknown-warning-option"]
COMPILE_FLAGS += ["-O1", "-g", "-UNDEBUG"] if DEBUG or SANITIZE else ["-O3"]
# Nothing is thrown through a kernel: tables to unwind it would be 5 % of the library. Copies of loops for what does not
# change in them were 1 %, those for steps of 1 4 %, and no call was shorter for them; clang makes none, warns that the
# first of these flags does nothing, and does not know the second.
KERNEL_FLAGS = [] if DEBUG or SANITIZE else ["-fno-exceptions", "-fno-asynchronous-unwind-tables",
                                             "-fno-unswitch-loops", "-Wno-ignored-optimization-argument"]
GCC_KERNEL_FLAGS = [] if DEBUG or SANITIZE else ["-fno-version-loops-for-strides"]
# Where there are better sets, the generic one is for CPUs of before 2013: it shall be small.
FALLBACK_FLAGS = [] if DEBUG or SANITIZE else ["-Os", "-DINFINIOP_FALLBACK"]
# What plans and calls kernels is no larger than it has to be: more optimisation, and copies of functions and loops for
# special cases, would make a twentieth more of the wheel and no call shorter, and room before loops, so that they begin
# at multiples of 16 bytes, 0.6 %; but sums are added by vectors.
# clang, which makes no such copies, knows the flags, and warns that they do nothing.
CORE_FLAGS = [] if DEBUG or SANITIZE else ["-O2", "-fvect-cost-model", "-fno-ipa-cp", "-fno-unswitch-loops",
                                           "-fno-peel-loops", "-fno-align-loops", "-fno-align-jumps",
                                           "-Wno-ignored-optimization-argument"]
if SANITIZE:
    COMPILE_FLAGS += [f"-fsanitize={SANITIZE}", "-fno-omit-frame-pointer"]
if EMULATE_AMX:
    COMPILE_FLAGS += ["-DINFINIOP_EMULATED_AMX"]
if EMULATE_AVX512:
    COMPILE_FLAGS += ["-DINFINIOP_EMULATED_AVX512"]
    ISA_FLAGS["avx512"] = [*ISA_FLAGS["avx2"], "-O1", "-Wno-psabi", "-include", f"{KERNELS}/avx512_emulated.h"]


def load(path):
    """A module of the checkout, without importing its package, which is not built yet."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


toolchain = load(pathlib.Path("tools/toolchain.py"))
toolchain.use_one_architecture()


def cores():
    """How many compilers to run at a time."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class BuildExtension(build_ext):
    def run(self):
        self.in_checkout = self.inplace or self.editable_mode
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
        command = toolchain.command_of(self.compiler)
        self.target = toolchain.target_of(command)
        linux = self.target.system == "linux"
        self.openmp_flags, openmp_links = toolchain.openmp_flags(self.compiler, self.target)
        self.kernel_flags = [*KERNEL_FLAGS, *toolchain.known_flags(command, GCC_KERNEL_FLAGS)]
        self.link_flags = [*self.system_link_flags(), *openmp_links]
        runtime = [f"{CAPI}/infinirt.cpp"]
        with ThreadPoolExecutor(self.parallel or cores()) as pool:  # compilers are processes of their own
            core = [pool.submit(self.compile_core, extension), pool.submit(self.compile, runtime)]  # what takes longest
            kernels = [pool.submit(self.compile, *job) for job in self.kernel_jobs()]
            calls = [pool.submit(self.compile, [source])
                     for source in (f"{CAPI}/acl.cpp", *self.operator_sources) if linux]
            core, kernels, calls = [[path for one in group for path in one.result()]
                                    for group in (core, kernels, calls)]
        extension.extra_objects = core if linux else core + kernels
        extension.extra_link_args = self.link_flags
        if linux:
            library = pathlib.Path(self.get_ext_fullpath(extension.name)).parent.parent / "capi/lib"
            library.mkdir(parents=True, exist_ok=True)
            self.link_library(library, "infiniop_kernels", kernels, f"{KERNELS}/exports.map")
            extension.extra_link_args = [*self.link_flags, f"-Wl,--version-script={CORE}/exports.map", f"-L{library}",
                                         "-linfiniop_kernels", "-Wl,-rpath,$ORIGIN/../capi/lib"]
        # What is left is to link, where anything has changed.
        extension.depends = [*extension.depends, *extension.sources]
        extension.sources = []
        super().build_extension(extension)
        if linux:
            self.build_c_api(library, core, calls)

    def link_library(self, folder, name, objects, exports, libraries=()):
        """A shared library that finds its neighbours."""
        self.compiler.link_shared_object(
            objects, str(folder / f"lib{name}.so"), target_lang="c++", libraries=list(libraries),
            library_dirs=[str(folder)], extra_postargs=[
                *self.link_flags, f"-Wl,--version-script={exports}", "-Wl,-rpath,$ORIGIN", f"-Wl,-soname,lib{name}.so"])

    def system_link_flags(self):
        """What the linker leaves out of an extension: sections that nothing reaches, and, of one that is not for work
        in the checkout, the names of functions, half of the file."""
        flags = [f"-fsanitize={SANITIZE}"] if SANITIZE else []
        unreached = {"linux": "-Wl,--gc-sections", "darwin": "-Wl,-dead_strip", "windows": "-Wl,--gc-sections"}
        if self.target.system in unreached:
            flags.append(unreached[self.target.system])
        if not (DEBUG or SANITIZE or self.in_checkout):
            flags.append("-Wl,-x" if self.target.system == "darwin" else "-s")
        return flags

    def kernel_jobs(self):
        """(sources, flags, folder, optimisation) of each object file of the kernels, those first that take longer."""
        isas = ISAS.get(self.target.machine, ("generic",))
        for isa in isas:
            flags = [*self.kernel_flags, *ISA_FLAGS[isa]]
            level = FALLBACK_FLAGS if isa == "generic" and len(isas) > 1 else []
            for direction in DIRECTIONS:
                macros = [f"-DINFINIOP_ISA={isa}", f"-DINFINIOP_DIRECTION={direction}"]
                yield [f"{KERNELS}/elementwise.cpp"], [*macros, *flags], f"{self.build_temp}/{isa}/{direction}", level
            yield [f"{KERNELS}/kernels_{isa}.cpp"], flags, self.build_temp, level
        yield [f"{KERNELS}/dispatch.cpp"], [], self.build_temp, []

    def compile_core(self, extension):
        """From Cython to the object file."""
        translated, = cythonize([Extension(extension.name, [s for s in extension.sources if s.endswith(".pyx")],
                                           depends=extension.depends)],
                                compiler_directives={"boundscheck": DEBUG, "initializedcheck": DEBUG},
                                build_dir="build/cython")
        return self.compile(translated.sources, self.openmp_flags, optimisation=CORE_FLAGS)

    def compile(self, sources, flags=(), folder=None, optimisation=()):
        extension, = self.extensions
        return self.compiler.compile(
            sources, output_dir=folder or self.build_temp, macros=extension.define_macros,
            include_dirs=[*extension.include_dirs, CAPI], depends=extension.depends,
            extra_postargs=[*COMPILE_FLAGS, *optimisation, *toolchain.user_flags(), *flags])

    def build_c_api(self, library, core, calls):
        # No package list knows the generated ones.
        for header in [*pathlib.Path(CAPI, "include").rglob("*.h"), pathlib.Path(CAPI, "infiniop.pxd")]:
            target = library.parent / header.relative_to(CAPI)
            target.parent.mkdir(parents=True, exist_ok=True)
            self.copy_file(str(header), str(target))
        module, runtime = core
        exports = f"{CAPI}/exports.map"
        self.link_library(library, "infinirt", [runtime], exports)
        self.link_library(library, "infiniop", [module, *calls], exports, ["infinirt", "infiniop_kernels"])

    def copy_extensions_to_source(self):
        """For an editable install."""
        super().copy_extensions_to_source()
        for built in pathlib.Path(self.build_lib, CAPI, "lib").glob("*.so"):
            pathlib.Path(CAPI, "lib").mkdir(exist_ok=True)
            self.copy_file(str(built), f"{CAPI}/lib/{built.name}")


def files(folder, *endings):
    """The files below a folder whose names end so, in one order on every machine."""
    return sorted(str(path) for path in pathlib.Path(folder).rglob("*") if path.name.endswith(endings))


extension = Extension(
    "infiniop_cy.core._core",
    sources=[f"{CORE}/_core.pyx", f"{CAPI}/infinirt.cpp"],
    depends=files(CORE, ".pxi", ".h") + files(KERNELS, ".h", ".cpp") + files(CAPI, ".h", ".in", ".py"),
    include_dirs=[numpy.get_include(), CORE, f"{CAPI}/include"],
    define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION"),
                   ("CYTHON_EXTERN_C", 'extern "C"')],  # linkage of the C API's functions
    language="c++",
)

setup(ext_modules=[extension], cmdclass={"build_ext": BuildExtension})
