#!/usr/bin/env bash
# Builds a preset with its tests and runs them; the last lines are ctest's own summary, the ten slowest tests before it.
set -euo pipefail
# shellcheck source=deploy/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<END
usage: deploy/test.sh [--preset dev|asan|tsan] [--quick|--processes|--all] [CTEST ARGUMENTS...]

Installs the packages that building and testing need (Debian 12, root or sudo), builds the preset
(default dev) and runs ctest, two tests a processor at once; further arguments go to ctest, for
example: -R codec --verbose.
The exit code is ctest's.

  asan   address and undefined-behaviour sanitizers, every test
  tsan   thread sanitizer, the tests labelled tsan: those without LibTorch and gRPC, whose Debian
         builds are not instrumented; and those of --processes

  --quick   with asan: only the tests of what reads bytes from outside (frames, messages, codecs) and
            of the state machines of a link
  --processes   with tsan: central and workers as real processes, their training, losses and members
  --all     also the tests labelled long, which repeat in breadth what the others show

RUNNEL_SKIP_PACKAGES=1   leave packages alone
END
}

# The targets of the tests with a label: a test binary has its test's name, without the number of a part.
targets_of() {
  ctest --preset "$preset" -L "^$1\$" -N 2>/dev/null | sed -n 's/^ *Test *#[0-9]*: *\([^.]*\).*/\1/p' | sort -u
}

# Passes ctest's output on; before its summary, the ten tests that took longest.
with_slowest() {
  local line words times=""
  while IFS= read -r line; do
    case "$line" in
      *" Test "*" sec"*)
        read -r -a words <<<"$line"
        times+="${words[-2]} s  ${words[3]}"$'\n'
        ;;
      *"% tests passed"*) printf 'Slowest tests:\n%s\n\n' "$(sort -rn <<<"$times" | head -10)" ;;
    esac
    printf '%s\n' "$line"
  done
}

preset=dev
case "${1:-}" in
  --preset)
    [ "$#" -ge 2 ] || die "--preset needs a name"
    preset=$2
    shift 2
    ;;
  --preset=*)
    preset=${1#--preset=}
    shift
    ;;
  -h | --help)
    usage
    exit 0
    ;;
esac
quick=no
if [ "${1:-}" = --quick ]; then
  [ "$preset" = asan ] || die "--quick needs --preset asan"
  quick=yes
  shift
fi
processes=no
if [ "${1:-}" = --processes ]; then
  [ "$preset" = tsan ] || die "--processes needs --preset tsan"
  processes=yes
  shift
fi
all=no
if [ "${1:-}" = --all ]; then
  all=yes
  shift
fi
case "$preset" in
  dev | asan | tsan) ;;
  *) die "no preset named $preset with tests: dev, asan, tsan" ;;
esac

cd "$repository"
say "1/4 packages"
bash deploy/packages.sh test

say "2/4 configure (preset $preset)"
cmake --preset "$preset" || die "configuring failed (above)"

build=(cmake --build --preset "$preset" -j "$(compile_jobs)")
# Tests of processes wait for more than half of their time.
check=(ctest --preset "$preset" -j "$((2 * $(nproc)))" --no-tests=error)
label=
[ "$preset" != tsan ] || label=tsan
[ "$quick" = no ] || label=quick
[ "$processes" = no ] || label=processes
if [ -n "$label" ]; then
  mapfile -t targets < <(targets_of "$label")
  [ "${#targets[@]}" -gt 0 ] || die "no test carries the label $label"
  build+=(--target "${targets[@]}")
  check+=(-L "^$label\$")
fi
[ "$all" = yes ] || check+=(-LE '^long$')
[ "$processes" = no ] || build+=(hand_overs runnel-central runnel-worker)

say "3/4 build: ${build[*]}"
"${build[@]}" || die "building failed (above)"

# Without these a finding is printed and the test passes all the same.
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}"
export TSAN_OPTIONS="${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}"
if [ "$processes" = yes ]; then
  # Of libraries that are not instrumented only what passes through ours is judged.
  export TSAN_OPTIONS="$TSAN_OPTIONS:ignore_noninstrumented_modules=1:suppressions=$repository/tests/process/thread_sanitizer.txt"
  export LD_PRELOAD="$repository/build/tsan/lib/libhand_overs.so"
fi

say "4/4 test: ${check[*]} $*"
"${check[@]}" "$@" | with_slowest
