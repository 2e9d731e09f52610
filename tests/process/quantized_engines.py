#!/usr/bin/env python3
"""Models in integers, exported as QDQ and run by ONNX Runtime: accuracy on a test set beside ours.

    tests/process/quantized_engines.py BINARIES CHECKPOINTS DATASET FOLDER [--npm FOLDER] [--figure FILE --row NAME] [--scheme S...]

CHECKPOINTS: of a model that was trained in FP32 on DATASET (mnist or cifar10), whose files lie in FOLDER. Of each scheme a model.q8 is
made, exported by `runnel-central export --quantized`, and the whole test set goes through `predict --quantized` and the engine. A row
has both accuracies, the share of samples of the same class, and the largest difference of outputs over the largest output. Ends with 1
if the accuracies differ by more than 0.2 points.
"""

import argparse
import datetime
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
import numpy as np  # noqa: E402
import other_engines  # noqa: E402

LIMIT_POINTS, BATCH = 0.2, 500
# As central/data normalises: mean and deviation by channel.
SCALES = {"mnist": ([0.1307], [0.3081]), "cifar10": ([.4914, .4822, .4465], [.247, .243, .261])}


def unzipped(path):
    packed = path.with_name(path.name + ".gz")
    return gzip.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()


def test_set(name, folder):
    """Normalised samples and their labels."""
    if name == "mnist":
        pixels = np.frombuffer(unzipped(folder / "t10k-images-idx3-ubyte")[16:], np.uint8).reshape(-1, 1, 28, 28)
        labels = np.frombuffer(unzipped(folder / "t10k-labels-idx1-ubyte")[8:], np.uint8)
    else:
        rows = np.frombuffer(unzipped(folder / "test_batch.bin"), np.uint8).reshape(-1, 3073)
        pixels, labels = rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0]
    mean, deviation = (np.array(values, np.float32)[:, None, None] for values in SCALES[name])
    return (pixels.astype(np.float32) / 255 - mean) / deviation, labels


def compare(central, checkpoints, folder, scheme, samples, engine):
    """Our outputs and the engine's, on all samples."""
    with tempfile.TemporaryDirectory() as scratch:
        quantized, model, outputs = (f"{scratch}/{name}" for name in ("model.q8", "model.onnx", "ours.npy"))
        for words in (["quantize", "--checkpoint-dir", checkpoints, "--data-dir", folder, "--scheme", scheme, "--out", quantized],
                      ["export", "--quantized", quantized, "--onnx", model],
                      ["predict", "--quantized", quantized, "--data-dir", folder, "--out", outputs]):
            subprocess.run([central, *words], check=True, stdout=subprocess.DEVNULL)
        theirs = [engine.outputs(model, samples[at:at + BATCH])[0] for at in range(0, len(samples), BATCH)]
        return np.load(outputs), np.concatenate(theirs)


def write_figure(path, name, rows, engine):
    figure = json.loads(path.read_text(encoding="utf-8"))
    table = figure["tables"][0]
    table["rows"] = [row for row in table["rows"] if row[0] != name] + [[name, *row] for row in rows]
    figure["date"] = datetime.date.today().isoformat()
    figure["commit"] = subprocess.check_output(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], text=True).strip()
    figure["notes"] = [f"Engine: {engine.version()}."]
    path.write_text(json.dumps(figure, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("checkpoints", type=pathlib.Path)
    parser.add_argument("dataset", choices=SCALES)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--npm", help=f"folder with ONNX Runtime: {other_engines.INSTALL}")
    parser.add_argument("--scheme", action="append", choices=("symmetric", "asymmetric"))
    parser.add_argument("--figure", type=pathlib.Path, help="deploy/figures/qdq.json")
    parser.add_argument("--row", help="what the row calls the model")
    arguments = parser.parse_args()
    engine = other_engines.engines(arguments.npm)[1]
    if engine.missing():
        print(engine.missing())
        return 2
    samples, labels = test_set(arguments.dataset, arguments.folder)
    rows = []
    for scheme in arguments.scheme or ("symmetric", "asymmetric"):
        ours, theirs = compare(arguments.binaries / "runnel-central", arguments.checkpoints, arguments.folder, scheme, samples, engine)
        classes = ours.argmax(1), theirs.argmax(1)
        accuracies = [round(100 * float((one == labels).mean()), 2) for one in classes]
        rows.append([scheme, *accuracies, round(accuracies[1] - accuracies[0], 2), round(100 * float((classes[0] == classes[1]).mean()), 2),
                     float(f"{np.abs(ours - theirs).max() / np.abs(ours).max():.1e}")])
        print(f"{scheme}: ours {accuracies[0]} %, {engine.name} {accuracies[1]} %, same class {rows[-1][4]} %, outputs {rows[-1][5]}",
              flush=True)
    if arguments.figure:
        write_figure(arguments.figure, arguments.row or arguments.checkpoints.name, rows, engine)
    return 1 if any(abs(row[3]) > LIMIT_POINTS for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
