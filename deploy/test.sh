#!/usr/bin/env bash
# Builds a preset with its tests and runs them; the last lines are ctest's own summary.
set -euo pipefail
# shellcheck source=deploy/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<END
usage: deploy/test.sh [--preset dev|asan|tsan] [--quick|--processes] [CTEST ARGUMENTS...]

Installs the packages that building and testing need (Debian 12, root or sudo), builds the preset
(default dev) and runs ctest -j2; further arguments go to ctest, for example: -R codec --verbose.
The exit code is ctest's.

  asan   address and undefined-behaviour sanitizers, every test
  tsan   thread sanitizer, the tests labelled tsan: those without LibTorch and gRPC, whose Debian
         builds are not instrumented; and those of --processes

  --quick   with asan: only the tests of what reads bytes from outside (frames, messages, codecs), of
            the state machines of a link, and the golden values of integer training
  --processes   with tsan: central and workers as real processes, their training, losses and members

RUNNEL_SKIP_PACKAGES=1   leave packages alone
END
}

# Which tests run: a test binary's target has its test's name. Arguments: ctest's own.
tests_with() {
  ctest --preset "$preset" "$@" -N 2>/dev/null | sed -n 's/^ *Test *#[0-9]*: *//p'
}

quick_tests=(base_test codec_fuzz_test codec_fuzzer compress_test control_convert_test control_fuzzer control_parts_test
  frame_fuzz_test frame_fuzzer link_shell_test niti_golden_test transport_test)

process_tests=(process_central_lost_test process_integer_test process_members_test process_recovering_test process_relay_test
  process_security_test process_staying_test process_training_test)

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
check=(ctest --preset "$preset" -j2 --no-tests=error)
if [ "$quick" = yes ]; then
  build+=(--target "${quick_tests[@]}")
  check+=(-R "^($(IFS='|'; echo "${quick_tests[*]}"))\$")
elif [ "$processes" = yes ]; then
  build+=(--target hand_overs runnel-central runnel-worker "${process_tests[@]}")
  check+=(-R "^($(IFS='|'; echo "${process_tests[*]}"))\$")
elif [ "$preset" = tsan ]; then
  mapfile -t targets < <(tests_with -L '^tsan$')
  [ "${#targets[@]}" -gt 0 ] || die "no test carries the label tsan"
  build+=(--target "${targets[@]}")
  check+=(-L '^tsan$')
fi

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
exec "${check[@]}" "$@"
