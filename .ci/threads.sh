#!/usr/bin/env bash
# Threads that share descriptors, handles and the C API's objects, and teams of threads, under gcc's thread sanitizer,
# which first has to notice a planted race. Usage: .ci/threads.sh SECONDS PYTHON, seconds for each of two instruction
# sets; builds in place.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=$1 python=$2
make .venv/test.stamp INFINIOP_CY_SANITIZE=thread
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=3 OPENBLAS_NUM_THREADS=1
# Python and NumPy are not compiled with it: what they call is not looked at.
export TSAN_OPTIONS=ignore_noninstrumented_modules=1:halt_on_error=1:exitcode=66

# Its shadow memory needs addresses that are not random.
watched() {
    setarch -R env LD_PRELOAD="$(gcc -print-file-name=libtsan.so)" "$python" "$@"
}

cd tests
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if watched -m fuzz.planted_race >"$log" 2>&1 || ! grep -q 'WARNING: ThreadSanitizer: data race' "$log"; then
    cat "$log"
    echo "the planted race was not noticed"
    exit 1
fi
INFINIOP_CY_ISA=generic watched -m fuzz --here --kinds threads convolution descriptors --seconds "$seconds"
watched -m fuzz --here --kinds threads convolution descriptors --seconds "$seconds"
