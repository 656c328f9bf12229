#!/usr/bin/env bash
# Builds PyCUDA on a machine with the CUDA toolkit and without its driver, into FOLDER/site.    pycuda.sh PYTHON TOOLKIT FOLDER
set -euo pipefail
python=$1 toolkit=$2 folder=$3
checkout=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$folder/home" "$folder/driver"
# PyCUDA links with every function that the headers name; the emulated driver has them all.
PYTHONPATH=$checkout/tests "$python" -c "import sys, emulation; emulation.build(*sys.argv[1:])" "$folder/driver" "$toolkit/include"
ln -sf libcuda.so.1 "$folder/driver/libcuda.so"
cat > "$folder/home/.aksetup-defaults.py" <<PYTHON
CUDA_ROOT = "$toolkit"
CUDA_ENABLE_CURAND = False
CUDADRV_LIB_DIR = ["$folder/driver"]
PYTHON
# Not optimised, which takes three quarters of the time.
HOME=$folder/home CXXFLAGS=-O0 "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-binary pycuda --wheel-dir "$folder/dist" \
    "pycuda>=2024.1"
"$python" -m pip install --quiet --disable-pip-version-check --target "$folder/site" "$folder"/dist/pycuda-*.whl
