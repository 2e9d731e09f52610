#!/usr/bin/env python3
"""Whether plans of one host come true: throughput of the plan and of the even cut, predicted and trained, by local workers.

    tests/process/local_plans.py [--models vgg11,lenet,mobilenet_v2] [--workers 1,2,3,4] [--repeats 3] [--seconds 20] [--data DIR]
                                 [--bin DIR] [--out DIR] [--limit 0.15]

Each run has an empty state folder, so that each measures its devices anew, and is uncompressed. The plan that a run makes says
what it will train with, and the even cut beside it; a second run trains the even cut. One worker has no plan and no prediction:
its row is there to compare with. Runs last about --seconds each. The machine
must have nothing else to do: the share of the processors that others took while a run trained is in the table.
Writes OUT/runs.json (what was run is not run again) and prints a table. Exit code 1 where a median is further off than --limit.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATASETS = {"vgg11": "cifar10", "mobilenet_v2": "cifar10", "lenet": "mnist"}
# Samples a second on a server's core, roughly: how many mini-batches a run of --seconds has.
RATES = {"vgg11": 300, "mobilenet_v2": 2000, "lenet": 15000}
BATCH = 64
PROMISE = re.compile(r"policy runnel predicts (\d+) samples/s; an even cut without compression \(--quick\) (\d+)")


def busy_seconds():
    """Processor seconds of the whole machine, idle and waiting for disks aside."""
    fields = [int(field) for field in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    times = os.times()
    return times.children_user + times.children_system


def data_folder(data, model, out):
    """The data set's folder; archives are unpacked once."""
    name = DATASETS[model]
    source = pathlib.Path(data) / name
    archives = sorted(source.glob("*.xz"))
    if not archives:
        return source
    target = out / name
    target.mkdir(parents=True, exist_ok=True)
    for archive in archives:
        file = target / archive.stem
        if not file.exists():
            part = target / (archive.stem + ".part")
            with open(part, "wb") as unpacked:
                subprocess.run(["xz", "-dc", archive], stdout=unpacked, check=True)
            part.rename(file)
    return target


def train(options, model, folder, flags):
    batches = max(40, round(options.seconds * RATES[model] / BATCH))
    with tempfile.TemporaryDirectory() as home:
        summary = pathlib.Path(home) / "summary.json"
        command = [options.bin / "runnel-central", "train", "--model", model, "--dataset", DATASETS[model], "--data-dir", folder,
                   "--batch-size", str(BATCH), "--epochs", "1000", "--max-batches", str(batches), "--eval-every", "-1", "--replan", "off",
                   "--summary", summary, *flags]
        environment = {"HOME": home, "PATH": "/usr/bin:/bin", "NO_COLOR": "1", "RUNNEL_RUNTIME_DIR": home + "/run"}
        busy, own = busy_seconds(), own_seconds()
        done = subprocess.run([str(word) for word in command], env=environment, cwd=home, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
        own = own_seconds() - own
        others = busy_seconds() - busy - own
        if done.returncode != 0:
            sys.exit(f"local_plans.py: {' '.join(map(str, command))}\n{done.stdout[-2000:]}")
        result = json.loads(summary.read_text())
    return {"samples_per_s": result["samples_per_s"], "stages": len(result["plan"]["stages"]),
            "others_share": max(0.0, others) / max(own, 1e-9), "log": done.stdout}


def run_pair(options, model, workers, folder):
    """The plan and the even cut, one behind the other; the plan's start predicts both."""
    local = ["--local-workers", str(workers)]
    planned = train(options, model, folder, local)
    if workers == 1:
        planned.pop("log")
        return {"planned": {"predicted": None, **planned}}
    promise = PROMISE.search(planned.pop("log"))
    if promise is None:
        sys.exit(f"local_plans.py: {model}, {workers} workers: the run said nothing of what it predicts")
    even = train(options, model, folder, [*local, "--quick"])
    even.pop("log")
    return {"planned": {"predicted": int(promise[1]), **planned}, "even": {"predicted": int(promise[2]), **even}}


def rows_of(runs, models, workers, repeats):
    rows = []
    for model in models:
        for count in workers:
            own = [runs[key] for key in (f"{model} {count} {i}" for i in range(repeats)) if key in runs]
            for cut in own[0]:
                if own[0][cut]["predicted"] is None:
                    trained = statistics.median(run[cut]["samples_per_s"] for run in own)
                    rows.append([model, count, "one device", None, trained, None, None, max(run[cut]["others_share"] for run in own)])
                    continue
                predicted = statistics.median(run[cut]["predicted"] for run in own)
                trained = statistics.median(run[cut]["samples_per_s"] for run in own)
                worst = max((run[cut]["predicted"] / run[cut]["samples_per_s"] for run in own), key=lambda ratio: max(ratio, 1 / ratio))
                rows.append([model, count, f"{cut}, {own[0][cut]['stages']} stages", predicted, trained, predicted / trained, worst,
                             max(run[cut]["others_share"] for run in own)])
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="vgg11,lenet,mobilenet_v2")
    parser.add_argument("--workers", default="1,2,3,4")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--data", default=str(ROOT / "../shared/data"))
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/local_plans")
    parser.add_argument("--limit", type=float, default=0.15)
    options = parser.parse_args()
    options.bin, options.out = options.bin.resolve(), options.out.resolve()
    models, workers = options.models.split(","), [int(count) for count in options.workers.split(",")]
    unknown = set(models) - set(DATASETS)
    if unknown:
        parser.error(f"--models: {', '.join(sorted(unknown))}: not one of {', '.join(DATASETS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    store = options.out / "runs.json"
    runs = json.loads(store.read_text()) if store.exists() else {}
    folders = {model: data_folder(options.data, model, options.out).resolve() for model in models}
    # By turns, so that a slow quarter of an hour does not hit one configuration alone.
    for i in range(options.repeats):
        for model in models:
            for count in workers:
                key = f"{model} {count} {i}"
                if key not in runs:
                    runs[key] = run_pair(options, model, count, folders[model])
                    store.write_text(json.dumps(runs, indent=1))
                    print(f"{key} done", flush=True)
    rows = rows_of(runs, models, workers, options.repeats)
    print("| model | workers | cut | predicted (samples/s) | trained (samples/s) | ratio of medians | worst ratio | others' share |")
    print("|---|---:|---|---:|---:|---:|---:|---:|")
    for row in rows:
        shown = [cell if isinstance(cell, (str, int)) else "-" if cell is None else f"{cell:.{digits}f}"
                 for cell, digits in zip(row, (0, 0, 0, 0, 0, 2, 2, 2))]
        print("| " + " | ".join(map(str, shown)) + " |")
    off = [row for row in rows if row[5] is not None and max(row[5], 1 / row[5]) > 1 + options.limit]
    for row in off:
        print(f"local_plans.py: {row[0]}, {row[1]} workers, {row[2]}: predicted over trained is {row[5]:.2f}", file=sys.stderr)
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())
