#!/usr/bin/env python3
"""Whether pictures are decoded as fast as they are trained on: the same samples as JPEG files and as an array in memory.

    tests/process/feeding.py BINARIES [--pictures N] [--batches N] [--models light,mobilenet_v2] [--folder DIR] [--figure FILE]

Makes pictures of 400 x 300, of which central keeps a part decoded, and trains on them cut to 224 x 224 with one local worker; then on
the same number of such samples in an NPY file that fits into memory. `light` is one convolution, which needs samples faster than any
network that learns: its row says how many central can feed. Needs Debian's python3-opencv. --figure puts the rows into
deploy/figures/feeding.json.
"""

import argparse
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile

import cv2
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
SIDE, BATCH = 224, 32
LIGHT = {"format": "runnel-model", "version": 1, "name": "light", "input": [3, SIDE, SIDE], "classes": 2, "layers": [
    {"name": "all", "ops": [{"op": "conv", "out": 4, "kernel": 8, "stride": 8}, {"op": "relu"}, {"op": "global_avg_pool"},
                            {"op": "linear", "out": 2, "bias": True}]}]}


def make_pictures(folder, count):
    """JPEG files as cameras write them: slow waves with grain, not noise alone."""
    draws = np.random.default_rng(1)
    for i in range(count):
        waves = cv2.resize(draws.integers(0, 256, (12, 16, 3), dtype=np.uint8), (400, 300), interpolation=cv2.INTER_CUBIC)
        grain = draws.integers(-12, 13, waves.shape)
        home = folder / ("even", "odd")[i % 2]
        home.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(home / f"{i:05d}.jpg"), np.clip(waves + grain, 0, 255).astype(np.uint8), [cv2.IMWRITE_JPEG_QUALITY, 90])


def train(central, model, data, batches, folder):
    """Samples a second, of training alone."""
    summary = folder / "summary.json"
    subprocess.run([central, "train", "--quick", "--model", model, "--data", data, "--local-workers", "1", "--batch-size", str(BATCH),
                    "--micro-batches", "2", "--eval-every", "-1", "--epochs", "1000", "--max-batches", str(batches), "--augment", "off",
                    "--summary", str(summary)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return json.loads(summary.read_text(encoding="utf-8"))["samples_per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binaries", type=pathlib.Path, nargs="?", default="build/dev/bin")
    parser.add_argument("--pictures", type=int, default=4000)
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--models", default="light,mobilenet_v2")
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--figure", type=pathlib.Path)
    arguments = parser.parse_args()
    central = arguments.binaries.resolve() / "runnel-central"
    if not central.exists():
        parser.error(f"{arguments.binaries}: no runnel-central in it; deploy/test.sh builds it")
    rows = []
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = pathlib.Path(name)
        make_pictures(folder / "pictures", arguments.pictures)
        # Fewer samples than central would read from the file one by one.
        samples = min(arguments.pictures, 1500)
        np.save(folder / "x.npy", np.random.default_rng(2).integers(0, 256, (samples, 3, SIDE, SIDE), dtype=np.uint8))
        np.save(folder / "y.npy", np.arange(samples) % 2)
        (folder / "light.json").write_text(json.dumps(LIGHT), encoding="utf-8")
        for model in arguments.models.split(","):
            text = f"json:{folder / 'light.json'}" if model == "light" else model
            files = train(central, text, f"images:{folder / 'pictures'},size={SIDE}", arguments.batches, folder)
            memory = train(central, text, f"npy:{folder / 'x.npy'},{folder / 'y.npy'}", arguments.batches, folder)
            print(f"{model}: {files:.0f} samples/s from JPEG files, {memory:.0f} from an array, ratio {files / memory:.2f}", flush=True)
            rows.append([model, round(files), round(memory), round(files / memory, 2)])
    if arguments.figure:
        figure = json.loads(arguments.figure.read_text(encoding="utf-8"))
        figure["date"] = datetime.date.today().isoformat()
        figure["commit"] = subprocess.check_output(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], text=True).strip()
        figure["tables"][0]["rows"] = rows
        arguments.figure.write_text(json.dumps(figure, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
