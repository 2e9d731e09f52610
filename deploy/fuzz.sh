#!/usr/bin/env bash
# Runs each decoder's fuzzer for some time and says how many inputs it tried and what they covered.
set -euo pipefail
# shellcheck source=deploy/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<END
usage: deploy/fuzz.sh [SECONDS [NAME...]]

Builds build/fuzz with clang-19 (installed if it is missing) under the address and undefined-behaviour
sanitizers, and runs every fuzzer, or those named (frame, control, ...), for SECONDS each (default 60).
Inputs that cover something new stay in build/fuzz/corpus/NAME for the next time. An input that ends the
program is kept in build/fuzz/crash-*; \`build/dev/bin/NAME_fuzzer 0 FILE\` runs it again.
END
}

case "${1:-}" in
  -h | --help)
    usage
    exit 0
    ;;
esac
seconds=${1:-60}
[[ "$seconds" =~ ^[0-9]+$ ]] || die "SECONDS must be a number: $seconds"
shift || true
names=("$@")
cd "$repository"
[ "${#names[@]}" -gt 0 ] || mapfile -t names < <(cd tests/fuzz && printf '%s\n' *_fuzzer.cc | sed 's/_fuzzer.cc//')
for name in "${names[@]}"; do
  [ -f "tests/fuzz/${name}_fuzzer.cc" ] || die "no fuzzer is named $name"
done

bash deploy/packages.sh test
if ! command -v clang++-19 >/dev/null; then
  prefix=()
  [ "$(id -u)" -eq 0 ] || prefix=(sudo)
  "${prefix[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends clang-19 libclang-rt-19-dev ||
    die "clang-19 cannot be installed (above)"
fi
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz -j "$(compile_jobs)" --target "${names[@]/%/_fuzzer}" || die "building failed (above)"

export ASAN_OPTIONS="${ASAN_OPTIONS:-allocator_may_return_null=0:detect_leaks=1}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}"
failed=()
for name in "${names[@]}"; do
  corpus=build/fuzz/corpus/$name
  log=build/fuzz/$name.log
  mkdir -p "$corpus"
  if RUNNEL_FUZZ_SEEDS=$corpus "build/fuzz/bin/${name}_fuzzer" "$corpus" -max_total_time="$seconds" -rss_limit_mb=2048 \
    -timeout=10 -print_final_stats=1 -artifact_prefix=build/fuzz/ >"$log" 2>&1; then
    result=passed
  else
    result=FAILED
    failed+=("$name")
  fi
  printf '%-11s %-7s %9s inputs, %6s edges, %5s files\n' "$name" "$result" \
    "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
    "$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -1)" "$(find "$corpus" -type f | wc -l)"
done
[ "${#failed[@]}" -eq 0 ] || die "${failed[*]}: see build/fuzz/*.log"
