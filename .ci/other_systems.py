"""Compile and link the extension for macOS and Windows on this machine, by zig's compiler, without running it.

    python .ci/other_systems.py [TARGET ...]        (needs ziglang, Cython, numpy and setuptools beside this Python)

What such a build shows is whether any line of the source, of setup.py or of tools/toolchain.py is an obstacle there.
The headers are this Python's, with a pyconfig.h of the other system: nobody may run the result. Nothing is optimised,
and on Windows every symbol that is missing is one of Python's.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile

import numpy

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent

# What a file of this format begins with.
MACHO, PE = b"\xcf\xfa\xed\xfe", b"MZ"
TARGETS = {"aarch64-macos": MACHO, "x86_64-macos": MACHO, "x86_64-windows-gnu": PE}

# Of CPython's own PC/pyconfig.h, what its headers ask for.
WINDOWS_CONFIG = """
#define MS_WINDOWS
#define MS_WIN32
#define MS_WIN64
#define Py_ENABLE_SHARED
#define HAVE_DECLSPEC_DLL
#define HAVE_SSIZE_T 1
#define HAVE_STDDEF_H 1
#define HAVE_SYS_TYPES_H 1
#define HAVE_SYS_STAT_H 1
#define HAVE_WCHAR_H 1
#define SIZEOF_SHORT 2
#define SIZEOF_INT 4
#define SIZEOF_LONG 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_FLOAT 4
#define SIZEOF_DOUBLE 8
#define SIZEOF_VOID_P 8
#define SIZEOF_SIZE_T 8
#define SIZEOF_TIME_T 8
#define SIZEOF_WCHAR_T 2
#define SIZEOF_HKEY 8
#define SIZEOF_PID_T 4
#define ALIGNOF_MAX_ALIGN_T 8
#define WITH_THREAD 1
#define NT_THREADS 1
"""


def headers(folder, windows):
    """Python's and NumPy's headers as they would be there."""
    shutil.copytree(sysconfig.get_path("include"), folder, ignore=shutil.ignore_patterns("numpy"))
    shutil.copytree(pathlib.Path(numpy.get_include(), "numpy"), folder / "numpy")
    config = pathlib.Path(sysconfig.get_config_h_filename()).read_text()
    # These would hide what macOS has beyond POSIX; its own pyconfig.h asks for that.
    config = re.sub(r"#\s*define HAVE_ENDIAN_H.*", "", config)
    config = re.sub(r"#\s*define _(POSIX_C|XOPEN|GNU)_SOURCE\b.*", "", config) + "\n#define _DARWIN_C_SOURCE 1\n"
    (folder / "pyconfig.h").write_text(WINDOWS_CONFIG if windows else config)
    numbers = folder / "numpy/_numpyconfig.h"
    text = numbers.read_text().replace("#define NPY_HAVE_ENDIAN_H 1", "")
    numbers.write_text(re.sub(r"(NPY_SIZEOF_LONG) 8", r"\1 4", text) if windows else text)


def import_library(zig, folder):
    """A library that stands for python3.dll, with every name that this Python exports."""
    names = {line.split()[-1] for program in (sys.executable, *pathlib.Path(sys.base_prefix, "lib").glob("libpython3*"))
             for line in subprocess.run(["nm", "-D", "--defined-only", os.path.realpath(program)], text=True,
                                        capture_output=True, check=False).stdout.splitlines()}
    exports = sorted(name for name in names if re.match(r"_?Py", name))
    data = [name for name in exports if re.match(r"PyExc_|_Py_\w+Struct$|Py\w+_Type$|_Py_EllipsisObject", name)]
    definition = folder / "python.def"
    definition.write_text("LIBRARY python3.dll\nEXPORTS\n" + "".join(
        f"{name}{' DATA' if name in data else ''}\n" for name in exports))
    subprocess.run([*zig, "dlltool", "-m", "i386:x86-64", "-d", definition, "-l", folder / "libpython3.a"], check=True)


def build(target, folder):
    """The extension's file."""
    zig = [sys.executable, "-m", "ziglang"]
    windows = "windows" in target
    headers(folder / "include", windows)
    compiler = " ".join([*zig, "c++", "-target", target, f"-I{folder}/include"])
    # zig would compile a libc++ to link with, in minutes; macOS finds the system's when the module is loaded.
    links = ["-nostdlib++", "-undefined", "dynamic_lookup"]
    if windows:
        import_library(zig, folder)
        links = [f"-L{folder}", "-lpython3"]
    link = " ".join([compiler, "-shared", *links])
    environment = os.environ | {
        "CC": compiler, "CXX": compiler, "LDSHARED": link, "LDCXXSHARED": link, "CFLAGS": "-O0 -w -fno-sanitize=all",
        "SETUPTOOLS_EXT_SUFFIX": ".pyd" if windows else ".so", "INFINIOP_CY_OPENMP": "0"}
    subprocess.run([sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", folder / "lib", "--build-temp",
                    folder / "temp"], cwd=CHECKOUT, env=environment, check=True, stdout=subprocess.DEVNULL)
    built, = [path for path in (folder / "lib").rglob("_core.*") if path.suffix in (".so", ".pyd")]
    return built


def main(targets):
    for target in targets:
        with tempfile.TemporaryDirectory() as folder:
            built = build(target, pathlib.Path(folder))
            content = built.read_bytes()
            assert content.startswith(TARGETS[target]), f"{target}: {built.name} begins with {content[:4]}"
            assert b"PyInit__core" in content, f"{target}: {built.name} is no module of Python"
            print(f"{target}: {built.name}, {len(content) / 1e6:.1f} MB")


if __name__ == "__main__":
    main(sys.argv[1:] or TARGETS)
