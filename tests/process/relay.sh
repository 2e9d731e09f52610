#!/usr/bin/env bash
# A run whose two workers reach central and not each other, with real processes in network name spaces of this script's
# own: central's host is between them and passes no packet on, as between two phones behind routers of their own.
#   tests/process/relay.sh [--bin DIR]
# Prints what central says of the links, and the digest of the weights beside that of the same run on one host. Exit code
# 77: skipped (no root, or no name spaces here).
set -euo pipefail
cd "$(dirname "$0")/../.."

bin=build/dev/bin
while [ $# -gt 0 ]; do
  [[ $1 != --* || $# -gt 1 ]] || { echo "relay.sh: $1 needs a value" >&2; exit 2; }
  case $1 in
    --bin) bin=$2; shift 2 ;;
    *) echo "relay.sh: unknown argument $1" >&2; exit 2 ;;
  esac
done

hub=runnel-hub-$$
one=runnel-one-$$
two=runnel-two-$$
out=$(mktemp -d)
pids=()
cleanup() {
  for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
  for space in "$hub" "$one" "$two"; do ip netns del "$space" 2>/dev/null || true; done
  rm -rf "$out"
}
trap cleanup EXIT

ip netns add "$hub" 2>/dev/null || { echo "relay.sh: no name spaces here" >&2; exit 77; }
ip -n "$hub" link set lo up
ip -n "$hub" addr add 10.78.0.1/32 dev lo
ip netns exec "$hub" sysctl -qw net.ipv4.ip_forward=0
number=0
for space in "$one" "$two"; do
  number=$((number + 1))
  ip netns add "$space"
  ip link add "hub$number" type veth peer name out
  ip link set "hub$number" netns "$hub"
  ip link set out netns "$space"
  ip -n "$hub" addr add "10.78.$number.1/24" dev "hub$number"
  ip -n "$space" addr add "10.78.$number.2/24" dev out
  ip -n "$hub" link set "hub$number" up
  ip -n "$space" link set lo up
  ip -n "$space" link set out up
  ip -n "$space" route add default via "10.78.$number.1"
done

run=(--model lenet --dataset synthetic_digits --quick --eval-every -1 --batch-size 32 --barrier-every 20
     --max-batches 100 --schedule sync_1f1b --micro-batches 4)
# Waits for at most 60 s until a command succeeds.
await() {
  local deadline=$((SECONDS + 60))
  until "$@"; do
    [ "$SECONDS" -lt "$deadline" ] || { cat "$out/log" >&2; return 1; }
    sleep 0.02
  done
}
listens() { grep -qs -- '--central 10.78.0.1:' "$out/log"; }

ip netns exec "$hub" "$bin/runnel-central" train --home "$out/home" --insecure-network --listen 10.78.0.1:0 "${run[@]}" \
  --workers 2 --summary "$out/relayed" >"$out/log" 2>&1 &
central=$!
pids=("$central")
await listens
address=$(grep -o '10\.78\.0\.1:[0-9]*' "$out/log" | head -1)
for space in "$one" "$two"; do
  ip netns exec "$space" "$bin/runnel-worker" --central "$address" --name "${space#runnel-}" --insecure-network \
    --state-dir '' >"$out/$space" 2>&1 &
  pids+=("$!")
done
wait "$central" || { cat "$out/log" "$out/$one" "$out/$two" >&2; exit 1; }
grep -h 'by way of central' "$out/log"
"$bin/runnel-central" train --home "$out/home" "${run[@]}" --local-workers 3 --summary "$out/direct" >/dev/null 2>&1
python3 - "$out" <<'END'
import json, sys
relayed, direct = (json.load(open(sys.argv[1] + "/" + name)) for name in ("relayed", "direct"))
print("relayed", relayed["weights_sha256"], [link["relayed"] for link in relayed["links"]], "%.1f s" % relayed["wall_s"])
print("direct ", direct["weights_sha256"], [link["relayed"] for link in direct["links"]], "%.1f s" % direct["wall_s"])
sys.exit(relayed["weights_sha256"] != direct["weights_sha256"] or not relayed["links"][1]["relayed"])
END
