#!/usr/bin/env python3
"""Processor time of an FP32 forward: our kernels beside ONNX Runtime on the file that we export of the same model.

    tests/process/forward_speed.py BENCHES --npm FOLDER [--models A,B] [--rounds 15] [--label NAME] [--figure FILE]

BENCHES: folder with bench_forward (preset release, or dev with benches). One thread, one sample at a time. Both sides run as processes
of their own and take turns, a few forwards each; a side's time is the median of its forwards, the ratio the median of the rounds' ratios,
ONNX Runtime's time over ours. Processor time of the whole process, so what else runs on the machine counts for little.
"""

import argparse
import datetime
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import other_engines  # noqa: E402

# By the name in the zoo, what the figure calls a model.
MODELS = {"vgg16_bn_imagenet": "VGG-16 with batch norms", "mobilenet_v1_imagenet": "MobileNetV1", "resnet50_imagenet": "ResNet-50"}
RUNS = 4  # forwards of a turn; the first is left out, since the other side's turn emptied the caches
# Arguments: folder of npm, model. Answers a line N with N times in milliseconds.
SERVE = """
const [folder, model] = process.argv.slice(1);
const ort = require(require.resolve('onnxruntime-node', {paths: [folder]}));
const readline = require('readline');
(async () => {
  const session = await ort.InferenceSession.create(model, {intraOpNumThreads: 1, interOpNumThreads: 1});
  const values = Float32Array.from({length: 3 * 224 * 224}, (_, i) => Math.sin(i));
  const feeds = {[session.inputNames[0]]: new ort.Tensor('float32', values, [1, 3, 224, 224])};
  for await (const line of readline.createInterface({input: process.stdin})) {
    const times = [];
    for (let i = 0; i < Number(line); ++i) {
      const before = process.cpuUsage();
      await session.run(feeds);
      const used = process.cpuUsage(before);
      times.push((used.user + used.system) / 1000);
    }
    console.log(times.join(' '));
  }
})().catch(error => { console.error(String(error).split('\\n')[0]); process.exit(1); });
"""


class Side:
    """A process that answers a number of forwards with their times."""

    def __init__(self, words):
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def times(self, runs):
        self.process.stdin.write(f"{runs}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args[0]} ended")
        return [float(word) for word in line.split()]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def measure(bench, model, npm, rounds):
    """Medians of ours and the engine's, and of the ratios of the rounds."""
    with tempfile.TemporaryDirectory() as folder:
        onnx = f"{folder}/model.onnx"
        ours = Side([str(bench), model, "--onnx", onnx])
        ours.times(2)  # the file is written before
        engine = Side(["node", "-e", SERVE, npm, onnx])
        engine.times(2)
        times = {ours: [], engine: []}
        ratios = []
        for _ in range(rounds):
            turn = {side: side.times(RUNS)[1:] for side in (ours, engine)}
            for side, values in turn.items():
                times[side] += values
            ratios.append(statistics.median(turn[engine]) / statistics.median(turn[ours]))
        ours.close()
        engine.close()
        return statistics.median(times[ours]), statistics.median(times[engine]), statistics.median(ratios)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("benches", type=pathlib.Path)
    parser.add_argument("--npm", required=True, help=f"folder with ONNX Runtime: {other_engines.INSTALL}")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--label", default="now", help="what the rows call our side")
    parser.add_argument("--figure", type=pathlib.Path, help="deploy/figures/forward.json")
    arguments = parser.parse_args()
    engine = other_engines.engines(arguments.npm)[1]
    if engine.missing():
        print(engine.missing())
        return 2
    rows = []
    for model in arguments.models.split(","):
        ours, theirs, ratio = measure(arguments.benches / "bench_forward", model, str(pathlib.Path(arguments.npm).resolve()), arguments.rounds)
        rows.append([MODELS.get(model, model), arguments.label, round(ours, 2), round(theirs, 2), round(ratio, 2)])
        print("model; ours (ms), ONNX Runtime (ms), ONNX Runtime over ours:", *rows[-1], flush=True)
    if arguments.figure:
        figure = json.loads(arguments.figure.read_text(encoding="utf-8"))
        table = figure["tables"][0]
        new = {(row[0], row[1]) for row in rows}
        table["rows"] = sorted([row for row in table["rows"] if (row[0], row[1]) not in new] + rows, key=lambda row: row[0])
        figure["date"] = datetime.date.today().isoformat()
        arguments.figure.write_text(json.dumps(figure, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
