#!/usr/bin/env bash
# Unpack a Python from Debian's packages, with the libraries that it loads, libc among them; nothing is installed.
#
#   .ci/debian_python.sh VERSION ARCHITECTURE FOLDER [SUITE PACKAGE ...]
#
# The interpreter is FOLDER/system/usr/bin/pythonVERSION. Without a SUITE the packages are those of this machine's lists.
set -euo pipefail
version=$1 architecture=$2 home=$3 suite=${4:-}
more=("${@:5}")
system=$home/system
if [[ -e $home/system.stamp ]]; then exit 0; fi

missing() {
    echo "not run: $1" >&2
    exit 1
}
for program in apt-get dpkg-deb; do
    command -v $program >/dev/null || missing "there is no $program"
done

rm -rf "$home"
mkdir -p "$home"/apt/{state/lists/partial,cache/archives/partial} "$home/packages" "$system"
touch "$home/apt/status"
apt=(apt-get -qq -o "Dir::State=$home/apt/state" -o "Dir::Cache=$home/apt/cache"
     -o "Dir::State::status=$home/apt/status" -o "APT::Architecture=$architecture"
     -o "APT::Architectures=$architecture" -o APT::Sandbox::User="$(id -un)")
if [[ -n $suite ]]; then
    keys=/usr/share/keyrings/debian-archive-keyring.gpg
    [[ -e $keys ]] || missing "there is no $keys"
    # The mirror that this machine has been told to use, else Debian's own.
    mirror=$(sed -n 's/^\(URIs: *\|deb \(\[[^]]*\] \)*\)\(http[^ ]*\/debian\)\/*\( .*\|$\)/\3/p' \
        /etc/apt/sources.list.d/*.sources /etc/apt/sources.list 2>/dev/null | head -1 || true)
    echo "deb [signed-by=$keys] ${mirror:-http://deb.debian.org/debian} $suite main" >"$home/apt/sources.list"
    apt+=(-o "Dir::Etc::sourcelist=$home/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null)
fi
"${apt[@]}" update || missing "apt-get cannot read the lists of $architecture${suite:+ in $suite}"
# $version-minimal is the interpreter; the rest is what the standard library's modules load.
(cd "$home/packages" && "${apt[@]}" download libc6 libgcc-s1 libstdc++6 libgomp1 "python$version-minimal" \
    "libpython$version-minimal" "libpython$version-stdlib" zlib1g libexpat1 libffi8 libbz2-1.0 liblzma5 \
    libuuid1 ${more[@]+"${more[@]}"}) || missing "apt has no python$version for $architecture${suite:+ in $suite}"
for package in "$home"/packages/*.deb; do dpkg-deb -x "$package" "$system"; done
touch "$home/system.stamp"
