#!/usr/bin/env bash
# All that a machine with an NVIDIA GPU has to show, in one call of under ten minutes: builds the library, runs the test suite
# on the GPU, compute-sanitizer on small shapes, and the benchmark beside torch.
#
#   benchmarks/gpu.sh [OUT]      results go to OUT, by default benchmarks/results
#   WHEELS=folder                wheels of PyCUDA and what it needs, for a machine without network
#   BUILT=1                      the library is built in place already
#   BUDGET=560                   seconds that all of it may take; the benchmark gets what is left
#   PYTHON=python3               one that has torch, numpy, Cython, setuptools, pytest, hypothesis, mpmath and ml_dtypes
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-benchmarks/results}
budget=${BUDGET:-560}
python=${PYTHON:-python3}
mkdir -p "$out"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

step() { printf '\n=== %s   [%d s]\n' "$*" "$SECONDS"; }

step "install"
if [[ -n ${WHEELS:-} ]]; then
    "$python" -m pip install -q --no-index --no-deps --no-compile --target "$scratch/site" "$WHEELS"/*.whl
    export PYTHONPATH=$scratch/site:${PYTHONPATH:-}
fi
if [[ -z ${BUILT:-} ]]; then
    "$python" setup.py -q egg_info build_ext --inplace >"$scratch/build.log" 2>&1 || { tail -40 "$scratch/build.log"; exit 1; }
fi
export PYTHONPATH=$PWD:${PYTHONPATH:-}
"$python" -c "import infiniop_cy as iop, json; from infiniop_cy.config import config; print(json.dumps(config(), indent=1))" |
    tee "$out/gpu-config.json"

# What fails from here on is shown, counted and no reason to stop: the machine is there for minutes.
failed=()

step "kernels"  # all of them now, side by side; the tests would do it one after the other
"$python" -m infiniop_cy build-kernels --jobs 8 >"$out/gpu-kernels.txt" 2>&1 || failed+=(kernels)
tail -3 "$out/gpu-kernels.txt"

step "tests on the GPU"
parallel=$("$python" -c "import importlib.util as u; print('-n 8' if u.find_spec('xdist') else '')")
# shellcheck disable=SC2086
timeout 240 "$python" -m pytest --device=cuda $parallel -p no:cacheprovider --tb=short >"$out/gpu-tests.txt" 2>&1 || failed+=(tests)
tail -40 "$out/gpu-tests.txt"

step "compute-sanitizer"
sanitized="(test_layout and 4-d and float32) or (test_exact and (2d-groups or tiny-images-stride))"
sanitized+=" or sums_in_parts or few_channels_of or (neighbours and 70)"
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
        timeout 60 compute-sanitizer --tool "$tool" --error-exitcode 9 "$python" -m pytest --device=cuda -p no:cacheprovider \
            tests/test_conformance.py tests/test_conv.py tests/cuda/test_conv_tiles.py -x \
            -k "$sanitized" 2>&1 | tail -8 |
            tee "$out/gpu-$tool.txt" || failed+=("$tool")
    done
else
    echo "not run: compute-sanitizer is not on PATH"
fi

step "benchmark"
left=$((budget - SECONDS))
"$python" benchmarks/gpu.py --seconds $((left - 20)) --json "$out/gpu.json" 2>&1 | tee "$out/gpu-benchmark.txt" || failed+=(benchmark)

step "done; ${#failed[@]} parts with failures: ${failed[*]-none}"
((${#failed[@]} == 0))
