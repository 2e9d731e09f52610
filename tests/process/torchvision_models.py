#!/usr/bin/env python3
"""Models that others made, trained by Runnel and by PyTorch from the same start, exported, and run by other engines.

    tests/process/torchvision_models.py BINARIES [MODEL...] [--steps N] [--npm FOLDER] [--figure FILE]

Each model is exported by PyTorch, read, trained on three stages, and exported again. A row has the difference of the first loss and
the largest of any step's to PyTorch's own loop, that of this loop between float32 and float64, and the largest difference of outputs
(relative to the largest output) between `predict` and PyTorch with the weights that came back, OpenCV's DNN, and ONNX Runtime with
the exported file. Cut points: places between layers. A line in front of it has the same of PyTorch's outputs and of ours to PyTorch's
in float64. Needs Debian's python3-torchvision; an engine that is not installed is named and left out. --figure puts the rows into a
file of deploy/figures. Ends with 1 if a difference is over its limit (first loss and outputs 1e-5, later losses 1e-3 or what rounding
does to PyTorch), a model is refused that should be read, or an engine refuses a file.
"""

import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
os.environ["NO_COLOR"] = "1"
sys.path.insert(0, str(ROOT / "deploy/python"))
import numpy as np  # noqa: E402
import other_engines  # noqa: E402
import runnel  # noqa: E402
import torch  # noqa: E402
import torchvision  # noqa: E402
from runnel import programs  # noqa: E402
from torch import nn  # noqa: E402

CLASSES, SIDE, BATCH, RATE, MOMENTUM = 10, 64, 20, 0.0003, 0.9
LOSS_LIMIT, OUTPUT_LIMIT = 1e-3, 1e-5
MODELS = ("residual", "squeezenet1_1", "mobilenet_v3_small", "mnasnet0_5", "mobilenet_v2", "shufflenet_v2_x0_5", "efficientnet_b0",
          "resnet18", "densenet121", "resnet50", "vgg11_bn")
# Side of the pictures, samples a step, most steps. vgg11_bn's mean over 7 x 7 is one only at 224.
SIZES = {"vgg11_bn": (224, 10, 20)}
# Where steps of RATE amplify PyTorch's own rounding to more than LOSS_LIMIT: one at which its float32 and float64 agree.
RATES = {"mnasnet0_5": 1e-7, **dict.fromkeys(("mobilenet_v2", "shufflenet_v2_x0_5", "efficientnet_b0", "resnet50"), 1e-6)}
COLUMNS = ("steps", "cut points", "first loss", "loss of a step", "PyTorch's own rounding", "PyTorch",
           *(one.name for one in other_engines.engines(None)))


class Residual(nn.Module):
    """A residual network of a user's own: groups, a leaky ReLU, a mean as a pool, shortcuts with and without a convolution."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 5, 2, 2), nn.BatchNorm2d(16), nn.LeakyReLU(0.1), nn.MaxPool2d(2))
        self.same = self._block(16, 16, 1)
        self.down = self._block(16, 32, 2)
        self.shortcut = nn.Conv2d(16, 32, 1, 2)
        self.end = nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.Sigmoid(), nn.Linear(64, CLASSES))

    @staticmethod
    def _block(inputs, outputs, stride):
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.Hardswish(),
                             nn.Conv2d(outputs, outputs, 3, 1, 1, groups=4, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        x = self.stem(x)
        x = torch.relu(self.same(x) + x)
        return self.end(torch.relu(self.down(x) + self.shortcut(x)))


def make(name):
    torch.manual_seed(3)
    net = Residual() if name == "residual" else getattr(torchvision.models, name)(weights=None, num_classes=CLASSES)
    for part in net.modules():
        # PyTorch draws other masks, and leaves out other blocks.
        if isinstance(part, (nn.Dropout, torchvision.ops.StochasticDepth)):
            part.p = 0.0
    return net


def data(side, count, seed):
    random = np.random.default_rng(seed)
    y = np.arange(count) % CLASSES
    x = random.normal(0, 1, (count, 3, side, side)).astype(np.float32)
    x += (y[:, None, None, None] - (CLASSES - 1) / 2) * 0.1
    return x.astype(np.float32), y


def reference(net, x, y, steps, rate, dtype=torch.float32):
    """The losses of PyTorch's own loop, on one batch again and again."""
    net.to(dtype)
    optimizer = torch.optim.SGD(net.parameters(), rate, MOMENTUM)
    x, y, losses = torch.from_numpy(x).to(dtype), torch.from_numpy(y), []
    net.train()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return np.array(losses)


def difference(outputs, expected):
    return float(np.abs(outputs - expected).max() / np.abs(expected).max())


def compare_losses(history, expected, exact):
    """The difference of the first loss to `expected` and the largest of any step, and that of `expected` to `exact`."""
    # A row has the mean since the one before.
    rows = [row for row in history if row.get("loss") is not None]
    begins = [0, *(row["step"] for row in rows)]
    ours = np.array([row["loss"] for row in rows])
    here = np.array([expected[begin:row["step"]].mean() for begin, row in zip(begins, rows)])
    differences = np.abs(ours - here)
    return float(differences[0]), float(differences.max()), float(np.abs(expected - exact).max())


def compare(name, side, batch, steps, engines):
    """The cells of one row, by COLUMNS, and the engines that read the file with a fixed batch only."""
    x, y = data(side, batch, 1)
    test = data(side, batch, 2)
    rate = RATES.get(name, RATE)
    expected = reference(make(name), x, y, steps, rate)
    # Deep narrow networks with batch norm amplify rounding: what that does to PyTorch alone.
    exact = reference(make(name), x, y, steps, rate, torch.float64)
    net = make(name)
    with tempfile.TemporaryDirectory() as folder:
        run = runnel.fit(net, x, y, validation=test, workers=3, epochs=steps, batch_size=batch, lr=rate, momentum=MOMENTUM,
                         weight_decay=0, rate="constant", warm_up_steps=0, schedule="sync_1f1b", micro_batches=1, quick=True,
                         eval_every=0, barrier_every=1, progress=False, folder=f"{folder}/run")
        cells = {"steps": steps, **dict(zip(COLUMNS[2:5], compare_losses(run.history, expected, exact)))}
        # programs.run keeps the last lines alone.
        shown = subprocess.check_output([programs.find("runnel-central"), "show", f"onnx:{folder}/run/module.onnx"], text=True)
        file = f"{folder}/exported.onnx"
        cells["cut points"] = shown.count('"ops"') - 1
        programs.run(["export", "--checkpoint-dir", f"{folder}/run/checkpoints", "--onnx", file])
        ours = run.predict(test[0])
        with torch.no_grad():
            theirs = net.eval()(torch.from_numpy(test[0])).numpy()
            exact_outputs = net.double()(torch.from_numpy(test[0]).double()).numpy()
        cells["PyTorch"] = difference(theirs, ours)
        print(f"{name}: outputs to PyTorch's in float64: PyTorch {difference(theirs, exact_outputs):.1e}, "
              f"ours {difference(ours, exact_outputs):.1e}", flush=True)
        fixed = []
        for engine in engines:
            try:
                outputs, as_it_is = engine.outputs(file, test[0])
                cells[engine.name] = difference(outputs, ours)
                fixed += [] if as_it_is else [engine.name]
            except other_engines.EngineError as error:
                print(f"{name}: {engine.name}: {error}", flush=True)
                cells[engine.name] = "refused"
    return cells, fixed


def is_over_limit(cells):
    first, loss, rounding, *outputs = [cells[name] for name in COLUMNS[2:] if name in cells]
    losses_fit = first <= OUTPUT_LIMIT and loss <= max(LOSS_LIMIT, rounding)
    return not losses_fit or not all(one != "refused" and one <= OUTPUT_LIMIT for one in outputs)


def write_figure(path, name, cells, fixed, reason, engines):
    """Puts one model's row into the file: of those that are read, or with the reason of those that are refused."""
    figure = json.loads(path.read_text(encoding="utf-8"))
    if len(figure["tables"]) == 1:
        figure["tables"].append({"caption": "Models that are refused", "columns": [{"name": "model"}, {"name": "reason"}], "rows": []})
    for table in figure["tables"]:
        table["rows"] = [row for row in table["rows"] if row[0] != f"`{name}`"]
    read, unread = (table["rows"] for table in figure["tables"])
    if cells:
        values = [float(f"{cell:.1e}") if isinstance(cell, float) else cell for cell in map(cells.get, COLUMNS)]
        opens = {"OpenCV": "-", **{engine.name: "yes" for engine in engines}}["OpenCV"]
        read.append([f"`{name}`", *values, "no" if "OpenCV" in fixed or cells.get("OpenCV") == "refused" else opens])
    else:
        unread.append([f"`{name}`", f"`{reason}`"])
    for rows in (read, unread):
        rows.sort(key=lambda row: MODELS.index(row[0].strip("`")))
    figure["tables"] = [table for table in figure["tables"] if table["rows"]]
    figure["date"] = datetime.date.today().isoformat()
    figure["commit"] = subprocess.check_output(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], text=True).strip()
    figure["notes"] = [f"Engines: PyTorch {torch.__version__}, torchvision {torchvision.__version__}, "
                       + ", ".join(engine.version() for engine in engines) + "."]
    path.write_text(json.dumps(figure, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def installed_engines(npm):
    engines = other_engines.engines(npm)
    for engine in engines:
        if engine.missing():
            print(engine.missing())
    return [engine for engine in engines if not engine.missing()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binaries", type=pathlib.Path, nargs="?", default="build/dev/bin")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--npm", help=f"folder with ONNX Runtime: {other_engines.INSTALL}")
    parser.add_argument("--figure", type=pathlib.Path, help="deploy/figures/onnx_models.json")
    arguments = parser.parse_args()
    os.environ["RUNNEL_BIN"] = str(arguments.binaries.resolve())
    engines = installed_engines(arguments.npm)
    failed = []
    print("model, " + ", ".join(COLUMNS))
    for name in arguments.models or MODELS:
        side, batch, most = SIZES.get(name, (SIDE, BATCH, arguments.steps))
        cells, fixed, reason = {}, [], ""
        try:
            cells, fixed = compare(name, side, batch, min(most, arguments.steps), engines)
            failed += [name] if is_over_limit(cells) else []
            values = [f"{cell:.1e}" if isinstance(cell, float) else str(cell) for cell in map(cells.get, COLUMNS)]
            print(f"{name}, {', '.join(values)}" + "".join(f"; {engine} with a fixed batch" for engine in fixed), flush=True)
        except runnel.InputError as error:
            # All that is not supported is in one line: the first says why.
            reason = str(error).split("not supported: ")[-1].split(";")[0]
            failed.append(name)
            print(f"{name}: {reason}", flush=True)
        if arguments.figure:
            write_figure(arguments.figure, name, cells, fixed, reason, engines)
    if failed:
        print(f"over a limit, or refused: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
