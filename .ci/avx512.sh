#!/usr/bin/env bash
# The kernels of AVX-512 on CPUs without it, by SIMDe's functions in the place of its instructions (Debian's
# libsimde-dev): random convolutions by every algorithm, and random calls. Usage: .ci/avx512.sh SECONDS PYTHON, seconds
# for the calls; builds in place.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=$1 python=$2
make .venv/test.stamp INFINIOP_CY_EMULATE_AVX512=1
export INFINIOP_CY_ISA=avx512 OMP_WAIT_POLICY=passive
"$python" -m pytest tests/test_special_values.py
for direction in '' --forward; do
    "$python" tests/attack_conv.py --seeds 5000 5030 --jobs 2 $direction
done
"$python" tests/attack_conv.py --seeds 5000 5010 --jobs 2 --pixels
cd tests
"$python" -m fuzz --seconds "$seconds" --seed 1
