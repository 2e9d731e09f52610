#!/usr/bin/env bash
# Integer training on a cluster of x86-64 and emulated 64-bit ARM workers, against the same run on this host alone: the
# weights must be the same bytes.
#   tests/process/mixed_arm64.sh [--arm-worker FILE] [--bin DIR] [PROCESSOR...]
# FILE is a static runnel-worker for arm64, without LibTorch: what deploy/cross/static_worker.sh makes is taken if none is given.
# PROCESSOR: what qemu-aarch64 -cpu takes; cortex-a72 cortex-a76 max if none is given. Prints "skipped: ..." without an
# emulator. Emulated times say nothing about devices.
set -euo pipefail
cd "$(dirname "$0")/../.."

bin=build/release/bin
arm_worker=build/runnel-worker-arm64
processors=()
while [ $# -gt 0 ]; do
  case $1 in
    --arm-worker) arm_worker=$2; shift 2 ;;
    --bin) bin=$2; shift 2 ;;
    -*) echo "mixed_arm64.sh: unknown argument $1 (use --arm-worker, --bin)" >&2; exit 2 ;;
    *) processors+=("$1"); shift ;;
  esac
done
[ "${#processors[@]}" -gt 0 ] || processors=(cortex-a72 cortex-a76 max)
command -v qemu-aarch64 >/dev/null || { echo "skipped: no qemu-aarch64 (package qemu-user)"; exit 0; }
[ -x "$arm_worker" ] || { echo "mixed_arm64.sh: --arm-worker '$arm_worker' is no program; deploy/cross/static_worker.sh makes one" >&2; exit 2; }
[ -x "$bin/runnel-central" ] || { echo "mixed_arm64.sh: no $bin/runnel-central: build it first" >&2; exit 2; }

scratch=$(mktemp -d)
pids=()
clean_up() {
  [ "${#pids[@]}" -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true
  rm -rf "$scratch"
}
trap clean_up EXIT

run=(train --quick --model lenet --dataset synthetic_digits --recipe niti --schedule sync_1f1b --epochs 1 --max-batches 6)
weights() { sed -n 's/^weights \([0-9a-f]*\).*/\1/p' "$1"; }

"$bin/runnel-central" "${run[@]}" --local-workers 0 > "$scratch/plain.log" 2>&1
expected=$(weights "$scratch/plain.log")
echo "plain loop, x86-64            $expected"

# mixed PROCESSOR X86_WORKERS ARM_WORKERS: stage 0 here, the others dial in.
mixed() {
  local processor=$1 x86=$2 arm=$3 log=$scratch/mixed.log address=
  : > "$log"  # read before the run has opened it
  "$bin/runnel-central" "${run[@]}" --local-workers 1 --workers $((x86 + arm)) --listen 127.0.0.1:0 > "$log" 2>&1 &
  local central=$!
  pids=("$central")
  for ((i = 0; i < 600; ++i)); do
    address=$(sed -n 's/^waiting for .* --central //p' "$log" | head -1)
    [ -z "$address" ] || break
    kill -0 "$central" 2>/dev/null || break
    sleep 0.1
  done
  for ((i = 0; i < arm; ++i)); do
    qemu-aarch64 -cpu "$processor" "$arm_worker" --once --central "$address" --name "arm-$i" > "$scratch/arm-$i.log" 2>&1 &
    pids+=($!)
  done
  for ((i = 0; i < x86; ++i)); do
    "$bin/runnel-worker" --once --central "$address" --name "x86-$i" > "$scratch/x86-$i.log" 2>&1 &
    pids+=($!)
  done
  wait "$central" || { echo "mixed_arm64.sh: the run failed:" >&2; tail -5 "$log" >&2; exit 1; }
  kill "${pids[@]:1}" 2>/dev/null || true
  wait "${pids[@]:1}" 2>/dev/null || true
  pids=()
  printf '%-12s %d x86-64 + %d arm64  %s\n' "$processor" $((x86 + 1)) "$arm" "$(weights "$log")"
  [ "$(weights "$log")" = "$expected" ] || { echo "mixed_arm64.sh: the weights differ" >&2; exit 1; }
}

for processor in "${processors[@]}"; do
  mixed "$processor" 0 1
  mixed "$processor" 1 1
  mixed "$processor" 0 2
done
echo "the same weights on all"
