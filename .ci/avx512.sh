#!/usr/bin/env bash
# The kernels of AVX-512 and AMX on CPUs without them: SIMDe's functions in the place of instructions (Debian's
# libsimde-dev), and models of AVX512_BF16's and AMX's. Random convolutions by every algorithm, and random calls.
# Usage: .ci/avx512.sh SECONDS PYTHON, seconds for the calls; builds in place.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=$1 python=$2
make .venv/test.stamp INFINIOP_CY_EMULATE_AVX512=1 INFINIOP_CY_EMULATE_AMX=1
export OMP_WAIT_POLICY=passive
for INFINIOP_CY_ISA in avx512 amx; do
    export INFINIOP_CY_ISA
    "$python" -m pytest tests/test_conv_memory.py
    "$python" -m pytest tests/test_conv_random.py -k "underflow or subnormal or overflow or zeros"
    for direction in '' --forward; do
        "$python" tests/attack_conv.py --seeds 5000 5030 --jobs 2 $direction
    done
done
export INFINIOP_CY_ISA=avx512
"$python" -m pytest tests/test_special_values.py
"$python" tests/attack_conv.py --seeds 5000 5010 --jobs 2 --pixels
cd tests
"$python" -m fuzz --seconds "$seconds" --seed 1
