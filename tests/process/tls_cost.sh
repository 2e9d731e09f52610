#!/usr/bin/env bash
# What encryption costs: LeNet over three local workers, with and without certificates, by turns.
#   tests/process/tls_cost.sh [--bin DIR] [--pairs N] [--steps N] [FLAGS OF train...]
# Prints, for each pair, samples a second and processor time a sample of all processes, and the medians of the ratios.
set -euo pipefail
cd "$(dirname "$0")/../.."

bin=build/release/bin
pairs=7
steps=300
while [ $# -gt 0 ]; do
  [[ $1 != --* || $# -gt 1 ]] || { echo "tls_cost.sh: $1 needs a value" >&2; exit 2; }
  case $1 in
    --bin) bin=$2; shift 2 ;;
    --pairs) pairs=$2; shift 2 ;;
    --steps) steps=$2; shift 2 ;;
    *) break ;;
  esac
done
if [ ! -x "$bin/runnel-central" ]; then
  echo "tls_cost.sh: no $bin/runnel-central: build it first (cmake --preset release && cmake --build --preset release)" >&2
  exit 2
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$bin/runnel-central" init --home "$out/home" >/dev/null

# run NAME HOME FLAGS...
run() {
  local name=$1 home=$2
  shift 2
  "$bin/runnel-central" train --home "$home" --model lenet --quick --local-workers 3 --eval-every -1 \
    --max-batches "$steps" "$@" --summary "$out/$name.json" >"$out/log" 2>&1 || { cat "$out/log" >&2; exit 1; }
}

for ((i = 0; i < pairs; ++i)); do
  run "plain$i" "$out/none" "$@"
  run "tls$i" "$out/home" "$@"
done
python3 - "$out" "$pairs" <<'END'
import json, statistics, sys

def figures(name):
    s = json.load(open(f"{sys.argv[1]}/{name}.json"))
    busy = s["central_processor_share"] + sum(stage["processor_share"] for stage in s["stages"])
    return s["weights_sha256"], s["samples_per_s"], 1e6 * busy / s["samples_per_s"]

rates, times, digests = [], [], set()
for i in range(int(sys.argv[2])):
    plain, tls = figures(f"plain{i}"), figures(f"tls{i}")
    digests |= {plain[0], tls[0]}
    rates.append(tls[1] / plain[1])
    times.append(tls[2] / plain[2])
    print(f"plain {plain[1]:7.0f} samples/s {plain[2]:7.1f} us a sample   encrypted {tls[1]:7.0f} samples/s {tls[2]:7.1f} us a sample"
          f"   ratios {rates[-1]:.3f} {times[-1]:.3f}")
print(f"encrypted over plain, median: {statistics.median(rates):.3f} of the samples a second,"
      f" {statistics.median(times):.3f} times the processor time; weights {'equal' if len(digests) == 1 else 'DIFFER'}")
END
