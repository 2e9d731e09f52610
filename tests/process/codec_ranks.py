#!/usr/bin/env python3
"""Whether the noise that dry runs measure ranks codecs as the epochs do that they need to a loss (HAR CNN, three stages).

    tests/process/codec_ranks.py --har DIR [--bin DIR] [--out DIR] [--seeds 1,2,3] [--epochs 6] [--figure FILE]

Each run trains over local workers by `sync_1f1b` at a constant rate with one pair of codecs, and measures the noise early and once
again when the loss has halved. Epochs are those to the test loss that `identity` has after a third of the run, interpolated between
evaluations; a run that never has it counts one more than its epochs. What is in --out is not run again. --figure: the result file
for FIGURES.md to write, which has the rank correlation.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess

PAIRS = [("identity", "identity"), ("eden:4", "eden:4"), ("eden:3", "eden:3"), ("eden:2", "eden:2"), ("hadamard:3", "hadamard:3"),
         ("hadamard:2", "hadamard:2"), ("tile:4", "tile:4"), ("tile:3", "tile:3"), ("tile:2", "tile:2"), ("uniform:4", "identity"),
         ("uniform:2", "identity"), ("mbq:3", "mbq:3"), ("mbq:2", "mbq:2"), ("mx:fp4", "mx:fp4"), ("eden:4", "topk8:0.1"),
         ("lowrank:8", "lowrank:8")]


def run_once(options, pair, seed):
    """Losses of the evaluations, None where the run failed, and the measured noises."""
    name = "-".join([*pair, str(seed)]).replace(":", "_")
    summary, journal = (options.out / (name + end) for end in (".json", ".journal"))
    if not summary.exists():
        journal.unlink(missing_ok=True)
        command = [options.bin / "runnel-central", "train", "--quick", "--model", "har_cnn", "--dataset", "ucihar", "--data-dir",
                   options.har, "--augment", "off", "--local-workers", 3, "--policy", "uniform", "--schedule", "sync_1f1b", "--rate",
                   "constant", "--epochs", options.epochs, "--eval-every", 1, "--seed", seed, "--codec-forward", pair[0],
                   "--codec-backward", pair[1], "--barrier-every", 38, "--measure-noise", 38, "--journal", journal, "--summary",
                   summary]
        with open(options.out / (name + ".log"), "w") as log:
            code = subprocess.run([str(word) for word in command], stdout=log, stderr=log, check=False).returncode
        if code == 1:
            return None, []
        if code != 0:
            raise SystemExit(f"{name}: runnel-central ended with {code}; see {log.name}")
    records = [json.loads(line) for line in journal.read_text().splitlines()]
    noises = [r["added"] for r in records if r.get("record") == "gradient_noise" and "added" in r]
    return [e["loss"] for e in json.loads(summary.read_text())["evaluations"]], noises


def epochs_to(losses, target):
    before = None
    for epoch, loss in enumerate(losses, 1):
        if loss <= target:
            return epoch if before is None else epoch - (target - loss) / (before - loss)
        before = loss
    return len(losses) + 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    parser.add_argument("--har", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/codec_ranks"))
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--figure", type=pathlib.Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    epochs, noises = {pair: [] for pair in PAIRS}, {pair: [] for pair in PAIRS}
    for seed in options.seeds.split(","):
        target = math.nan
        for pair in PAIRS:
            losses, found = run_once(options, pair, seed)
            if pair == PAIRS[0]:
                target = losses[options.epochs // 3 - 1]
            epochs[pair].append(options.epochs + 1 if losses is None else epochs_to(losses, target))
            noises[pair] += found
            print(seed, *pair, f"{epochs[pair][-1]:.2f} epochs", " ".join(f"{100 * n:.1f} %" for n in found), flush=True)
    rows = [[*pair, 100 * statistics.median(noises[pair] or [0]), statistics.mean(epochs[pair]), min(epochs[pair]), max(epochs[pair])]
            for pair in PAIRS]
    rows.sort(key=lambda row: row[2])
    for row in rows:
        print(*row)
    if options.figure is not None:
        figure = json.loads(options.figure.read_text())
        figure["tables"][0]["rows"] = [[round(cell, 3) if isinstance(cell, float) else cell for cell in row] for row in rows]
        options.figure.write_text(json.dumps(figure, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
