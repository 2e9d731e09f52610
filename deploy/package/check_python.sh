#!/usr/bin/env bash
# check_python.sh FOLDER [FILE.py...]: installs the packages of a folder and Debian's python3-torch in a fresh Debian root and runs
# deploy/python/example.py there, or the files given. Root; 500 MB to download.
set -euo pipefail
# shellcheck source=deploy/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
# shellcheck source=deploy/package/root.sh
. "$(dirname "${BASH_SOURCE[0]}")/root.sh"

folder=$(realpath "$1")
files=("${@:2}")
[ "${#files[@]}" -gt 0 ] || files=("$repository"/deploy/python/example*.py)

say "a fresh Debian root"
make_root
say "install"
install_packages "$folder" python3-torch
mkdir -p "$root/root/examples"
for file in "${files[@]}"; do
  cp "$file" "$root/root/examples/"
  say "$(basename "$file")"
  # Nothing of this host: no PYTHONPATH, no RUNNEL_BIN.
  inside env -u PYTHONPATH -u RUNNEL_BIN python3 "/root/examples/$(basename "$file")"
done
say "passed"
