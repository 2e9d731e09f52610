#!/usr/bin/env bash
# What copies of the stages' states cost: LeNet over three local workers, without copies and with them, by turns.
#   tests/process/replication_cost.sh [--bin DIR] [--pairs N] [--steps N] [--every N] [FLAGS OF train...]
# --every: --replicate-every of the runs with copies; 0: the default. Links of a rate: --link-mbps 10, as flag of train.
# Prints samples a second of each pair, how often states were copied, and the medians of the ratios.
set -euo pipefail
cd "$(dirname "$0")/../.."

bin=build/release/bin
pairs=5
steps=600
every=0
while [ $# -gt 0 ]; do
  [[ $1 != --* || $# -gt 1 ]] || { echo "replication_cost.sh: $1 needs a value" >&2; exit 2; }
  case $1 in
    --bin) bin=$2; shift 2 ;;
    --pairs) pairs=$2; shift 2 ;;
    --steps) steps=$2; shift 2 ;;
    --every) every=$2; shift 2 ;;
    *) break ;;
  esac
done
if [ ! -x "$bin/runnel-central" ]; then
  echo "replication_cost.sh: no $bin/runnel-central: build it first (cmake --preset release && cmake --build --preset release)" >&2
  exit 2
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# run NAME EVERY FLAGS...
run() {
  local name=$1 every=$2
  shift 2
  "$bin/runnel-central" train --model lenet --quick --local-workers 3 --eval-every -1 --max-batches "$steps" \
    --replicate-every "$every" "$@" --summary "$out/$name.json" >"$out/log" 2>&1 || { cat "$out/log" >&2; exit 1; }
}

for ((i = 0; i < pairs; ++i)); do
  run "without$i" -1 "$@"
  run "with$i" "$every" "$@"
done
python3 - "$out" "$pairs" <<'END'
import json, statistics, sys

def figures(name):
    with open(f"{sys.argv[1]}/{name}.json") as file:
        return json.load(file)

ratios, stalls, digests = [], [], set()
for i in range(int(sys.argv[2])):
    without, copied = figures(f"without{i}"), figures(f"with{i}")
    digests |= {without["weights_sha256"], copied["weights_sha256"]}
    ratios.append(copied["samples_per_s"] / without["samples_per_s"])
    copies = copied["replication"]
    count = max(copies["count"], 1)
    stalls.append(1e3 * copies["stall_s"] / count)
    print(f"without {without['samples_per_s']:7.0f} samples/s   with {copied['samples_per_s']:7.0f} samples/s   ratio {ratios[-1]:.3f}"
          f"   {copies['count']} copies, {copies['skipped']} left out, {copies['bytes'] / count / 1e3:.0f} kB,"
          f" {stalls[-1]:.2f} ms of stall and {1e3 * copies['took_s'] / count:.0f} ms on their way each")
print(f"with over without, median: {statistics.median(ratios):.3f} of the samples a second, {statistics.median(stalls):.2f} ms of stall a copy;"
      f" weights {'equal' if len(digests) == 1 else 'DIFFER'}")
END
