#!/usr/bin/env bash
# AccEPT's table 4 and figure 10 on the UCI-HAR subset: the simple CNN on three stages, trained through each codec.
#   tests/process/accuracy_bits.sh [--epochs 200] [--seeds 1,2,3] [--codecs none,mbq2,...] [--loss 0.4] [--data DIR] [--bin DIR]
#                                  [--out DIR] [-- FLAGS OF runnel-central train]
# One epoch of one run is about 1.3 core-seconds. What is in --out is not run again: an interrupted campaign goes on where it was.
# Writes OUT/table.csv (a row a run), OUT/curves.csv (a row an evaluation) and OUT/table.md. A run that diverges is a result too.
# Each run measures from step 100 on what its codecs add to the gradients' noise (its weights do not depend on that). OUT/noise.csv
# has by codec the mean over seeds and measurements, and the epochs until the loss of an evaluation is at most --loss, the mean over
# seeds, those that never get there counted with all of their epochs. Behind the table: the rank correlation of the two.
set -euo pipefail
cd "$(dirname "$0")/../.."

data=../shared/data
bin=build/release/bin
out=build/accuracy_bits
epochs=200
seeds=1
loss=0.4
codecs=none,mbq2,mbq3,mbq4,mbqc2,mbqc3,mbqc4,uniform2,uniform3,uniform4,amsgrad2,amsgrad3,amsgrad4,adaptive,hadamard2,hadamard3,hadamard4,tile2,tile3,tile4,feedback2,ours
extra=()
while [ $# -gt 0 ]; do
  [[ $1 != --* || $# -gt 1 ]] || { echo "accuracy_bits.sh: $1 needs a value" >&2; exit 2; }
  case $1 in
    --epochs) epochs=$2; shift 2 ;;
    --seeds) seeds=$2; shift 2 ;;
    --codecs) codecs=$2; shift 2 ;;
    --loss) loss=$2; shift 2 ;;
    --data) data=$2; shift 2 ;;
    --bin) bin=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --) shift; extra=("$@"); break ;;
    *) echo "accuracy_bits.sh: unknown argument $1 (use --epochs, --seeds, --codecs, --loss, --data, --bin, --out, --)" >&2; exit 2 ;;
  esac
done
script=accuracy_bits.sh
. tests/process/ucihar_runs.sh
prepare_runs

# The flags of a codec of the table. Backward 8 bits as in the paper, except where the schedule or our codecs say 4.
flags_of() {
  case $1 in
    none) ;;
    mbq[2-8]) echo "--codec-forward mbq:${1#mbq} --codec-backward stochastic:8" ;;
    mbqc[2-8]) echo "--codec-forward mbq_c:${1#mbqc} --codec-backward stochastic:8" ;;
    uniform[2-8]) echo "--codec-forward uniform:${1#uniform} --codec-backward stochastic:8" ;;
    amsgrad[2-8]) echo "--codec-forward amsgrad_mbq:${1#amsgrad} --codec-backward stochastic:8" ;;
    adaptive) echo "--bits accept" ;;
    hadamard[2-8]) echo "--codec-forward hadamard:${1#hadamard} --codec-backward hadamard:4" ;;
    eden[2-8]) echo "--codec-forward eden:${1#eden} --codec-backward eden:${1#eden}" ;;
    aqsgd[2-8]) echo "--codec-forward aqsgd:${1#aqsgd} --codec-backward eden:4" ;;
    auto[2-8]) echo "--codec-forward auto:${1#auto} --codec-backward auto:4" ;;
    mx[468]) echo "--codec-forward mx:fp${1#mx} --codec-backward mx:fp${1#mx}" ;;
    topk) echo "--codec-forward hadamard:4 --codec-backward topk:0.1" ;;
    topk8) echo "--codec-forward hadamard:4 --codec-backward topk8:0.1" ;;
    rank[0-9]*) echo "--codec-forward lowrank:${1#rank} --codec-backward lowrank:${1#rank}" ;;
    tile[2-8]) echo "--codec-forward tile:${1#tile} --codec-backward hadamard:4" ;;
    feedback[2-8]) echo "--codec-forward hadamard:${1#feedback} --codec-backward hadamard_ef:${1#feedback}" ;;
    ours) echo "--codec-forward hadamard --codec-backward hadamard --bits accept" ;;
    caps) echo "--codec-forward hadamard:4 --codec-backward hadamard:4 --caps 5,3,1" ;;
    *) echo "accuracy_bits.sh: codec $1 is not known" >&2; return 2 ;;
  esac
}

# Runs with other flags are other runs.
suffix=$(tr -c '[:alnum:]\n' _ <<< "${extra[*]+_${extra[*]}}")
for seed in ${seeds//,/ }; do
  for codec in ${codecs//,/ }; do
    # An assignment of its own: in a here-string an unknown name would not end the script.
    words=$(flags_of "$codec")
    read -r -a flags <<< "$words"
    run_once "$codec-$epochs-$seed$suffix" --schedule async_1f1b --optimizer sgd --seed "$seed" --eval-every 1 --measure-noise 100 ${flags[@]+"${flags[@]}"} ${extra[@]+"${extra[@]}"}
  done
done

python3 - "$out" "$epochs" "$seeds" "$codecs" "$loss" "$suffix" << 'PYTHON'
import csv, json, math, os, statistics, sys

sys.path.insert(0, "deploy/figures")
from make_figures import rank_correlation

out, epochs, seeds, codecs = sys.argv[1], int(sys.argv[2]), sys.argv[3].split(","), sys.argv[4].split(",")
fixed_loss, suffix = float(sys.argv[5]), sys.argv[6]
PAPER = {"none": 97.47, "mbq2": 94.93, "mbq3": 96.04, "mbq4": 96.79, "uniform2": 80.85, "uniform3": 78.67, "uniform4": 94.30,
         "amsgrad2": 92.84, "amsgrad3": 87.02, "amsgrad4": 93.90}
runs = {}
for codec in codecs:
    for seed in seeds:
        runs[codec, seed] = json.load(open(os.path.join(out, "%s-%d-%s%s.json" % (codec, epochs, seed, suffix))))
with open(os.path.join(out, "table.csv"), "w", newline="") as file, open(os.path.join(out, "curves.csv"), "w", newline="") as curves:
    table, curve = csv.writer(file), csv.writer(curves)
    table.writerow(["codec", "seed", "epochs", "accuracy", "loss", "diverged", "bytes_forward", "bytes_backward"])
    curve.writerow(["codec", "seed", "step", "accuracy", "loss"])
    for (codec, seed), run in runs.items():
        links = run.get("links", [])
        table.writerow([codec, seed, epochs, run.get("accuracy", ""), run.get("loss", ""), run.get("diverged", ""),
                        sum(link["bytes_forward"] for link in links), sum(link["bytes_backward"] for link in links)])
        for at in run.get("evaluations", []):
            curve.writerow([codec, seed, at["step"], at["accuracy"], at["loss"]])
lines = ["UCI-HAR subset (2400 training, 950 test windows), simple CNN, three stages, async_1f1b, %d epochs, seeds %s"
         % (epochs, ", ".join(seeds)), "", "| codec | accuracy | paired loss to none | bytes down | bytes up | the paper, 200 epochs |",
         "|---|---|---|---|---|---|"]
for codec in codecs:
    good = [s for s in seeds if "accuracy" in runs[codec, s]]
    accuracies = [100 * runs[codec, s]["accuracy"] for s in good]
    text = "%.2f %%" % statistics.mean(accuracies) if good else "-"
    if len(good) > 1:
        text += " +- %.2f" % (1.96 * statistics.stdev(accuracies) / math.sqrt(len(good)))
    if len(good) < len(seeds):
        text += " (%d of %d diverged)" % (len(seeds) - len(good), len(seeds))
    paired = [100 * (runs["none", s]["accuracy"] - runs[codec, s]["accuracy"]) for s in good
              if "accuracy" in runs.get(("none", s), {})]
    sizes = [sum(link[key] for link in runs[codec, s]["links"]) for s in good[:1] for key in ("bytes_forward", "bytes_backward")]
    lines.append("| %s | %s | %s | %s | %s | %s |" % (
        codec, text, "%.2f" % statistics.mean(paired) if paired else "-",
        *(("%.1f MB" % (size / 1e6) for size in sizes) if sizes else ("-", "-")), PAPER.get(codec, "-")))


def epochs_to_loss(run):
    """Between two evaluations, one an epoch, along a straight line."""
    before = None
    for epoch, at in enumerate(run.get("evaluations", []), 1):
        if at["loss"] is not None and at["loss"] <= fixed_loss:
            if before is None:
                return float(epoch)
            return epoch - 1 + (before - fixed_loss) / (before - at["loss"])
        before = at["loss"]
    return float(epochs)


def noise_of(codec):
    """The mean; 0 where nothing is lost; None where a run did not measure any."""
    if codec == "none":
        return 0.0
    found = [one["added"] for seed in seeds for one in runs[codec, seed].get("gradient_noise", [])
             if one["added"] is not None and math.isfinite(one["added"])]
    return statistics.mean(found) if found else None


pairs = []
with open(os.path.join(out, "noise.csv"), "w", newline="") as file:
    rows = csv.writer(file)
    rows.writerow(["codec", "added_noise", "epochs_to_loss_%g" % fixed_loss])
    for codec in codecs:
        noise, needed = noise_of(codec), statistics.mean(epochs_to_loss(runs[codec, seed]) for seed in seeds)
        rows.writerow([codec, "" if noise is None else "%.5f" % noise, "%.3f" % needed])
        if noise is not None:
            pairs.append((noise, needed))
found = rank_correlation(pairs)
lines += ["", "Spearman's rank correlation of measured noise and epochs to a loss of %g over %d codecs: %s"
          % (fixed_loss, len(pairs), "%.2f" % found if found is not None else "-")]
open(os.path.join(out, "table.md"), "w").write("\n".join(lines) + "\n")
print("\n".join(lines))
PYTHON
