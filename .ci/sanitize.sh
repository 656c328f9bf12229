#!/usr/bin/env bash
# The random calls of tests/fuzz under the address and undefined-behaviour sanitizers, on every instruction set that
# this CPU runs; AMX by the model of its instructions, whose loads the sanitizers see.
# Usage: .ci/sanitize.sh SECONDS PYTHON [SEED]; builds in place. The seed is fixed where none is given: what is said of a
# change is not to be a matter of luck. New cases are looked for by other seeds, and for longer.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=$1 python=$2 seed=${3:-1}
make .venv/test.stamp INFINIOP_CY_SANITIZE=address,undefined INFINIOP_CY_EMULATE_AMX=1
export OMP_WAIT_POLICY=passive ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
library=$(gcc -print-file-name=libasan.so)
for isa in generic avx2 avx512 amx; do
    if ! INFINIOP_CY_ISA=$isa LD_PRELOAD=$library "$python" -c "import infiniop_cy" 2>/dev/null; then
        echo "not run: $isa"
        continue
    fi
    (cd tests && INFINIOP_CY_ISA=$isa LD_PRELOAD=$library "$python" -m fuzz --seconds "$seconds" --seed "$seed")
done
