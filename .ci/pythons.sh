#!/usr/bin/env bash
# The other Pythons of this machine that infiniop_cy is for, one of each minor version. Usage: .ci/pythons.sh PYTHON
declare -A seen
seen[$("$1" -c 'import sys; print(sys.version_info[1])')]=1
for other in "${HOME:-/}"/.pyenv/versions/*/bin/python3 /usr/local/bin/python3.1? /usr/bin/python3.1?; do
    [[ -x $other ]] || continue
    minor=$("$other" -c 'import ensurepip, sys; print(sys.version_info[1] if sys.version_info >= (3, 11) else "")' 2>/dev/null)
    if [[ -n $minor && -z ${seen[$minor]:-} ]]; then
        seen[$minor]=1
        echo "$other"
    fi
done
