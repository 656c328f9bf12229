#!/usr/bin/env bash
# Compile for aarch64 and run tests of what the compiler and the CPU decide, by qemu: special values, accuracy, a sample
# of the layouts, tiny convolutions. Usage: .ci/aarch64.sh PYTHON; a folder .venv/aarch64 keeps what was downloaded.
#
# Python, its libraries and libc for aarch64 are unpacked from Debian's packages, without installing them; NumPy and
# ml_dtypes are the wheels that anybody gets there.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
home=$PWD/.venv/aarch64
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')

missing() {
    echo "not run: $1" >&2
    echo "Debian, Ubuntu: apt install qemu-user-static g++-aarch64-linux-gnu dpkg; other systems need the same programs" >&2
    exit "${2:-1}"
}
for program in qemu-aarch64-static aarch64-linux-gnu-g++ aarch64-linux-gnu-objdump apt-get dpkg-deb; do
    command -v $program >/dev/null || missing "there is no $program"
done

# ---- a small aarch64 system

system=$home/system
if [[ ! -e $home/system.stamp ]]; then
    rm -rf "$home"
    mkdir -p "$home"/apt/{state/lists/partial,cache/archives/partial} "$home/packages" "$system"
    touch "$home/apt/status"
    apt=(apt-get -qq -o "Dir::State=$home/apt/state" -o "Dir::Cache=$home/apt/cache" -o APT::Architecture=arm64
         -o "Dir::State::status=$home/apt/status" -o APT::Architectures=arm64 -o APT::Sandbox::User="$(id -un)")
    "${apt[@]}" update || missing "apt-get cannot read the lists of arm64"
    # $version-minimal is the interpreter; the rest is what the standard library's modules load.
    (cd "$home/packages" && "${apt[@]}" download libc6 libgcc-s1 libstdc++6 libgomp1 "python$version-minimal" \
        "libpython$version-minimal" "libpython$version-stdlib" zlib1g libexpat1 libffi8 libbz2-1.0 liblzma5 libuuid1) \
        || missing "apt has no python$version for arm64; make clean, then PYTHON= one that it has"
    for package in "$home"/packages/*.deb; do dpkg-deb -x "$package" "$system"; done
    "$python" -m pip install --quiet --disable-pip-version-check --target "$home/site" --only-binary=:all: \
        --python-version "$version" --platform manylinux2014_aarch64 --platform manylinux_2_17_aarch64 \
        --platform manylinux_2_28_aarch64 numpy ml_dtypes mpmath pytest hypothesis
    touch "$home/system.stamp"
fi
run=(qemu-aarch64-static -L "$system" "$system/usr/bin/python$version")

# ---- the package, cross-compiled

compiler="aarch64-linux-gnu-g++"
CC=$compiler CXX=$compiler LDSHARED="$compiler -shared" LDCXXSHARED="$compiler -shared" CFLAGS=-O2 \
    _PYTHON_HOST_PLATFORM=linux-aarch64 SETUPTOOLS_EXT_SUFFIX=.so \
    "$python" setup.py --quiet build --build-base "$home/build" --build-lib "$home/lib" >"$home/build.log" 2>&1 \
    || { tail -30 "$home/build.log"; exit 1; }
vectors=$(aarch64-linux-gnu-objdump -d "$home"/lib/infiniop_cy/core/_core.so | grep -c 'f\(mul\|add\|mla\).*v[0-9]*\.4s')
((vectors > 1000)) || { echo "the module has $vectors instructions on NEON's vectors of float32"; exit 1; }

# ---- its tests

export PYTHONPATH=$home/lib:$home/site:$PWD/tests OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive PYTHONDONTWRITEBYTECODE=1
"${run[@]}" -P -c 'from infiniop_cy.core._core import build_info; print(build_info())'
tests() {
    "${run[@]}" -P -m pytest -p no:cacheprovider --durations 3 "$@"
}
tests tests/test_special_values.py -k "100 and (float16 or float32) or not test_table"
tests tests/test_accuracy.py -k "far_tail or ties or round_to_nearest and gelu or error_in_ulp and float32 and gelu"
tests tests/test_conformance.py -k "(test_values or test_layout) and (gelu_backward or sigmoid)"
tests tests/test_conv.py -k "test_exact and float32 or test_inf_times_inf"
