#!/usr/bin/env bash
# Trains with NITI on this machine and an emulated ARM one, then on this machine alone: integer
# training must end with the same bytes.
set -euo pipefail
# shellcheck source=deploy/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

usage() {
  cat <<END
usage: deploy/cross/mixed_run.sh [BIN_FOLDER [ARM_WORKER]]

BIN_FOLDER (default build/release/bin) has this machine's runnel-central and runnel-worker,
ARM_WORKER (default build/runnel-worker-arm64) is what deploy/cross/static_worker.sh makes.
Two stages of LeNet, 20 steps; under a minute. QEMU_CPU (default cortex-a76) picks the processor.
END
}

case "${1:-}" in
  -h | --help)
    usage
    exit 0
    ;;
esac
cd "$repository"
central=${1:-build/release/bin}/runnel-central
worker=${2:-build/runnel-worker-arm64}
for program in "$central" "$worker"; do
  [ -x "$program" ] || die "$program is not there; see --help"
done
command -v qemu-aarch64 >/dev/null || die "needs qemu-aarch64: apt-get install qemu-user"

folder=$(mktemp -d)
central_pid=
cleanup() {
  [ -z "$central_pid" ] || kill "$central_pid" 2>/dev/null || true
  rm -rf "$folder"
}
trap cleanup EXIT

flags=(train --model lenet --recipe niti --backend cpu --dataset synthetic_digits
  --schedule sync_1f1b --epochs 1 --max-batches 20 --batch-size 32 --eval-every 0)

# digest FILE: the weights' digest in a run's summary.
digest() {
  sed -n 's/.*"weights_sha256": *"\([0-9a-f]*\)".*/\1/p' "$1"
}

say "train here and on an emulated ${QEMU_CPU:=cortex-a76}"
address=127.0.0.1:$((20000 + RANDOM % 10000))
"$central" "${flags[@]}" --summary "$folder/mixed.json" --local-workers 1 --workers 1 \
  --listen "$address" >"$folder/mixed.log" 2>&1 &
central_pid=$!
QEMU_CPU=$QEMU_CPU qemu-aarch64 "$worker" --central "$address" --name arm \
  >"$folder/worker.log" 2>&1 || { cat "$folder/worker.log" >&2; die "the ARM worker failed (above)"; }
wait "$central_pid" || { cat "$folder/mixed.log" >&2; die "the mixed run failed (above)"; }
central_pid=

say "train here alone"
"$central" "${flags[@]}" --summary "$folder/alone.json" --local-workers 2 >"$folder/alone.log" 2>&1 ||
  { cat "$folder/alone.log" >&2; die "the run failed (above)"; }

mixed=$(digest "$folder/mixed.json")
alone=$(digest "$folder/alone.json")
[ -n "$mixed" ] || die "the mixed run has no digest"
[ "$mixed" = "$alone" ] || die "weights differ: $mixed with ARM, $alone without"
say "the same weights with ARM and without: $mixed"
