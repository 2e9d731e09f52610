#!/usr/bin/env bash
# Accuracy figures of FIGURES.md: real data sets, real worker processes. Takes about 20 minutes on two cores.
#   tests/process/acceptance.sh [--data DIR] [--bin DIR] [--out DIR]
# Without augmentation. Exits with 1 if a figure misses its mark; data sets that are not there are skipped with a line that
# says so.
set -euo pipefail
cd "$(dirname "$0")/../.."

data=../shared/data
bin=build/release/bin
out=build/acceptance
while [ $# -gt 0 ]; do
  [[ $1 != --* || $# -gt 1 ]] || { echo "acceptance.sh: $1 needs a value" >&2; exit 2; }
  case $1 in
    --data) data=$2; shift 2 ;;
    --bin) bin=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    *) echo "acceptance.sh: unknown argument $1 (use --data, --bin, --out)" >&2; exit 2 ;;
  esac
done
if [ ! -x "$bin/runnel-central" ]; then
  echo "acceptance.sh: no $bin/runnel-central: build it first (cmake --preset release && cmake --build --preset release)" >&2
  exit 2
fi
mkdir -p "$out"
started=$SECONDS

# run NAME FLAGS...: trains and keeps the summary as NAME.json.
run() {
  local name=$1
  shift
  "$bin/runnel-central" train --quick --augment off --optimizer sgd "$@" --summary "$out/$name.json" > "$out/$name.log" 2>&1 ||
    { echo "acceptance.sh: $name failed:" >&2; tail -5 "$out/$name.log" >&2; exit 1; }
  python3 -c 'import json, sys
s = json.load(open(sys.argv[1]))
print("%-24s accuracy %.2f %%  loss %.4f  %6.0f samples/s  %5.1f s" % (sys.argv[2], 100 * s["accuracy"], s["loss"], s["samples_per_s"], s["wall_s"]))' \
    "$out/$name.json" "$name"
}

if [ -d "$data/mnist" ]; then
  for seed in 1 2 3; do
    mnist=(--model lenet --dataset mnist --data-dir "$data/mnist" --local-workers 3 --schedule async_1f1b --epochs 3
      --seed "$seed" --eval-every 0)
    run "mnist-identity-$seed" "${mnist[@]}"
    run "mnist-mbq4-$seed" "${mnist[@]}" --codec-forward mbq:4 --codec-backward stochastic:8
    run "mnist-mbq2-$seed" "${mnist[@]}" --codec-forward mbq:2 --codec-backward stochastic:8
  done
else
  echo "skipped: MNIST is not in $data/mnist"
fi

if [ -f "$data/ucihar-subset/ucihar-subset.tar.gz" ]; then
  mkdir -p "$out/ucihar"
  [ -n "$(ls -A "$out/ucihar")" ] || tar -xzf "$data/ucihar-subset/ucihar-subset.tar.gz" -C "$out/ucihar"
  folder=$(find "$out/ucihar" -type d -name train -printf '%h\n' | head -1)
  har=(--model har_cnn --dataset ucihar --data-dir "$folder" --epochs 20 --eval-every 5)
  run har-identity "${har[@]}" --local-workers 3
  # Two stages: with a third one the output of fc1 crosses a link, and MBQ's clipping there makes training diverge.
  run har-identity-2 "${har[@]}" --local-workers 2
  run har-mbq4 "${har[@]}" --local-workers 2 --codec-forward mbq:4 --codec-backward stochastic:8
else
  echo "skipped: the UCI-HAR subset is not in $data/ucihar-subset"
fi

if [ -f "$data/cifar10/data_batch_1.bin.xz" ]; then
  mkdir -p "$out/cifar10"
  for file in "$data"/cifar10/*.bin.xz; do
    unpacked=$out/cifar10/$(basename "$file" .xz)
    [ -f "$unpacked" ] || xz -dkc "$file" > "$unpacked"
  done
  cifar=(--model mobilenet_v2 --dataset cifar10 --data-dir "$out/cifar10" --local-workers 3 --epochs 2)
  run cifar-identity "${cifar[@]}"
  run cifar-mbq4 "${cifar[@]}" --codec-forward mbq:4 --codec-backward stochastic:8
else
  echo "skipped: CIFAR-10 is not in $data/cifar10"
fi

python3 - "$out" "$((SECONDS - started))" << 'PYTHON'
import json, os, sys

out, seconds = sys.argv[1], int(sys.argv[2])
missed = []


def accuracy(name):
    return 100 * json.load(open(os.path.join(out, name + ".json")))["accuracy"]


def check(text, good):
    print(("ok      " if good else "MISSED  ") + text)
    if not good:
        missed.append(text)


def check_loss(text, exact, lossy, most):
    """mbq:4 beside identity on as many stages; test sets are small, so it may be better too."""
    loss = accuracy(exact) - accuracy(lossy)
    check("%s: identity %.2f %%, mbq:4 / stochastic:8 %.2f %%: %.2f points less (<= %.1f)"
          % (text, accuracy(exact), accuracy(lossy), loss, most), loss <= most)


if os.path.exists(os.path.join(out, "mnist-mbq2-3.json")):
    runs = {kind: [accuracy("mnist-%s-%d" % (kind, seed)) for seed in (1, 2, 3)] for kind in ("identity", "mbq4", "mbq2")}
    mean = {kind: sum(values) / 3 for kind, values in runs.items()}
    check("MNIST, LeNet, identity: mean %.2f %% (>= 98.7), least %.2f %% (>= 98.4)"
          % (mean["identity"], min(runs["identity"])), mean["identity"] >= 98.7 and min(runs["identity"]) >= 98.4)
    for kind, limit in (("mbq4", 0.4), ("mbq2", 1.0)):
        loss = mean["identity"] - mean[kind]
        check("MNIST, LeNet, %s / stochastic:8: mean %.2f %%, paired loss %.2f points (<= %.1f)"
              % (kind, mean[kind], loss, limit), loss <= limit)
if os.path.exists(os.path.join(out, "har-identity.json")):
    check("UCI-HAR subset (2400/950), HAR CNN, 20 epochs, 3 stages: %.2f %% (> 60, chance 16.7)"
          % accuracy("har-identity"), accuracy("har-identity") > 60)
    check_loss("the same on 2 stages", "har-identity-2", "har-mbq4", 3.0)
if os.path.exists(os.path.join(out, "cifar-identity.json")):
    check("CIFAR-10, MobileNetV2, 2 epochs: %.2f %% (> 20, chance 10)" % accuracy("cifar-identity"),
          accuracy("cifar-identity") > 20)
    check_loss("the same", "cifar-identity", "cifar-mbq4", 5.0)
print("%d s" % seconds)
sys.exit(1 if missed else 0)
PYTHON
