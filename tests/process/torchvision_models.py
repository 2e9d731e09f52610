#!/usr/bin/env python3
"""Models that others made: torchvision's, trained by Runnel and by PyTorch from the same start.

    tests/process/torchvision_models.py BINARIES [MODEL...]

Each is exported, read, trained for 20 steps on three stages, and its weights are read back. One line a model: the largest difference
between the loss of a step here and in PyTorch's own loop, and of that loop in float32 and float64; between the test loss here and
PyTorch's with the weights that came back (relative); the layers between which the model can be cut. Needs Debian's python3-torchvision; ends with 1 if a difference is over
its limit (1e-3 or what rounding does to PyTorch; 1e-5), or a model that should be read is refused.
"""

import os
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
os.environ["RUNNEL_BIN"] = str(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/dev/bin").resolve())
os.environ["NO_COLOR"] = "1"
sys.path.insert(0, str(ROOT / "deploy/python"))
import numpy as np  # noqa: E402
import runnel  # noqa: E402
import torch  # noqa: E402
import torchvision  # noqa: E402
from runnel import programs  # noqa: E402

CLASSES, SIDE, BATCH, STEPS, RATE, MOMENTUM = 4, 64, 16, 20, 0.0003, 0.9
LOSS_LIMIT, OUTPUT_LIMIT = 1e-3, 1e-5
# Name, side of the pictures, samples a step, steps; refused: why.
MODELS = {name: (SIDE, BATCH, STEPS) for name in (
    "resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_small", "squeezenet1_1", "densenet121", "mnasnet0_5",
    "shufflenet_v2_x0_5")}
MODELS["vgg11_bn"] = (224, 2, 3)  # its mean over 7 x 7 is one only there
REFUSED = {"efficientnet_b0": "bernoulli"}


def make(name):
    torch.manual_seed(3)
    options = {"num_classes": CLASSES}
    net = getattr(torchvision.models, name)(weights=None, **options)
    for part in net.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0  # PyTorch draws other masks
    return net


def data(side, count, seed):
    random = np.random.default_rng(seed)
    y = np.arange(count) % CLASSES
    x = random.normal(0, 1, (count, 3, side, side)).astype(np.float32)
    x += (y[:, None, None, None] - 1.5) * 0.3
    return x.astype(np.float32), y


def reference(net, x, y, steps, dtype=torch.float32):
    """The losses of PyTorch's own loop, on one batch again and again."""
    net.to(dtype)
    optimizer = torch.optim.SGD(net.parameters(), RATE, MOMENTUM)
    x, y, losses = torch.from_numpy(x).to(dtype), torch.from_numpy(y), []
    net.train()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return np.array(losses)


def compare(name, side, batch, steps):
    x, y = data(side, batch, 1)
    test = data(side, batch, 2)
    expected = reference(make(name), x, y, steps)
    # Deep narrow networks with batch norm amplify rounding: what that does to PyTorch alone.
    rounding = np.abs(expected - reference(make(name), x, y, steps, torch.float64)).max()
    net = make(name)
    with tempfile.TemporaryDirectory() as folder:
        run = runnel.fit(net, x, y, validation=test, workers=3, epochs=steps, batch_size=batch, lr=RATE, momentum=MOMENTUM,
                         weight_decay=0, rate="constant", warm_up_steps=0, schedule="sync_1f1b", micro_batches=1, quick=True,
                         eval_every=0, progress=False, folder=folder)
        shown = programs.run(["show", f"onnx:{folder}/module.onnx"])
    # A row has the mean since the one before.
    rows = [row for row in run.history if row.get("loss") is not None]
    begins = [0, *(row["step"] for row in rows)]
    ours = np.array([row["loss"] for row in rows])
    expected = np.array([expected[begin:row["step"]].mean() for begin, row in zip(begins, rows)])
    with torch.no_grad():
        loss = float(torch.nn.functional.cross_entropy(net.eval()(torch.from_numpy(test[0])), torch.from_numpy(test[1])))
    output = abs(run.history[-1]["test_loss"] - loss) / abs(loss)
    return np.abs(ours - expected).max(), rounding, output, shown.count('"ops"')


def main():
    failed = False
    print("model, largest difference of a step's loss, PyTorch's own between float32 and float64, relative difference of the test "
          "loss, layers")
    for name in sys.argv[2:] or [*MODELS, *REFUSED]:
        try:
            if name in REFUSED:
                runnel.fit(make(name), *data(SIDE, BATCH, 1), progress=False, quick=True)
                print(f"{name}: was to be refused")
                failed = True
                continue
            step, rounding, output, layers = compare(name, *MODELS[name])
            failed |= not (step <= max(LOSS_LIMIT, rounding) and output <= OUTPUT_LIMIT)
            print(f"{name}, {step:.1e}, {rounding:.1e}, {output:.1e}, {layers}", flush=True)
        except runnel.InputError as error:
            print(f"{name}: {str(error)[:300]}", flush=True)
            failed |= REFUSED.get(name, "?").lower() not in str(error).lower()
    sys.exit(failed)


if __name__ == "__main__":
    main()
