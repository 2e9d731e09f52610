#!/usr/bin/env bash
# Integer training beside FP32 of the same network, at equal epochs: LeNet on MNIST (10 epochs) and, with --vgg, VGG-11 on
# CIFAR-10 (20 epochs, about two hours on two cores, most of them FP32).
#   tests/process/accuracy_int8.sh [--vgg] [--data DIR] [--bin DIR] [--out DIR]
# Exits with 1 if a figure misses its mark; data sets that are not there are skipped with a line that says so.
set -euo pipefail
cd "$(dirname "$0")/../.."

data=../shared/data
bin=build/release/bin
out=build/acceptance
vgg=false
while [ $# -gt 0 ]; do
  [[ $1 != --* || $# -gt 1 ]] || { echo "accuracy_int8.sh: $1 needs a value" >&2; exit 2; }
  case $1 in
    --vgg) vgg=true; shift ;;
    --data) data=$2; shift 2 ;;
    --bin) bin=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    *) echo "accuracy_int8.sh: unknown argument $1 (use --vgg, --data, --bin, --out)" >&2; exit 2 ;;
  esac
done
if [ ! -x "$bin/runnel-central" ]; then
  echo "accuracy_int8.sh: no $bin/runnel-central: build it first (cmake --preset release && cmake --build --preset release)" >&2
  exit 2
fi
mkdir -p "$out"
missed=0

# run NAME FLAGS...: trains, keeps the summary as NAME.json and prints the accuracy of each evaluation.
run() {
  local name=$1
  shift
  "$bin/runnel-central" train --quick --backend cpu --augment off "$@" --summary "$out/$name.json" > "$out/$name.log" 2>&1 ||
    { echo "accuracy_int8.sh: $name failed:" >&2; tail -5 "$out/$name.log" >&2; exit 1; }
  python3 -c 'import json, sys
s = json.load(open(sys.argv[1]))
print("%-18s accuracy %.2f %%  %5.0f s  by evaluation: %s" % (sys.argv[2], 100 * s["accuracy"], s["wall_s"],
      " ".join("%.2f" % (100 * e["accuracy"]) for e in s["evaluations"])))' "$out/$name.json" "$name"
}

# expect WHAT PYTHON-CONDITION: over a(name), the accuracy in percent.
expect() {
  python3 -c 'import json, sys
a = lambda name: 100 * json.load(open(sys.argv[1] + "/" + name + ".json"))["accuracy"]
sys.exit(0 if eval(sys.argv[2]) else 1)' "$out" "$2" || { echo "missed: $1"; missed=1; }
}

if [ -d "$data/mnist" ]; then
  lenet=(--model lenet --dataset mnist --data-dir "$data/mnist" --epochs 10)
  run lenet-fp32 "${lenet[@]}" --local-workers 0 --milestones 3,6
  run lenet-niti "${lenet[@]}" --local-workers 0 --recipe niti --gradient-bits 0:2,3:1,6:0
  run lenet-niti-async "${lenet[@]}" --local-workers 3 --recipe niti --gradient-bits 0:2,3:1,6:0
  expect "LeNet: at most 1.0 points below FP32" 'a("lenet-niti") >= a("lenet-fp32") - 1.0'
  expect "LeNet, 3 stages async: at most 1.0 points below FP32" 'a("lenet-niti-async") >= a("lenet-fp32") - 1.0'
else
  echo "skipped: MNIST is not in $data/mnist"
fi

if $vgg && [ -d "$data/cifar10" ]; then
  mkdir -p "$out/cifar10"
  for file in "$data"/cifar10/*.bin.xz; do
    name=$(basename "$file" .xz)
    [ -s "$out/cifar10/$name" ] || xz -dkc "$file" > "$out/cifar10/$name"
  done
  bits=0:3,8:2,14:1
  vgg11=(--model vgg11 --dataset cifar10 --data-dir "$out/cifar10" --epochs 20)
  run vgg11-niti "${vgg11[@]}" --local-workers 0 --recipe niti --gradient-bits $bits
  run vgg11-niti-async "${vgg11[@]}" --local-workers 3 --recipe niti --gradient-bits $bits
  run vgg11-fp32 "${vgg11[@]}" --local-workers 0 --milestones 15
  expect "VGG-11: 55 %" 'a("vgg11-niti") >= 55'
  expect "VGG-11, 3 stages async: 55 %" 'a("vgg11-niti-async") >= 55'
elif $vgg; then
  echo "skipped: CIFAR-10 is not in $data/cifar10"
fi
exit $missed
