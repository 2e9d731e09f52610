#!/usr/bin/env bash
# From a fresh checkout to a trained network: packages, build, a short training with three worker processes at hand.
set -euo pipefail
# shellcheck source=deploy/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<END
usage: deploy/quickstart.sh

Installs the packages that building needs (Debian 12, root or sudo), builds the release preset and
trains LeNet on synthetic digits over three local workers, cut as their measured times say. It can be run again at any time and does
only what is missing. Ends with exit code 0 and the accuracy if the network has learned (accuracy
at least ${least_accuracy}), otherwise with 1 and one line that says what went wrong.

RUNNEL_SKIP_PACKAGES=1   leave packages alone
END
}

# The first "accuracy" of the summary: that of the last evaluation.
accuracy_of() {
  grep -o '"accuracy"[[:space:]]*:[[:space:]]*[0-9.eE+-]*' "$1" | head -n 1 |
    sed 's/.*:[[:space:]]*//'
}

least_accuracy=0.9
case "${1:-}" in
  "") ;;
  -h | --help)
    usage
    exit 0
    ;;
  *)
    usage >&2
    exit 2
    ;;
esac

cd "$repository"
summary=build/quickstart/summary.json
train=(build/release/bin/runnel-central train --model lenet --dataset synthetic_digits
  --local-workers 3 --epochs 3 --summary "$summary")

say "1/4 packages"
bash deploy/packages.sh build

say "2/4 configure (preset release)"
cmake --preset release || die "configuring failed (above)"

jobs=$(compile_jobs)
say "3/4 build runnel-central, runnel-worker and runnel-lab with $jobs compilers (some minutes the first time)"
cmake --build --preset release -j "$jobs" --target runnel-central runnel-worker runnel-lab ||
  die "building failed (above)"

say "4/4 train: ${train[*]}"
mkdir -p "$(dirname "$summary")"
rm -f "$summary"
"${train[@]}" || die "training ended with exit code $? (above)"

[ -s "$summary" ] || die "training wrote no summary to $summary"
accuracy=$(accuracy_of "$summary") || die "no accuracy in $summary"
if ! awk -v a="$accuracy" -v b="$least_accuracy" 'BEGIN { exit !(a + 0 >= b + 0) }'; then
  die "accuracy $accuracy is below $least_accuracy: the network has not learned"
fi

cat <<END
== done: accuracy $accuracy after 3 epochs (all figures: $summary)
Next:
  build/release/bin/runnel-central train --help   other models, data sets, recipes, codecs
  build/release/bin/runnel-worker --help          a worker on another device
  build/release/bin/runnel-lab --help             simulations, profiles of devices, reports
  bash deploy/test.sh                             all tests
  README.md                                       the rest
END
