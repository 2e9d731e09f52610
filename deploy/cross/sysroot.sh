#!/usr/bin/env bash
# Makes a folder of arm64 packages for cross builds. Nothing is installed and root is not needed:
# apt-get works on a state of its own, and the packages are unpacked into the folder.
set -euo pipefail
# shellcheck source=deploy/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

# Those of deploy/packages.sh without LibTorch, and the C library's own headers.
packages=(
  libc6-dev libstdc++-12-dev
  libabsl-dev libgrpc++-dev libprotobuf-dev libspdlog-dev libcli11-dev
  nlohmann-json3-dev opencl-headers libcpp-httplib-dev zlib1g-dev libssl-dev libdeflate-dev
  libpng-dev libturbojpeg0-dev libonnx-dev libzip-dev
  libgtest-dev libgmock-dev libbenchmark-dev
)

usage() {
  cat <<END
usage: deploy/cross/sysroot.sh [FOLDER]

Downloads arm64 packages of this machine's Debian release (about 55 MB) and unpacks them (300 MB)
into FOLDER (default build/arm64-sysroot). A folder that is complete is left as it is.
END
}

case "${1:-}" in
  -h | --help)
    usage
    exit 0
    ;;
esac
sysroot=${1:-$repository/build/arm64-sysroot}
mkdir -p "$sysroot"
sysroot=$(cd "$sysroot" && pwd)
stamp=$sysroot/.complete

if [ "$(cat "$stamp" 2>/dev/null)" = "${packages[*]}" ]; then
  say "arm64 packages: all ${#packages[@]} are in $sysroot"
  exit 0
fi
rm -f "$stamp"

apt=$sysroot/.apt
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
: >"$apt/status"

# apt_get ARGUMENTS...: for arm64, as if nothing were installed.
apt_get() {
  DEBIAN_FRONTEND=noninteractive apt-get -q \
    -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Install-Recommends=false \
    -o APT::Sandbox::User=root -o Debug::NoLocking=1 -o Dir::State="$apt" \
    -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache" "$@"
}

say "arm64 packages: reading the package lists"
apt_get update || die "apt-get update failed (above)"
say "arm64 packages: ${packages[*]}"
apt_get install -y --download-only "${packages[@]}" || die "the packages cannot be had (above)"
for archive in "$apt"/cache/archives/*.deb; do
  dpkg-deb -x "$archive" "$sysroot"
done
# The generators run on this machine; gRPC's CMake files look for them beside its library.
mkdir -p "$sysroot/usr/bin"
for tool in /usr/bin/protoc /usr/bin/grpc_*_plugin; do
  ln -sf "$tool" "$sysroot/usr/bin/"
done
rm -rf "$apt"
echo "${packages[*]}" >"$stamp"
say "arm64 packages: unpacked into $sysroot"
