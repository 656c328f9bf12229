"""Do the packages in a folder hold what they should, and nothing else?    python check_dist.py FOLDER

With --size WHEEL: its size and platforms, and what it is made of.
"""
import pathlib
import re
import subprocess
import sys
import tarfile
import zipfile

CHECKOUT = pathlib.Path(__file__).parent.parent
IN_WHEEL = {".py", ".pyi", ".typed", ".h", ".cuh", ".cu", ".so", ".pyd", ".pxd"}
NOT_IN_SOURCE = {".so", ".pyd", ".o", ".pyc"}


def only(folder, pattern):
    path, = folder.glob(pattern)
    return path


def missing(names, wanted):
    return sorted(set(wanted) - set(names))


def included(files):
    """The headers of infiniop_cy/kernels that CUDA sources include, and those that these do."""
    found, files = set(), list(files)
    while files:
        for name in re.findall(r'#include "([^"]+)"', files.pop().read_text()):
            header = CHECKOUT / "infiniop_cy" / "kernels" / name
            if header.exists() and header not in found:
                found.add(header)
                files.append(header)
    return found


def check_wheel(path):
    names = [name for name in zipfile.ZipFile(path).namelist() if not name.endswith("/")]
    for name in names:
        top = name.split("/")[0]
        assert top in ("infiniop_cy", "infiniop_cy_pytest.py") or top.endswith(".dist-info"), \
            f"{path.name} installs {name}"
        assert top != "infiniop_cy" or pathlib.Path(name).suffix in IN_WHEEL, f"{path.name} holds {name}"
    compiled = [name for name in names if name.startswith("infiniop_cy/core/_core.") and name.endswith((".so", ".pyd"))]
    assert len(compiled) == 1, f"{path.name} holds {compiled or 'no compiled module'}"
    c_api = {"lib/libinfiniop.so", "lib/libinfinirt.so", "lib/libinfiniop_kernels.so", "include/infiniop.h",
             "include/infiniop/ops/relu_backward.h", "infiniop.pxd"} if sys.platform == "linux" else set()
    absent = missing(names, [f"infiniop_cy/capi/{name}" for name in c_api])
    assert not absent, f"{path.name} lacks {absent}"
    package = CHECKOUT / "infiniop_cy"
    wanted = {file for pattern in ("**/*.py", "**/*.pyi", "py.typed") for file in package.glob(pattern)}
    wanted |= included((CHECKOUT / "cuda").iterdir())
    absent = missing(names, [file.relative_to(CHECKOUT).as_posix() for file in wanted])
    assert not absent, f"{path.name} lacks {absent}; see [tool.setuptools] in pyproject.toml"
    device_sources = missing([name.split("/")[-1] for name in names], [f.name for f in CHECKOUT.glob("cuda/*.cu")])
    assert not device_sources, f"{path.name} lacks {device_sources} of cuda/"


def check_source_package(path):
    names = [name.split("/", 1)[1] for name in tarfile.open(path).getnames() if "/" in name]
    for name in names:
        assert pathlib.Path(name).suffix not in NOT_IN_SOURCE, f"{path.name} holds {name}"
        assert not name.startswith("build/"), f"{path.name} holds {name}"
    listed = subprocess.run(["git", "ls-files"], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if listed.returncode:
        print("not a git checkout: the source package is not compared with it")
        return
    absent = missing(names, [name for name in listed.stdout.splitlines() if name != ".gitignore"])
    assert not absent, f"{path.name} lacks {absent}; see MANIFEST.in"


# Of a wheel that is downloaded.
MOST_BYTES = 2 << 20


def check_size(path):
    parts = sorted(((entry.compress_size, entry.filename) for entry in zipfile.ZipFile(path).infolist()), reverse=True)
    print(f"{path.name}: {path.stat().st_size:,} bytes", *(f"{size:>12,} {name}" for size, name in parts[:5]), sep="\n")
    assert path.stat().st_size <= MOST_BYTES, f"{path.name} is larger than {MOST_BYTES:,} bytes"


def main(folder):
    check_wheel(only(folder, "*.whl"))
    check_source_package(only(folder, "*.tar.gz"))
    print(*sorted(file.name for file in folder.iterdir()), sep="\n")


if __name__ == "__main__":
    if sys.argv[1] == "--size":
        check_size(pathlib.Path(sys.argv[2]))
    else:
        main(pathlib.Path(sys.argv[1]))
