#!/usr/bin/env bash
# check.sh FOLDER: installs the packages of a folder in a fresh Debian root, trains there over three workers, upgrades to the
# same packages under a later version in between, removes and purges them. Says what is left. Root; 400 MB to download.
set -euo pipefail
# shellcheck source=deploy/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
# shellcheck source=deploy/package/root.sh
. "$(dirname "${BASH_SOURCE[0]}")/root.sh"

folder=$(realpath "$1")

train() {
  inside runnel-central train --model lenet --dataset synthetic_digits --quick --local-workers 3 --max-batches 20 \
    --schedule sync_1f1b --summary /root/summary.json >"$root/root/train.log" || die "training failed: $(cat "$root/root/train.log")"
  grep -o '"weights_sha256"[^,]*' "$root/root/summary.json"
}

# The same files under another version.
raise_version() {
  local package
  for package in "$folder"/*.deb; do
    rm -rf "$root/tmp/raised"
    dpkg-deb -R "$package" "$root/tmp/raised"
    sed -i 's/^Version: .*/&+1/; s/(= \([^)]*\))/(= \1+1)/' "$root/tmp/raised/DEBIAN/control"
    dpkg-deb --root-owner-group -b "$root/tmp/raised" "$root/packages/raised-$(basename "$package")" >/dev/null
  done
}

say "a fresh Debian root"
make_root

say "install"
install_packages "$folder"
inside runnel-worker --version
inside sh -c 'runnel-worker --check || true' | grep -q opencl || die "the package lacks backend opencl"
for user in runnel runnel-central; do
  inside getent passwd "$user" >/dev/null || die "a service has no user: $user"
done
inside sh -n /usr/lib/runnel/run-central
for page in runnel-central runnel-worker; do
  [ -s "$root/usr/share/man/man1/$page.1.gz" ] || die "no manual page $page"
done
first=$(train)

say "upgrade"
raise_version
inside sh -c 'dpkg -i /packages/raised-*.deb' >"$root/tmp/upgrade.log" 2>&1 || die "$(tail -n 5 "$root/tmp/upgrade.log")"
touch "$root/var/lib/runnel/certificate" "$root/var/lib/runnel-central/authority"
[ "$(train)" = "$first" ] || die "other weights after the upgrade"

say "remove, purge"
inside dpkg --remove runnel-central runnel-worker >/dev/null 2>&1
[ -e "$root/var/lib/runnel/certificate" ] || die "'remove' took the device's certificate away"
[ -e "$root/var/lib/runnel-central/authority" ] || die "'remove' took the authority away"
inside dpkg --purge runnel-central runnel-worker >/dev/null 2>&1
left=$(find "$root/etc" "$root/var/lib" "$root/usr" -xdev -name '*runnel*' | grep -v '/apt/' || true)
[ -z "$left" ] || die "purged, and these are left: $left"
for user in runnel runnel-central; do
  ! inside getent passwd "$user" >/dev/null || die "purged, and user $user is left"
done
say "passed: installed, trained ($first), upgraded, purged"
