#!/usr/bin/env bash
# Builds runnel-worker for 64-bit ARM as one file without shared libraries, and asks it for its help
# under QEMU.
set -euo pipefail
# shellcheck source=deploy/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

usage() {
  cat <<END
usage: deploy/cross/static_worker.sh [FILE]

Leaves the stripped worker in FILE (default build/runnel-worker-arm64). It runs on any 64-bit ARM
Linux as it is: copy it to the phone or Pi and start it. Give it central's address as a number;
a static binary cannot look up names everywhere. A phone's GPU it reaches through the program of
deploy/cross/vendor_host.sh, copied beside it as runnel-vendor-host.

Installs the missing packages first (deploy/packages.sh cross; RUNNEL_SKIP_PACKAGES=1 leaves them alone).
END
}

case "${1:-}" in
  -h | --help)
    usage
    exit 0
    ;;
esac
cd "$repository"
file=${1:-build/runnel-worker-arm64}

bash deploy/packages.sh cross
bash deploy/cross/sysroot.sh build/arm64-sysroot

say "configure build/arm64-static"
cmake --preset worker -B build/arm64-static --toolchain deploy/cross/aarch64-static.cmake \
  >build/arm64-static.log 2>&1 ||
  { cat build/arm64-static.log >&2; die "configuring failed (above)"; }
say "build runnel-worker"
cmake --build build/arm64-static -j "$(compile_jobs)" --target runnel-worker ||
  die "building failed (above)"
aarch64-linux-gnu-strip -o "$file" build/arm64-static/bin/runnel-worker

say "run $file --help as cortex-a72"
# Without -L: there is no library that it could need.
qemu-aarch64 -cpu cortex-a72 "$file" --help || die "the worker does not run (above)"
say "$file: $(stat -c %s "$file") bytes"
