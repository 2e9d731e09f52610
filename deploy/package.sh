#!/usr/bin/env bash
# Makes the Debian packages runnel-worker and runnel-central of this checkout.
set -euo pipefail
# shellcheck source=deploy/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<END
usage: deploy/package.sh [--check]

Installs what building and packaging need (Debian 12, root or sudo), builds the release preset and
writes build/release/packages/runnel-worker_VERSION_ARCHITECTURE.deb and runnel-central_...deb.

  --check   also installs them in a fresh Debian root (debootstrap, as root), trains there, upgrades
            and purges, and says what is left

RUNNEL_SKIP_PACKAGES=1   leave packages of this host alone
END
}

is_checked=no
case "${1:-}" in
  "") ;;
  --check) is_checked=yes ;;
  -h | --help)
    usage
    exit 0
    ;;
  *)
    usage >&2
    exit 2
    ;;
esac
cd "$repository"

# page COMPONENT PROGRAM SUMMARY [SUBCOMMAND]: a manual page of what --help prints.
page() {
  local file="$build/man/$1/$2${4:+-$4}.1"
  help2man --no-info --no-discard-stderr --name "$3" --version-string "$version" --output "$file" \
    "$build/bin/$2${4:+ $4}"
  gzip -9nf "$file"
}

# One for each program and each of its subcommands.
make_manuals() {
  local program component command summary
  rm -rf "$build/man"
  mkdir -p "$build/man/worker" "$build/man/central"
  page worker runnel-worker "trains a share of a neural network for a central"
  page central runnel-central "trains a neural network across your devices"
  page central runnel-lab "simulates and compares plans, makes profiles of devices"
  for program in runnel-central runnel-lab; do
    while read -r command summary; do
      page central "$program" "$summary" "$command"
    done < <("$build/bin/$program" --help | sed -n '/^Subcommands:/,$ s/^  \([a-z-]*\)  */\1 /p')
  done
}

build=build/release
say "1/4 packages"
bash deploy/packages.sh package

say "2/4 build (preset release)"
cmake --preset release || die "configuring failed (above)"
cmake --build --preset release -j "$(compile_jobs)" --target packaged ||
  die "building failed (above)"
version=$("$build/bin/runnel-worker" --version | sed 's/^runnel-worker \([^,]*\).*/\1/')

say "3/4 manual pages"
make_manuals

say "4/4 packages"
rm -rf "$build/packages"
(cd "$build" && cpack -G DEB) || die "packing failed (above)"
ls -l "$build"/packages/*.deb
[ "$is_checked" = no ] || bash deploy/package/check.sh "$build"/packages
