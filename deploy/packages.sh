#!/usr/bin/env bash
# Installs the Debian packages that building (and testing) Runnel needs, and only the missing ones.
set -euo pipefail
# shellcheck source=deploy/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

build_packages=(
  g++ cmake ninja-build ccache mold pkg-config git ca-certificates
  libtorch-dev libopenblas0-pthread
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libabsl-dev
  libspdlog-dev libcli11-dev nlohmann-json3-dev libcpp-httplib-dev
  zlib1g-dev libssl-dev libdeflate-dev libpng-dev libturbojpeg0-dev libonnx-dev libzip-dev
)
# python3-torch: what deploy/python trains (60 MB to download). python3-yaml: reads the manifests of Kubernetes. iproute2, procps and util-linux: the lab's hosts. OpenCL's headers, loader and PoCL, a driver for the CPU. clang-19, lld-19 and qemu-user: the Hexagon DSP's program (63 MB to download).
test_packages=(libgtest-dev libgmock-dev libbenchmark-dev python3 xz-utils iproute2 procps util-linux
  opencl-headers ocl-icd-opencl-dev pocl-opencl-icd clang-19 lld-19 qemu-user python3-torch python3-yaml)

# A compiler for 64-bit ARM, and an emulator that tries what it made.
cross_packages=(g++-aarch64-linux-gnu qemu-user)

# Manual pages from what --help prints; a fresh Debian root.
package_packages=(help2man debootstrap)

usage() {
  cat <<END
usage: deploy/packages.sh build|test|cross|package|list

  build   install the packages for building
  test    install the packages for building and testing
  cross   install the packages for building here and for 64-bit ARM
  package install the packages for building, and for making and trying Debian packages
  list    print the lists and install nothing

Debian 12 only, as root or with sudo. Installs only what is missing; a second run changes nothing.
RUNNEL_SKIP_PACKAGES=1 installs and checks nothing: for other systems where you brought the
libraries yourself.
END
}

require_debian_12() {
  local name
  # The file is the system's, not ours.
  # shellcheck disable=SC1091
  name=$(. /etc/os-release 2>/dev/null && echo "${ID:-unknown} ${VERSION_ID:-}") || name="unknown"
  if [ "$name" != "debian 12" ]; then
    die "knows the packages of Debian 12, and this is ${name}. needs: ${wanted[*]}" \
      "(or what they are called here); then run again with RUNNEL_SKIP_PACKAGES=1"
  fi
}

# Names from "$@" that are not installed, one a line.
missing_of() {
  local package status
  for package in "$@"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || status=""
    [ "$status" = installed ] || echo "$package"
  done
}

# apt_get ARGUMENTS...: as root, waiting for another apt rather than failing.
apt_get() {
  local prefix=()
  if [ "$(id -u)" -ne 0 ]; then
    prefix=(sudo)
    # Without a terminal nobody can type a password: fail instead of waiting.
    [ -t 0 ] || prefix+=(-n)
  fi
  "${prefix[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@"
}

# Whether the package lists on this machine know every name in "$@".
lists_know() {
  local package
  for package in "$@"; do
    apt-cache show --no-all-versions "$package" >/dev/null 2>&1 || return 1
  done
}

install_missing() {
  local by_hand="apt-get update && apt-get install -y --no-install-recommends $*"
  if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
    die "needs: $*, and neither root nor sudo is here. run: as root: ${by_hand}"
  fi
  if ! lists_know "$@"; then
    say "packages: reading the package lists (apt-get update)"
    apt_get update || die "needs: $*, and apt-get update failed (above). run: ${by_hand}"
  fi
  say "packages: installing $*"
  if ! apt_get install -y --no-install-recommends "$@"; then
    say "packages: that failed; again with fresh package lists"
    apt_get update || die "needs: $*, and apt-get update failed (above). run: ${by_hand}"
    apt_get install -y --no-install-recommends "$@" ||
      die "needs: $*, and apt-get install failed (above). run: ${by_hand}"
  fi
}

case "${1:-}" in
  build) wanted=("${build_packages[@]}") ;;
  test) wanted=("${build_packages[@]}" "${test_packages[@]}") ;;
  cross) wanted=("${build_packages[@]}" "${cross_packages[@]}") ;;
  package) wanted=("${build_packages[@]}" "${package_packages[@]}") ;;
  list)
    printf 'build: %s\ntest: %s\ncross: %s\npackage: %s\n' "${build_packages[*]}" "${test_packages[*]}" \
      "${cross_packages[*]}" "${package_packages[*]}"
    exit 0
    ;;
  -h | --help)
    usage
    exit 0
    ;;
  *)
    usage >&2
    exit 2
    ;;
esac

if [ "${RUNNEL_SKIP_PACKAGES:-}" = 1 ]; then
  say "packages: left alone (RUNNEL_SKIP_PACKAGES=1)"
  exit 0
fi
require_debian_12
mapfile -t missing < <(missing_of "${wanted[@]}")
if [ "${#missing[@]}" -eq 0 ]; then
  say "packages: all ${#wanted[@]} are installed"
  exit 0
fi
install_missing "${missing[@]}"
mapfile -t missing < <(missing_of "${wanted[@]}")
[ "${#missing[@]}" -eq 0 ] || die "apt-get ended well, but these are still missing: ${missing[*]}"
say "packages: all ${#wanted[@]} are installed"
