#!/usr/bin/env bash
# How long it takes central to find out what became of a worker on another host, with real processes in network name
# spaces of this script's own.
#   tests/process/cut_off.sh [--bin DIR] [--times N]
# Ways: reset (the worker is killed), swallowed (its network drops every packet from then on, for good),
# pulled (the same for 3 s), roam (the same for 1.5 s). Prints for each what central says and the seconds since the worker
# was last heard. Exit code 77: skipped (no root, or no name spaces here).
set -euo pipefail
cd "$(dirname "$0")/../.."

bin=build/dev/bin
times=1
while [ $# -gt 0 ]; do
  [[ $1 != --* || $# -gt 1 ]] || { echo "cut_off.sh: $1 needs a value" >&2; exit 2; }
  case $1 in
    --bin) bin=$2; shift 2 ;;
    --times) times=$2; shift 2 ;;
    *) echo "cut_off.sh: unknown argument $1" >&2; exit 2 ;;
  esac
done

near=runnel-near-$$
far=runnel-far-$$
out=$(mktemp -d)
pids=()
cleanup() {
  for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
  ip netns del "$near" 2>/dev/null || true
  ip netns del "$far" 2>/dev/null || true
  rm -rf "$out"
}
trap cleanup EXIT

ip netns add "$near" 2>/dev/null || { echo "cut_off.sh: no name spaces here" >&2; exit 77; }
ip netns add "$far"
ip link add near type veth peer name far
ip link set near netns "$near"
ip link set far netns "$far"
ip -n "$near" addr add 10.77.0.1/24 dev near
ip -n "$far" addr add 10.77.0.2/24 dev far
for space in "$near" "$far"; do ip -n "$space" link set lo up; done
ip -n "$near" link set near up
ip -n "$far" link set far up

# Each end sends to a device that there is not: carriers stay up, nobody says anything, every packet is lost.
drop() {
  ip -n "$near" neigh replace 10.77.0.2 lladdr 02:00:00:00:00:01 dev near nud permanent
  ip -n "$far" neigh replace 10.77.0.1 lladdr 02:00:00:00:00:01 dev far nud permanent
}
pass() {
  ip -n "$near" neigh del 10.77.0.2 dev near 2>/dev/null || true
  ip -n "$far" neigh del 10.77.0.1 dev far 2>/dev/null || true
}
# Waits for at most 60 s until a command succeeds.
await() {
  local deadline=$((SECONDS + 60))
  until "$@"; do
    [ "$SECONDS" -lt "$deadline" ] || { cat "$out/log" >&2; return 1; }
    sleep 0.02
  done
}
barriers() { [ "$(grep -c '"record":"barrier"' "$out/journal" 2>/dev/null || true)" -ge "$1" ]; }
listens() { grep -qs -- '--central 10.77.0.1:' "$out/log"; }

run() {
  local way=$1
  rm -f "$out"/journal "$out"/log "$out"/summary
  ip netns exec "$near" "$bin/runnel-central" train --home "$out/home" --insecure-network --listen 10.77.0.1:0 \
    --model lenet --dataset synthetic_digits --quick --eval-every -1 --batch-size 32 --barrier-every 10 \
    --max-batches 150 --schedule sync_1f1b --micro-batches 4 --workers 2 --journal "$out/journal" \
    --summary "$out/summary" >"$out/log" 2>&1 &
  local central=$!
  pids=("$central")
  await listens
  local address
  address=$(grep -o '10\.77\.0\.1:[0-9]*' "$out/log" | head -1)
  ip netns exec "$near" "$bin/runnel-worker" --central "$address" --name near --insecure-network --state-dir '' \
    >"$out/near" 2>&1 &
  pids+=("$!")
  ip netns exec "$far" "$bin/runnel-worker" --central "$address" --name far --insecure-network --state-dir '' \
    >"$out/far" 2>&1 &
  local worker=$!
  pids+=("$worker")
  await barriers 3
  case $way in
    reset) kill -KILL "$worker" ;;
    swallowed) drop ;;
    pulled) drop; sleep 3; pass ;;
    roam) drop; sleep 1.5; pass ;;
  esac
  wait "$central" || { cat "$out/log" >&2; exit 1; }
  for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  pass
  python3 - "$way" "$out/summary" "$out/log" <<'END'
import json, re, sys
way, summary, log = sys.argv[1:]
summary = json.load(open(summary))
said = [line for line in open(log, encoding="utf-8") if re.search("worker far (was lost|was slow|is connected)", line)]
found = ["%.3f" % one["detect_s"] for one in summary["recoveries"]]
print(way, "found out after", ", ".join(found) or "-", "s;", summary["weights_sha256"][:16],
      said[0].split("] ")[-1].strip() if said else "")
END
}

for ((i = 0; i < times; ++i)); do
  for way in reset swallowed pulled roam; do run "$way"; done
done
