#!/usr/bin/env bash
# Builds runnel-vendor-host for 64-bit Android without its NDK: a dynamic program for /system/bin/linker64, linked against
# empty libraries that have the names of Android's and the functions that it needs.
set -euo pipefail
# shellcheck source=deploy/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

usage() {
  cat <<END
usage: deploy/cross/vendor_host.sh [FILE]

Leaves the program in FILE (default build/runnel-vendor-host-android). Copy it beside the static worker as
runnel-vendor-host: the worker then reaches the phone's OpenCL. Never tried on a phone.

Needs aarch64-linux-gnu-gcc (deploy/packages.sh cross).
END
}

case "${1:-}" in
  -h | --help)
    usage
    exit 0
    ;;
esac
cd "$repository"
file=${1:-build/runnel-vendor-host-android}
compiler=aarch64-linux-gnu-gcc
command -v "$compiler" >/dev/null || die "no $compiler (deploy/packages.sh cross installs it)"
mkdir -p "$(dirname "$file")"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# library function, a line each
list=kernels/backends/vendor_host/android_symbols.txt
stubs=()
mapfile -t libraries < <(awk '!/^#/ && NF { print $1 }' "$list" | sort -u)
for library in "${libraries[@]}"; do
  awk -v library="$library" '!/^#/ && $1 == library { print "void " $2 "(void) {}" }' "$list" >"$folder/stub.c"
  "$compiler" -w -fno-builtin -nostdlib -shared -fPIC -Wl,-soname,"$library" "$folder/stub.c" -o "$folder/$library"
  stubs+=("$folder/$library")
done

# Pages of 4 and of 16 KiB. Nothing of the compiler's own start or libraries.
"$compiler" -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -I. -U_FORTIFY_SOURCE -ffreestanding -fPIE \
  -fno-stack-protector -fno-asynchronous-unwind-tables -mno-outline-atomics \
  -nostdlib -pie -Wl,--dynamic-linker=/system/bin/linker64 -Wl,-z,max-page-size=16384 -Wl,-z,now -Wl,-z,noexecstack \
  -Wl,--hash-style=both -Wl,--build-id=none -Wl,--no-undefined -s \
  kernels/backends/vendor_host/{vendor_host,host_handles,android_start}.c \
  "${stubs[@]}" -o "$file" || die "building failed (above)"
say "$file: $(stat -c %s "$file") bytes"
