#!/usr/bin/env bash
# The random calls of tests/fuzz under valgrind, by generic kernels. No error may have a frame of this library, or of
# NumPy, which looks at every result; Python's own, at its start, are left to it. Two planted errors have to be noticed
# first. Usage: .ci/valgrind.sh SECONDS PYTHON
set -euo pipefail
seconds=$1 python=$2
cd "$(dirname "$0")/../tests"
export INFINIOP_CY_ISA=generic PYTHONMALLOC=malloc OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive OPENBLAS_NUM_THREADS=1
log=$(mktemp)
trap 'rm -f "$log"' EXIT

watched() {
    valgrind --num-callers=30 --log-file="$log" "$python" "$@"
}

# The errors in the log, as paragraphs, with such a frame.
ours() {
    sed 's/^==[0-9]*== \{0,1\}//' "$log" | awk -v RS= '/ at 0x/ && /'"$1"'/ { print $0 "\n" }'
}

watched -m fuzz.planted_reads
if [[ -z $(ours libinfiniop) || -z $(ours _multiarray_umath) ]]; then
    cat "$log"
    echo "planted errors were not noticed"
    exit 1
fi
watched -m fuzz --here --seconds "$seconds" --kinds elementwise convolution descriptors errors c_api
if [[ -n $(ours 'libinfini|_core[.]cpython|_multiarray_umath') ]]; then
    ours 'libinfini|_core[.]cpython|_multiarray_umath'
    exit 1
fi
