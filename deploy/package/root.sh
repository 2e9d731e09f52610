# Sourced by the checks of packages: a fresh Debian root with this host's mirrors. Needs deploy/common.sh, and to be root.
# shellcheck shell=bash

# make_root: `root` becomes a folder that is removed when the script ends.
make_root() {
  local mirror
  [ "$(id -u)" -eq 0 ] || die "needs root: a Debian root is made with chroot"
  root=$(mktemp -d /var/tmp/runnel-root.XXXXXX)
  trap 'umount "$root/proc" 2>/dev/null || true; rm -rf --one-file-system "$root"' EXIT
  mirror=$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p; s/^deb \(\[[^]]*\] \)\?\([^ ]*\) .*/\2/p' \
    /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -n 1 || true)
  debootstrap --variant=minbase bookworm "$root" "${mirror:-http://deb.debian.org/debian}" >"$root.log" 2>&1 ||
    die "debootstrap failed: $(tail -n 3 "$root.log")"
  rm -f "$root.log" "$root/etc/apt/sources.list"
  cp -r /etc/apt/. "$root/etc/apt/"
  echo 'APT::Sandbox::User "root";' >"$root/etc/apt/apt.conf.d/00runnel-check"
  mount -t proc proc "$root/proc"
  inside apt-get -q update >/dev/null
}

inside() { chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }

# install_packages FOLDER [PACKAGE...]: the packages of a folder, and Debian's.
install_packages() {
  mkdir -p "$root/packages"
  cp "$1"/*.deb "$root/packages/"
  inside sh -c 'apt-get -q install -y --no-install-recommends /packages/runnel-*.deb "$@"' sh "${@:2}" \
    >"$root/tmp/install.log" 2>&1 || die "installing failed: $(tail -n 5 "$root/tmp/install.log")"
}
