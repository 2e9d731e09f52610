#!/usr/bin/env bash
# The Debian package runnel-worker for 64-bit ARM, out of the static program.
set -euo pipefail
# shellcheck source=deploy/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

usage() {
  cat <<END
usage: deploy/package/arm64.sh [FILE [FOLDER]]

Packs FILE (default build/runnel-worker-arm64, which deploy/cross/static_worker.sh makes) as
FOLDER/runnel-worker_VERSION_arm64.deb (default build/packages-arm64): the program with its manual page, its
service, its user and completion, as the package of amd64 has them. It needs no libraries, so it fits any release.
Needs qemu-user, help2man and dpkg-deb; not root.
END
}

case "${1:-}" in
  -h | --help)
    usage
    exit 0
    ;;
esac
file=$(realpath "${1:-$repository/build/runnel-worker-arm64}")
folder=${2:-$repository/build/packages-arm64}
[ -f "$file" ] || die "no $file: deploy/cross/static_worker.sh makes it"
for tool in qemu-aarch64 help2man dpkg-deb; do
  command -v "$tool" >/dev/null || die "no $tool: apt install qemu-user help2man dpkg-dev"
done

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"
# What runs here under the emulator, for its version and its help.
emulated=$tree/emulated
printf '#!/bin/sh\nexec qemu-aarch64 "%s" "$@"\n' "$file" >"$emulated"
chmod +x "$emulated"
version=$("$emulated" --version | sed -n 's/^runnel-worker \([^,]*\).*/\1/p')
[ -n "$version" ] || die "$file is no runnel-worker for 64-bit ARM"

root=$tree/root
install -D -m 755 "$file" "$root/usr/bin/runnel-worker"
install -D -m 644 -t "$root/lib/systemd/system" "$repository/deploy/systemd/runnel-worker.service"
install -D -m 644 "$repository/deploy/package/completion.bash" "$root/usr/share/bash-completion/completions/runnel-worker"
install -D -m 644 "$repository/LICENSE" "$root/usr/share/doc/runnel-worker/copyright"
mkdir -p "$root/usr/share/man/man1"
help2man --no-info --no-discard-stderr --name "trains a share of a neural network for a central" --version-string "$version" \
  "$emulated" | sed 's/\bemulated\b/runnel-worker/g; s/\bEMULATED\b/RUNNEL-WORKER/g' | gzip -9n >"$root/usr/share/man/man1/runnel-worker.1.gz"
install -D -m 755 -t "$root/DEBIAN" "$repository"/deploy/package/{postinst,prerm,postrm}
cat >"$root/DEBIAN/control" <<END
Package: runnel-worker
Version: $version
Architecture: arm64
Section: science
Priority: optional
Maintainer: The Runnel authors <maintainers@runnel.invalid>
Depends: adduser
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Description: trains a share of a neural network for a Runnel central
 A daemon for phones, boards and laptops: it takes layers of a network from
 central, trains them on this device's processors and passes values on to the
 next device. One static program, without backend opencl.
END
(cd "$root" && find usr lib -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
mkdir -p "$folder"
package=$folder/runnel-worker_${version}_arm64.deb
dpkg-deb --root-owner-group --build "$root" "$package" >/dev/null
say "$package: $(stat -c %s "$package") bytes"
