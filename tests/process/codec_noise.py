#!/usr/bin/env python3
"""What codecs add to the gradients' noise, link by link and direction by direction, beside the table that plans are charged by.

    tests/process/codec_noise.py --data DIR --cifar10 DIR [--bin DIR] [--out DIR] [--models lenet,...] [--figure FILE]

Short trainings over local workers, an even cut, codecs given. From a step on (two moments: early, and when the loss has halved or
more) dry runs measure all codecs together, then those of each direction of each link alone (`gradient_noise` in the journal). What
is in --out is not run again. --figure: the result file for FIGURES.md to write. DIR of --data has `mnist` and `ucihar-subset`,
that of --cifar10 the binary batches.
"""

import argparse
import collections
import json
import lzma
import pathlib
import signal
import statistics
import subprocess
import sys
import tarfile
import time

# Name: data set, batch, steps of one device before the late moment. Small batches cost less: neither the errors nor the noise of
# mini-batches know how many samples there are, and their ratio does not depend on it.
MODELS = {
    "lenet": ("mnist", 32, 400),
    "dense": ("mnist", 32, 400),
    "har_cnn": ("ucihar", 32, 800),
    "resnet8": ("cifar10", 16, 1500),
    "mobilenet_v2": ("cifar10", 128, 200),
    "transformer_tiny": ("wikitext2", 8, 150),
}
# A network of linear layers alone.
DENSE = {"format": "runnel-model", "version": 1, "name": "dense", "input": [1, 28, 28], "classes": 10, "layers": [
    {"name": "fc1", "ops": [{"op": "flatten"}, {"op": "linear", "out": 128}, {"op": "relu"}]},
    {"name": "fc2", "ops": [{"op": "linear", "out": 128}, {"op": "relu"}]},
    {"name": "fc3", "ops": [{"op": "linear", "out": 64}, {"op": "relu"}]},
    {"name": "fc4", "ops": [{"op": "linear", "out": 10}]}]}
WORKERS = 4
EARLY_STEP = 20
MOST_BARRIERS = 60
# Layers that the even cut is behind: name, positions of a channel, those of the network's last global mean, whether what is
# behind it is not linear.
Place = collections.namedtuple("Place", "name own mean bends")
PLACES = {
    "lenet": {1: Place("pool1", 144, 1, True), 3: Place("pool2", 16, 1, True), 4: Place("fc1", 1, 1, False)},
    "dense": {0: Place("fc1", 1, 1, True), 1: Place("fc2", 1, 1, True), 2: Place("fc3", 1, 1, False)},
    "har_cnn": {1: Place("conv2", 124, 1, True), 2: Place("pool", 62, 1, True), 3: Place("fc1", 1, 1, False)},
    # The gradient of a mean is the same at all positions.
    "resnet8": {1: Place("block1", 1024, 64, True), 2: Place("block2", 256, 64, True), 3: Place("block3", 1, 64, False)},
    "mobilenet_v2": {4: Place("block4", 16, 1, True), 9: Place("block9", 4, 1, True), 14: Place("block14", 1, 1, True)},
    "transformer_tiny": {layer: Place(f"block{layer}", 1, 1, True) for layer in range(1, 5)},
}
# Codecs whose errors are alike from one place to the next.
FOLLOWERS = ("mbq", "mbq_c", "uniform", "topk8", "lowrank")
# Forward and back.
PAIRS = [("eden:3", "eden:4"), ("eden:6", "tile:4"), ("hadamard:4", "hadamard:4"), ("eden:2", "eden:2"), ("mx:fp4", "mx:fp4"),
         ("e4m3", "e4m3"), ("tile:3", "stochastic:4")]
# Codecs that follow the tensors of before, early only. The encoders of some need the gradients of what they encode: with those
# nothing is coded back.
FOLLOWING = [("mbq:3", "mbq:4"), ("eden:4", "topk8:0.1"), ("lowrank:8", "lowrank:8"), ("mbq_c:3", "identity"),
             ("uniform:4", "identity")]
# The same with four micro-batches a step, in which errors that are alike add up.
STEPS_OF_FOUR = [("eden:3", "eden:4"), ("mbq:3", "mbq:4")]


def data_folder(name, options):
    if name == "cifar10":
        return options.cifar10
    if name == "mnist":
        return options.data / name
    if name == "wikitext2":
        folder = options.out / name
        folder.mkdir(exist_ok=True)
        for part in ("train", "test"):
            text = folder / (part + ".txt")
            if not text.exists():
                text.write_bytes(lzma.decompress((options.data / name / (part + ".txt.xz")).read_bytes()))
        return folder
    folder = options.out / "ucihar"
    if not folder.is_dir():
        with tarfile.open(options.data / "ucihar-subset" / "ucihar-subset.tar.gz") as archive:
            archive.extractall(folder)
    return next(folder.rglob("train")).parent


def flags_of(options, model):
    dataset, batch, _ = MODELS[model]
    named = model
    if model == "dense":
        (options.out / "dense.json").write_text(json.dumps(DENSE))
        named = f"json:{options.out / 'dense.json'}"
    return ["--quick", "--model", named, "--dataset", dataset, "--data-dir", data_folder(dataset, options), "--batch-size", batch,
            "--eval-every", -1, "--augment", "off"]


def late_weights(options, model):
    """The folder of check-points that late moments begin with."""
    folder = options.out / f"{model}-weights"
    if not folder.exists():
        steps = MODELS[model][2]
        command = [options.bin / "runnel-central", "train", *flags_of(options, model), "--local-workers", 1, "--max-batches", steps,
                   "--barrier-every", 500, "--measure-noise", -1, "--checkpoint-dir", options.out / "part"]
        with open(options.out / f"{model}-weights.log", "w") as log:
            subprocess.run([str(word) for word in command], stdout=log, stderr=log, check=True)
        (options.out / "part").rename(folder)
    return folder


def run_once(options, model, pair, late, steps_of_four):
    """Trains until each way was measured alone. What the run says is in the log beside its journal."""
    moment = "late" if late else "early"
    name = "-".join([model, *pair, moment] + (["of_four"] if steps_of_four else [])).replace(":", "_")
    journal = options.out / (name + ".journal")
    if journal.exists():
        return
    part = options.out / "run.part"
    part.unlink(missing_ok=True)
    command = [options.bin / "runnel-central", "train", *flags_of(options, model), "--local-workers", WORKERS, "--codec-forward",
               pair[0], "--codec-backward", pair[1], "--barrier-every", 5, "--measure-noise", 5 if late else EARLY_STEP,
               "--epochs", 1000, "--journal", part, *(["--init-from", late_weights(options, model)] if late else []),
               *(["--micro-batches", 4] if steps_of_four else [])]
    with open(options.out / (name + ".log"), "w") as log:
        with subprocess.Popen([str(word) for word in command], stdout=log, stderr=log) as central:
            while central.poll() is None and not is_done(part):
                time.sleep(0.1)
            central.send_signal(signal.SIGINT)
            central.wait()
    if is_done(part):
        part.rename(journal)
    print(name, "done" if journal.exists() else "failed", flush=True)


def is_done(journal):
    """Each way was measured alone, or some could not be."""
    if not journal.exists():
        return False
    last, barriers = None, 0
    for line in journal.read_text().splitlines():
        if '"record":"gradient_noise"' in line:
            last = json.loads(line)
        barriers += '"record":"barrier"' in line
    return last is not None and (barriers >= MOST_BARRIERS or all(way["measured"] for way in last["ways"]))


def measurements(out):
    """By moment what was measured of a way alone: dicts of model, place, direction, codec, error, noise."""
    found = []
    for journal in sorted(out.glob("*.journal")):
        model = journal.stem.split("-")[0]
        for line in journal.read_text().splitlines():
            record = json.loads(line)
            if record.get("record") != "gradient_noise" or "way" not in record:
                continue
            way = record["ways"][record["way"]]
            forward = way["forward"]
            if way["by_table"] > 0 and way["layer"] in PLACES[model]:
                found.append({"model": model, "layer": way["layer"], "forward": forward, "codec": way["codecs"].split(" and ")[0],
                              "noise": way["added"], "table": way["by_table"]})
    return found


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def shares(rows):
    return [row["noise"] / row["table"] for row in rows]


def tables_of(found):
    by_place = []
    for model in PLACES:
        for layer, place in PLACES[model].items():
            for forward in (True, False):
                rows = [r for r in found if (r["model"], r["layer"], r["forward"]) == (model, layer, forward)
                        and r["codec"].split(":")[0] not in FOLLOWERS]
                if rows:
                    values = shares(rows)
                    by_place.append([model, place.name, "activations" if forward else "gradients", place.mean if forward else place.own,
                                     ("no" if place.bends else "yes") if forward else "-", len(rows),
                                     statistics.median(values), quantile(values, 0.9), max(values)])
    by_codec = []
    for forward in (True, False):
        for codec in sorted({r["codec"] for r in found if r["forward"] == forward}):
            rows = [r for r in found if r["codec"] == codec and r["forward"] == forward]
            values = shares(rows)
            by_codec.append(["activations" if forward else "gradients", codec, len(rows),
                             100 * statistics.median([r["noise"] for r in rows]), statistics.median(values), quantile(values, 0.9)])
    ratio = [{"name": name, "unit": "x", "decimals": 2} for name in
             ("measured / table: median", "nine tenths are below")]
    return [{"caption": "By place, codecs that take each tensor by itself", "columns": [
        {"name": "model"}, {"name": "behind"}, {"name": "direction"}, {"name": "positions that average", "unit": "count", "decimals": 0},
        {"name": "all is linear behind it"}, {"name": "measurements", "unit": "count", "decimals": 0}, *ratio,
        {"name": "most", "unit": "x", "decimals": 2}], "rows": by_place},
            {"caption": "By codec, all places", "columns": [
                {"name": "direction"}, {"name": "codec"},
                {"name": "measurements", "unit": "count", "decimals": 0}, {"name": "added noise, median", "unit": "%", "decimals": 2},
                *ratio], "rows": by_codec}]


def write_figure(options):
    figure = json.loads(options.figure.read_text())
    figure["tables"] = tables_of(measurements(options.out))  # with the table of the release that was measured
    for one in figure["tables"]:
        one["rows"] = [[round(cell, 4) if isinstance(cell, float) else cell for cell in row] for row in one["rows"]]
    options.figure.write_text(json.dumps(figure, indent=1, ensure_ascii=False) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--cifar10", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/codec_noise"))
    parser.add_argument("--models", default=",".join(MODELS), help="empty: runs nothing")
    parser.add_argument("--figure", type=pathlib.Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for model in filter(None, options.models.split(",")):
        for late in (False, True):
            for pair in PAIRS + ([] if late else FOLLOWING):
                run_once(options, model, pair, late, False)
        for pair in STEPS_OF_FOUR:
            run_once(options, model, pair, False, True)
    if options.figure is not None:
        write_figure(options)


if __name__ == "__main__":
    sys.exit(main())
