#!/usr/bin/env bash
# check_arm64.sh PACKAGE [BINARIES [FILE]]: unpacks a package for 64-bit ARM, looks at what is in it, and trains with its program under
# the emulator beside native workers: integers must give the bytes of the run on this host alone (tests/process/mixed_arm64.sh).
# BINARIES: native programs (default build/release/bin); an empty one: only the contents are looked at. FILE: the static program
# itself, which then trains beside the packaged one.
set -euo pipefail
# shellcheck source=deploy/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

package=$(realpath "$1")
binaries=${2-$repository/build/release/bin}
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

[ "$(dpkg-deb -f "$package" Architecture)" = arm64 ] || die "is not for arm64"
dpkg-deb -x "$package" "$tree/root"
dpkg-deb -e "$package" "$tree/control"
program=$tree/root/usr/bin/runnel-worker
for file in "$program" "$tree"/control/{postinst,prerm,postrm}; do
  [ -x "$file" ] || die "no program ${file#"$tree/"}"
done
for file in usr/share/man/man1/runnel-worker.1.gz lib/systemd/system/runnel-worker.service usr/share/doc/runnel-worker/copyright \
  usr/share/bash-completion/completions/runnel-worker; do
  [ -s "$tree/root/$file" ] || die "no $file"
done
(cd "$tree/root" && md5sum --quiet -c "$tree/control/md5sums") || die "md5sums are others"
zcat "$tree/root/usr/share/man/man1/runnel-worker.1.gz" | grep -q '^runnel.*worker' || die "the manual page has no name"
# Without -L: the package depends on no library.
[ "$(qemu-aarch64 "$program" --version | sed 's/^runnel-worker \([^,]*\).*/\1/')" = "$(dpkg-deb -f "$package" Version)" ] ||
  die "the program has another version"
say "$(basename "$package"): complete, starts under the emulator"
[ -z "$binaries" ] || bash "$repository/tests/process/mixed_arm64.sh" --bin "$binaries" --arm-worker "$program" ${3:+--arm-worker "$3"} max
