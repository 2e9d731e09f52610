#!/usr/bin/env bash
# What staleness costs and what helps against it: the HAR CNN (UCI-HAR subset) on three stages at equal epochs, sync_1f1b (no
# staleness) beside async_1f1b with the papers' caps N - i and with raised ones, each plain, with FTPipeHD's weight aggregation,
# with look-ahead, and, raised, with a rate that stale stages grow into.
#   tests/process/accuracy_staleness.sh [--epochs 60] [--seeds 1,2,3] [--methods sync,plain,...] [--momentum M] [--data DIR]
#                                       [--bin DIR] [--out DIR]
# What is in --out is not run again. Writes OUT/table.csv (a row a run) and OUT/table.md. A run that diverges is a result too.
set -euo pipefail
cd "$(dirname "$0")/../.."

data=../shared/data
bin=build/release/bin
out=build/accuracy_staleness
epochs=60
seeds=1,2,3
momentum=0.9
methods=sync,plain,aggregate5,ahead50,ahead100,plain-raised,aggregate5-raised,ahead100-raised,ramp50-raised,ramp50+ahead50-raised,ramp50+aggregate5-raised
while [ $# -gt 0 ]; do
  [[ $1 != --* || $# -gt 1 ]] || { echo "accuracy_staleness.sh: $1 needs a value" >&2; exit 2; }
  case $1 in
    --epochs) epochs=$2 ;;
    --seeds) seeds=$2 ;;
    --methods) methods=$2 ;;
    --momentum) momentum=$2 ;;
    --data) data=$2 ;;
    --bin) bin=$2 ;;
    --out) out=$2 ;;
    *) echo "accuracy_staleness.sh: unknown argument $1 (use --epochs, --seeds, --methods, --momentum, --data, --bin, --out)" >&2; exit 2 ;;
  esac
  shift 2
done
script=accuracy_staleness.sh
. tests/process/ucihar_runs.sh
prepare_runs

# How staleness is met: parts joined by + (sync, plain, nag, nadam, adamw, microM, aggregateK, aheadPERCENT,
# rampPERCENT OF THE STEPS), and
# -raised for 10, 6 and 1 micro-batches in flight instead of 3, 2 and 1.
flags_of() {
  local part digits ramp=0 ahead=0 schedule=async_1f1b optimizer=sgd
  for part in $(tr + ' ' <<< "${1%-raised}"); do
    digits=$(tr -dc 0-9 <<< "$part")
    case $part in
      plain) ;;
      sync) schedule=sync_1f1b ;;
      nag | nadam) optimizer=${part}_stale ;;
      adamw) optimizer=adamw ;;
      micro[0-9]*) echo "--micro-batches $digits" ;;
      aggregate[0-9]*) echo "--aggregate-every $digits" ;;
      ahead[0-9]*) ahead=$(awk -v d="$digits" 'BEGIN {print d / 100}') ;;
      ramp[0-9]*) ramp=$((epochs * 38 * digits / 100)) ;;
      *) echo "accuracy_staleness.sh: method $1 is not known" >&2; return 2 ;;
    esac
  done
  [ $schedule = sync_1f1b ] || echo "--look-ahead $ahead --stale-rate-steps $ramp"
  echo "--schedule $schedule --optimizer $optimizer"
  [[ $1 != *-raised ]] || echo "--caps 10,6,1"
}

for seed in ${seeds//,/ }; do
  for method in ${methods//,/ }; do
    # An assignment of its own: in a here-string an unknown name would not end the script.
    words=$(flags_of "$method" | tr '\n' ' ')
    read -r -a flags <<< "$words"
    run_once "$method-$momentum-$epochs-$seed" --momentum "$momentum" --seed "$seed" "${flags[@]}"
  done
done

python3 - "$out" "$epochs" "$momentum" "$seeds" "$methods" << 'PYTHON'
import csv, json, os, statistics, sys

out, epochs, momentum = sys.argv[1], int(sys.argv[2]), sys.argv[3]
seeds, methods = sys.argv[4].split(","), sys.argv[5].split(",")
runs = {(method, seed): json.load(open(os.path.join(out, "%s-%s-%d-%s.json" % (method, momentum, epochs, seed))))
        for method in methods for seed in seeds}
with open(os.path.join(out, "table.csv"), "w", newline="") as file:
    table = csv.writer(file)
    table.writerow(["method", "seed", "epochs", "momentum", "accuracy", "loss", "train_loss", "diverged"])
    for (method, seed), run in runs.items():
        table.writerow([method, seed, epochs, momentum] + [run.get(key, "") for key in ("accuracy", "loss", "train_loss", "diverged")])
lines = ["UCI-HAR subset, simple CNN, three stages, %d epochs, momentum %s, seeds %s" % (epochs, momentum, ", ".join(seeds)), "",
         "| method | test accuracy | paired loss to sync | test loss | training loss |", "|---|---|---|---|---|"]
for method in methods:
    good = [s for s in seeds if runs[method, s].get("accuracy") is not None]
    mean = lambda key, scale=1: statistics.mean(scale * runs[method, s][key] for s in good) if good else float("nan")
    paired = [100 * (runs["sync", s]["accuracy"] - runs[method, s]["accuracy"]) for s in good
              if runs.get(("sync", s), {}).get("accuracy") is not None]
    diverged = "" if len(good) == len(seeds) else " (%d of %d diverged)" % (len(seeds) - len(good), len(seeds))
    lines.append("| %s | %.2f %%%s | %s | %.4f | %.4f |" % (
        method, mean("accuracy", 100), diverged, "%+.2f" % statistics.mean(paired) if paired else "-", mean("loss"), mean("train_loss")))
open(os.path.join(out, "table.md"), "w").write("\n".join(lines) + "\n")
print("\n".join(lines))
PYTHON
