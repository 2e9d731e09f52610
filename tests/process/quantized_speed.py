#!/usr/bin/env python3
"""Time of one sample through a model in FP32 and in integers: ONNX Runtime on our exported files, and our own kernels.

    tests/process/quantized_speed.py BINARIES CHECKPOINTS FOLDER --npm FOLDER [--figure FILE --row NAME]

CHECKPOINTS: of a model that was trained in FP32 on CIFAR-10, whose files lie in FOLDER. All on one thread, a sample at a time. The engine:
the least of 300 runs, so that other work on the machine does not count; QDQ also with its option session.qdqisint8allowed, without which
it computes convolutions of int8 codes in floats on x86. Ours: the sum of the nodes' medians that `quantize --report` gives.
"""

import argparse
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import other_engines  # noqa: E402

# Arguments: folder of npm, model, whether int8 is allowed. Prints the least microseconds of a run.
TIME = """
const [folder, model, allowed] = process.argv.slice(1);
const ort = require(require.resolve('onnxruntime-node', {paths: [folder]}));
(async () => {
  const extra = allowed === '1' ? {session: {qdqisint8allowed: '1'}} : {};
  const session = await ort.InferenceSession.create(model, {intraOpNumThreads: 1, interOpNumThreads: 1, extra});
  const feeds = {[session.inputNames[0]]: new ort.Tensor('float32', Float32Array.from({length: 3072}, (_, i) => Math.sin(i)), [1, 3, 32, 32])};
  let least = Infinity;
  for (let i = 0; i < 300; ++i) {
    const begin = process.hrtime.bigint();
    await session.run(feeds);
    least = Math.min(least, Number(process.hrtime.bigint() - begin) / 1e3);
  }
  console.log(least);
  process.exit(0);
})().catch(error => { console.error(String(error).split('\\n')[0]); process.exit(1); });
"""


def engine_us(npm, model, allowed=False):
    return float(subprocess.run(["node", "-e", TIME, npm, model, str(int(allowed))], check=True, capture_output=True, text=True).stdout)


def measure(central, checkpoints, folder, npm):
    """FP32, QDQ and QDQ with int8 allowed by the engine; FP32 and integers by us."""
    with tempfile.TemporaryDirectory() as scratch:
        quantized, fp32, qdq, report = (f"{scratch}/{name}" for name in ("model.q8", "fp32.onnx", "qdq.onnx", "report.json"))
        for words in (["quantize", "--checkpoint-dir", checkpoints, "--data-dir", folder, "--out", quantized, "--report", report],
                      ["export", "--checkpoint-dir", checkpoints, "--onnx", fp32], ["export", "--quantized", quantized, "--onnx", qdq]):
            subprocess.run([central, *words], check=True, stdout=subprocess.DEVNULL)
        layers = json.loads(pathlib.Path(report).read_text(encoding="utf-8"))["layers"]
        ours = [1000 * sum(layer.get(key) or 0 for layer in layers) for key in ("fp32_ms", "ms")]
        return [engine_us(npm, fp32), engine_us(npm, qdq), engine_us(npm, qdq, True), *ours]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("checkpoints", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--npm", required=True, help=f"folder with ONNX Runtime: {other_engines.INSTALL}")
    parser.add_argument("--figure", type=pathlib.Path, help="deploy/figures/qdq.json")
    parser.add_argument("--row", help="what the row calls the model")
    arguments = parser.parse_args()
    engine = other_engines.engines(arguments.npm)[1]
    if engine.missing():
        print(engine.missing())
        return 2
    times = measure(arguments.binaries / "runnel-central", arguments.checkpoints, arguments.folder, str(pathlib.Path(arguments.npm).resolve()))
    row = [arguments.row or arguments.checkpoints.name, *(round(time) for time in times)]
    print("model; ONNX Runtime FP32, QDQ, QDQ with int8 allowed; ours FP32, integers (us a sample):", *row)
    if arguments.figure:
        figure = json.loads(arguments.figure.read_text(encoding="utf-8"))
        table = figure["tables"][1]
        table["rows"] = [one for one in table["rows"] if one[0] != row[0]] + [row]
        figure["date"] = datetime.date.today().isoformat()
        arguments.figure.write_text(json.dumps(figure, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
