#!/usr/bin/env python3
"""Time of inference of a model in FP32 and in integers: ONNX Runtime on our exported files, and our own predict.

    tests/process/quantized_speed.py BINARIES CHECKPOINTS FOLDER --npm FOLDER [--figure FILE --row NAME] [--rounds N]

CHECKPOINTS: of a model that was trained in FP32 on CIFAR-10, whose files lie in FOLDER. All on one thread, microseconds a sample. The
engine: the median of its runs in batches of 64 and of 1 (Clip before each quantizing node as `export --quantized` writes it). Ours: what
`predict` takes for 10,000 samples less what it takes for 1,000, over 9,000, so that no start and no reading of training samples counts;
handing samples to the process that computes and writing outputs do. The least of --rounds, taken in turns.
"""

import argparse
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
import other_engines  # noqa: E402

# Arguments: folder of npm, model, batch, runs. Prints the median milliseconds of a run.
TIME = """
const [folder, model, batch, runs] = process.argv.slice(1);
const ort = require(require.resolve('onnxruntime-node', {paths: [folder]}));
(async () => {
  const session = await ort.InferenceSession.create(model, {intraOpNumThreads: 1, interOpNumThreads: 1});
  const values = Float32Array.from({length: batch * 3072}, (_, i) => Math.sin(i));
  const feeds = {[session.inputNames[0]]: new ort.Tensor('float32', values, [Number(batch), 3, 32, 32])};
  const times = [];
  for (let i = -3; i < Number(runs); ++i) {
    const begin = process.hrtime.bigint();
    await session.run(feeds);
    if (i >= 0) times.push(Number(process.hrtime.bigint() - begin) / 1e6);
  }
  times.sort((a, b) => a - b);
  console.log(times[times.length >> 1]);
  process.exit(0);
})().catch(error => { console.error(String(error).split('\\n')[0]); process.exit(1); });
"""
RECORD, FEW, ALL = 3073, 1000, 10_000


def engine_us(folder, model, batch):
    done = subprocess.run(["node", "-e", TIME, folder, model, str(batch), str(20 if batch > 1 else 300)], check=True, capture_output=True,
                          text=True)
    return 1000 * float(done.stdout) / batch


def predict_seconds(central, model, data):
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([central, "predict", *model, "--data-dir", data, "--out", f"{scratch}/o.npy"], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begin


def few_samples(folder, to):
    """The same data set with fewer samples in its test."""
    for file in folder.glob("data_batch_*.bin"):
        (to / file.name).symlink_to(file.resolve())
    (to / "test_batch.bin").write_bytes((folder / "test_batch.bin").read_bytes()[:FEW * RECORD])
    return to


def measure(central, checkpoints, folder, npm, rounds):
    """By way of computing, the least of the rounds."""
    least = {}
    with tempfile.TemporaryDirectory() as scratch:
        quantized, fp32, qdq = (f"{scratch}/{name}" for name in ("model.q8", "fp32.onnx", "qdq.onnx"))
        for words in (["quantize", "--checkpoint-dir", checkpoints, "--data-dir", folder, "--out", quantized],
                      ["export", "--checkpoint-dir", checkpoints, "--onnx", fp32], ["export", "--quantized", quantized, "--onnx", qdq]):
            subprocess.run([central, *words], check=True, stdout=subprocess.DEVNULL)
        (pathlib.Path(scratch) / "few").mkdir()
        few = few_samples(folder, pathlib.Path(scratch) / "few")
        for _ in range(rounds):
            for name, model in (("FP32", ["--checkpoint-dir", checkpoints]), ("integers", ["--quantized", quantized])):
                seconds = predict_seconds(central, model, folder) - predict_seconds(central, model, few)
                least.setdefault(("ours", name), []).append(1e6 * seconds / (ALL - FEW))
            for name, model in (("FP32", fp32), ("integers", qdq)):
                for batch in (64, 1):
                    least.setdefault((batch, name), []).append(engine_us(npm, model, batch))
    return {key: min(values) for key, values in least.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("checkpoints", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--npm", required=True, help=f"folder with ONNX Runtime: {other_engines.INSTALL}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--figure", type=pathlib.Path, help="deploy/figures/qdq.json")
    parser.add_argument("--row", help="what the row calls the model")
    arguments = parser.parse_args()
    engine = other_engines.engines(arguments.npm)[1]
    if engine.missing():
        print(engine.missing())
        return 2
    npm = str(pathlib.Path(arguments.npm).resolve())
    times = measure(arguments.binaries / "runnel-central", arguments.checkpoints, arguments.folder, npm, arguments.rounds)
    name = arguments.row or arguments.checkpoints.name
    row = [name, *(round(times[key], 1) for key in ((64, "FP32"), (64, "integers"), (1, "FP32"), (1, "integers"), ("ours", "FP32"),
                                                     ("ours", "integers")))]
    print("model, ONNX Runtime FP32, QDQ, batch 1 FP32, QDQ, ours FP32, integers (us a sample):", *row)
    if arguments.figure:
        figure = json.loads(arguments.figure.read_text(encoding="utf-8"))
        table = figure["tables"][1]
        table["rows"] = [one for one in table["rows"] if one[0] != name] + [row]
        figure["date"] = datetime.date.today().isoformat()
        arguments.figure.write_text(json.dumps(figure, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
