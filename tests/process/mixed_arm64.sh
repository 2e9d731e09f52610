#!/usr/bin/env bash
# Integer training on a cluster of x86-64 and emulated 64-bit ARM workers, against the same run on this host alone: the
# weights must be the same bytes. At last all kinds at once, by mutual TLS: the devices join by tokens.
#   tests/process/mixed_arm64.sh [--arm-worker FILE] [--bin DIR] [PROCESSOR...]
# FILE is a static runnel-worker for arm64, without LibTorch: what deploy/cross/static_worker.sh makes is taken if none is given. A
# second FILE, the program of a package for example, joins beside the first at last.
# PROCESSOR: what qemu-aarch64 -cpu takes; cortex-a72 cortex-a76 max if none is given. Prints "skipped: ..." without an
# emulator. Emulated times say nothing about devices.
set -euo pipefail
cd "$(dirname "$0")/../.."

bin=build/release/bin
arm_workers=()
processors=()
while [ $# -gt 0 ]; do
  [[ $1 != --* || $# -gt 1 ]] || { echo "mixed_arm64.sh: $1 needs a value" >&2; exit 2; }
  case $1 in
    --arm-worker) arm_workers+=("$2"); shift 2 ;;
    --bin) bin=$2; shift 2 ;;
    -*) echo "mixed_arm64.sh: unknown argument $1 (use --arm-worker, --bin)" >&2; exit 2 ;;
    *) processors+=("$1"); shift ;;
  esac
done
[ "${#processors[@]}" -gt 0 ] || processors=(cortex-a72 cortex-a76 max)
command -v qemu-aarch64 >/dev/null || { echo "skipped: no qemu-aarch64 (package qemu-user)"; exit 0; }
[ "${#arm_workers[@]}" -gt 0 ] || arm_workers=(build/runnel-worker-arm64)
for file in "${arm_workers[@]}"; do
  [ -x "$file" ] || { echo "mixed_arm64.sh: --arm-worker '$file' is no program; deploy/cross/static_worker.sh makes one" >&2; exit 2; }
done
arm_worker=${arm_workers[0]}
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

# central WORKERS [FLAG...]: stage 0 here, the others dial in; in `address` where, with --home where they join by a token.
central() {
  local workers=$1 before="--central "
  shift
  [ $# -eq 0 ] || before="--join TOKEN@"
  log=$scratch/mixed.log address=
  : > "$log"  # read before the run has opened it
  "$bin/runnel-central" "${run[@]}" --local-workers 1 --workers "$workers" --listen 127.0.0.1:0 "$@" > "$log" 2>&1 &
  pids=($!)
  for ((i = 0; i < 600; ++i)); do
    address=$(sed -n "s/^.*$before\([^ ]*\).*/\1/p" "$log" | head -1)
    [ -z "$address" ] || break
    kill -0 "${pids[0]}" 2>/dev/null || break
    sleep 0.1
  done
}

# trained TEXT: waits for the run, ends the workers and compares.
trained() {
  wait "${pids[0]}" || { echo "mixed_arm64.sh: the run failed:" >&2; tail -5 "$log" >&2; exit 1; }
  kill "${pids[@]:1}" 2>/dev/null || true
  wait "${pids[@]:1}" 2>/dev/null || true
  pids=()
  printf '%s  %s\n' "$1" "$(weights "$log")"
  [ "$(weights "$log")" = "$expected" ] || { echo "mixed_arm64.sh: the weights differ" >&2; exit 1; }
}

# mixed PROCESSOR X86_WORKERS ARM_WORKERS
mixed() {
  local processor=$1 x86=$2 arm=$3
  central $((x86 + arm))
  for ((i = 0; i < arm; ++i)); do
    qemu-aarch64 -cpu "$processor" "$arm_worker" --once --central "$address" --name "arm-$i" > "$scratch/arm-$i.log" 2>&1 &
    pids+=($!)
  done
  for ((i = 0; i < x86; ++i)); do
    "$bin/runnel-worker" --once --central "$address" --name "x86-$i" > "$scratch/x86-$i.log" 2>&1 &
    pids+=($!)
  done
  trained "$(printf '%-12s %d x86-64 + %d arm64' "$processor" $((x86 + 1)) "$arm")"
}

# A worker here and each program for ARM, on streams that certificates secure.
secured() {
  local processor=$1 home=$scratch/home i=0 program
  local programs=("" "${arm_workers[@]}")
  "$bin/runnel-central" init --home "$home" > "$scratch/init.log"
  central ${#programs[@]} --home "$home"
  for program in "${programs[@]}"; do
    local worker=("$bin/runnel-worker")
    [ -z "$program" ] || worker=(qemu-aarch64 -cpu "$processor" "$program")
    printf '%s@%s\n' "$("$bin/runnel-central" token --name "device-$i" --home "$home")" "$address" |
      "${worker[@]}" --once --join - --state-dir "$scratch/device-$i" > "$scratch/device-$i.log" 2>&1 &
    pids+=($!)
    i=$((i + 1))
  done
  trained "$(printf '%-12s 2 x86-64 + %d arm64, mutual TLS' "$processor" "${#arm_workers[@]}")"
}

for processor in "${processors[@]}"; do
  mixed "$processor" 0 1
  mixed "$processor" 1 1
  mixed "$processor" 0 2
done
secured "${processors[-1]}"
echo "the same weights on all"
