#!/usr/bin/env bash
# The lab (deploy/lab) ends clean: after a run, after Ctrl-C, after its own process is killed.
#   lab_test.sh BIN_FOLDER
# Exit code 77: skipped (no root, or no name spaces here).
set -euo pipefail

bin=$1
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
run=$repository/deploy/lab/run.sh
# In the command lines of this test's daemons, and of nobody else's.
tag=labtest$$
scratch=$(mktemp -d)
lab_pid=

cleanup() {
  [ -z "$lab_pid" ] || kill -KILL "$lab_pid" 2>/dev/null || true
  rm -rf "$scratch"
}
trap cleanup EXIT

fail() {
  echo "lab_test: $*" >&2
  for log in "$scratch"/*/*.log "$scratch"/*.err; do
    [ -s "$log" ] && sed "s|^|$(basename "$log"): |" "$log" >&2
  done
  exit 1
}

# Waits for at most 60 s until a command succeeds.
await() {
  local deadline=$((SECONDS + 60))
  until "$@"; do
    [ "$SECONDS" -lt "$deadline" ] || return 1
    sleep 0.1
  done
}

no_process() {
  ! pgrep -f "$tag" > /dev/null
}

groups() {
  find /sys/fs/cgroup -maxdepth 2 -type d -name "runnel-lab-$1" 2>/dev/null
}

# The folder is there only once a name space was.
count_spaces() {
  { find /run/netns -type f 2>/dev/null || true; } | wc -l
}

expect_nothing_left() {
  await no_process || fail "$1: a process is left"
  [ "$(ip -o link | wc -l)" = "$links" ] || fail "$1: a network device is left"
  [ "$(count_spaces)" = "$spaces" ] || fail "$1: a name space is left"
}

python3 -B - "$repository/deploy/lab" <<'END' || exit 77
import sys
sys.path.insert(0, sys.argv[1])
import sandbox
why = sandbox.missing_for_lab()
if why:
    print("lab_test: skipped: the lab", why)
    sys.exit(1)
END

host() {
  printf '{"name": "%s-%s", "profile": "any", "speed": 1, "threads": 1, "cpu_quota": %s, "memory_limit_mb": 0}' \
    "$tag" "$1" "$2"
}
cat > "$scratch/tiny.json" <<END
{"name": "tiny", "about": "a test",
 "training": {"model": "har_cnn", "dataset": "synthetic_har", "batch_size": 16, "micro_batches": 1,
              "schedule": "async_1f1b", "epochs": 200, "steps_per_epoch": 150, "barrier_every": 0},
 "duplex": "full",
 "hosts": [$(host 0 0.5), $(host 1 0.5)],
 "links": [{"from": "*", "to": "*", "down_mbps": 40, "up_mbps": 20, "delay_ms": 0}],
 "profiles": [{"name": "any", "about": "unused", "batch_size": 16, "layer_ms": [1, 1, 1, 1, 1],
               "forward_share": 0.33, "input_gradient_share": 0.33}]}
END
links=$(ip -o link | wc -l)
spaces=$(count_spaces)

# ---- a run to its end
"$run" "$scratch/tiny.json" --bin "$bin" --batches 6 --warm-up 2 --logs "$scratch/whole" \
  --summary "$scratch/summary.json" -- --quick > "$scratch/out" 2> "$scratch/whole.err" || fail "the run failed"
python3 - "$scratch/summary.json" <<'END' || fail "the summary is not what was run"
import json, sys
summary = json.load(open(sys.argv[1]))
assert summary["steps"] == 12, summary["steps"]
assert summary["accuracy"] is None, "nothing was evaluated"
assert len(summary["plan"]["stages"]) == 2
assert summary["lab"]["seconds_per_batch"] > 0
assert summary["timeline"][-1]["batches"] == 12
rows = summary["lab"]["links"]
assert [row["configured_bytes_per_s"] for row in rows] == [5e6, 2.5e6], rows
assert all(0 < row["measured_bytes_per_s"] < 1.5 * row["configured_bytes_per_s"] for row in rows), rows
END
expect_nothing_left "after a run"

# A run of so many batches, once its training has begun.
start() {
  batches=$1
  name=$2
  shift 2
  mkdir -p "$scratch/$name"
  "$run" "$scratch/tiny.json" --bin "$bin" --batches "$batches" --logs "$scratch/$name" "$@" -- --quick \
    > "$scratch/out" 2> "$scratch/$name.err" &
  lab_pid=$!
  # The plan is there: the stages are being prepared, or run already.
  await grep -qs "^stage 0" "$scratch/$name/central.log" || fail "$name: training did not begin"
}

# ---- Ctrl-C
start 20000 interrupted
kill -INT "$lab_pid"
code=0
wait "$lab_pid" || code=$?
[ "$code" = 130 ] || fail "Ctrl-C ended it with $code instead of 130"
expect_nothing_left "after Ctrl-C"
[ -z "$(groups "$lab_pid")" ] || fail "after Ctrl-C: control groups are left"

# ---- a daemon is killed: the others go on, and the summary says who was lost
start 400 daemon --summary "$scratch/daemon.json"
worker=$(pgrep -o -f "runnel-worker .*--name 01-$tag")
kill -KILL "$worker"
wait "$lab_pid" || fail "a lost worker ended the run"
grep -q "worker 01-$tag-1 was lost" "$scratch/daemon/central.log" || fail "a lost worker is not named"
python3 - "$scratch/daemon.json" "01-$tag-1" <<'END' || fail "the summary does not say who was lost"
import json, sys
summary = json.load(open(sys.argv[1]))
assert [recovery["workers"] for recovery in summary["recoveries"]] == [[sys.argv[2]]], summary["recoveries"]
assert len(summary["plan"]["stages"]) == 1
END
expect_nothing_left "after a lost worker"

# ---- the lab's own process is killed: only empty control groups stay, until the next run
start 20000 killed
kill -KILL "$lab_pid"
wait "$lab_pid" 2>/dev/null || true
expect_nothing_left "after SIGKILL"
python3 -B -c "import sys; sys.path.insert(0, '$repository/deploy/lab'); import cpu_quota; cpu_quota.remove_stale()"
[ -z "$(groups "$lab_pid")" ] || fail "after SIGKILL: control groups are left"
lab_pid=
echo "lab_test: passed"
