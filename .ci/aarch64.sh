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

for program in qemu-aarch64-static aarch64-linux-gnu-g++ aarch64-linux-gnu-objdump; do
    command -v $program >/dev/null && continue
    echo "not run: there is no $program" >&2
    echo "Debian, Ubuntu: apt install qemu-user-static g++-aarch64-linux-gnu; other systems need the same programs" >&2
    exit 1
done

# ---- a small aarch64 system

.ci/debian_python.sh "$version" arm64 "$home"
system=$home/system
if [[ ! -e $home/site.stamp ]]; then
    "$python" -m pip install --quiet --disable-pip-version-check --target "$home/site" --only-binary=:all: \
        --python-version "$version" --platform manylinux2014_aarch64 --platform manylinux_2_17_aarch64 \
        --platform manylinux_2_28_aarch64 numpy ml_dtypes mpmath pytest hypothesis
    touch "$home/site.stamp"
fi
run=(qemu-aarch64-static -L "$system" "$system/usr/bin/python$version")

# ---- the package, cross-compiled

compiler="aarch64-linux-gnu-g++"
CC=$compiler CXX=$compiler LDSHARED="$compiler -shared" LDCXXSHARED="$compiler -shared" CFLAGS=-O2 \
    _PYTHON_HOST_PLATFORM=linux-aarch64 SETUPTOOLS_EXT_SUFFIX=.so \
    "$python" setup.py --quiet build --build-base "$home/build" --build-lib "$home/lib" >"$home/build.log" 2>&1 \
    || { tail -30 "$home/build.log"; exit 1; }
kernels=$home/lib/infiniop_cy/capi/lib/libinfiniop_kernels.so
vectors=$(aarch64-linux-gnu-objdump -d "$kernels" | grep -c 'f\(mul\|add\|mla\).*v[0-9]*\.4s' || true)
((vectors > 1000)) || { echo "the kernels have $vectors instructions on NEON's vectors of float32" >&2; exit 1; }

# ---- its tests

export PYTHONPATH=$home/lib:$home/site:$PWD/tests OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive PYTHONDONTWRITEBYTECODE=1
"${run[@]}" -P -c 'from infiniop_cy.core._core import build_info; print(build_info())'
# An emulated CPU is some thirty times as slow: what a test of many sums takes minutes for, a smaller one shows. All in
# one process, whose start takes ten seconds, most of them for pytest to rewrite assertions.
sample=(
    "test_special_values.py and (100 and (float16 or float32) or not test_table)"
    "or test_accuracy.py and (far_tail or ties or round_to_nearest and gelu or error_in_ulp and float32 and gelu)"
    "or test_conformance.py and (test_values or test_layout) and (gelu_backward or sigmoid)"
    "or test_conv.py and (test_exact and float32 and (not parallel or few-outputs) or test_inf_times_inf)"
    "or test_conv_forward.py and test_exact and (float16 or float32)"
    "and not (bfloat16 or parallel or geometries or work or tall)"
    "or test_capi.py and (statuses or test_forward_conv and float32)")
"${run[@]}" -P -m pytest -p no:cacheprovider --assert=plain --durations 5 -k "${sample[*]}" \
    tests/test_{special_values,accuracy,conformance,conv,conv_forward,capi}.py
