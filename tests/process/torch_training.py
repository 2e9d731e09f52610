#!/usr/bin/env python3
"""Training as PyTorch does it: optimizers, clipping, rates and losses on three stages beside PyTorch's own loop, from the same start.

    tests/process/torch_training.py BINARIES [CASE...] [--steps N] [--figure FILE]

A small convolutional network on one batch again and again, so that the order of samples does not matter. A row has the largest
difference of any step's loss, the norm of the weights' difference over that of their way from the start, and how many steps were
clipped. Ends with 1 if a difference of losses is over 1e-4 or one of weights over 1e-3. --figure puts the
rows into a file of deploy/figures.
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
import runnel  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

CLASSES, BATCH, CLIP, LOSS_LIMIT, WEIGHT_LIMIT = 10, 40, 0.1, 1e-4, 1e-3
SGD = {"optimizer": "sgd", "lr": 0.02, "momentum": 0.9, "weight_decay": 0.0001}
ADAMW = {"optimizer": "adamw", "lr": 0.002, "weight_decay": 0.01}
NESTEROV = {**SGD, "optimizer": "nag_stale"}
CASES = {
    "sgd": SGD,
    "adamw": ADAMW,
    "nesterov": NESTEROV,
    "sgd, clipped": {**SGD, "clip_norm": CLIP},
    "adamw, clipped": {**ADAMW, "clip_norm": CLIP},
    "nesterov, clipped": {**NESTEROV, "clip_norm": CLIP},
    "cosine": {**SGD, "rate": "cosine"},
    "one_cycle": {**SGD, "rate": "one_cycle"},
    "label smoothing": {**SGD, "label_smoothing": 0.1},
    "adamw, clipped, cosine, label smoothing": {**ADAMW, "clip_norm": CLIP, "rate": "cosine", "label_smoothing": 0.1},
}


def make():
    torch.manual_seed(5)
    # A bias in front of a batch norm has a gradient of rounding alone, which AdamW makes a whole step of.
    return nn.Sequential(nn.Conv2d(1, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(8, 16, 3, 1, 1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16 * 9, 32), nn.Sigmoid(),
                         nn.Linear(32, CLASSES))


def data(seed):
    random = np.random.default_rng(seed)
    y = np.arange(BATCH) % CLASSES
    x = random.normal(0, 1, (BATCH, 1, 12, 12)) + (y[:, None, None, None] - (CLASSES - 1) / 2) * 0.1
    return x.astype(np.float32), y


def optimizer_of(net, case):
    if case["optimizer"] == "adamw":
        return torch.optim.AdamW(net.parameters(), case["lr"], weight_decay=case["weight_decay"])
    return torch.optim.SGD(net.parameters(), case["lr"], case["momentum"], weight_decay=case["weight_decay"],
                           nesterov=case["optimizer"] == "nag_stale")


def schedule_of(optimizer, case, steps):
    rate = case.get("rate", "constant")
    if rate == "cosine":
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    if rate == "one_cycle":
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, case["lr"], total_steps=steps, cycle_momentum=False)
    return torch.optim.lr_scheduler.ConstantLR(optimizer, 1)


def reference(net, x, y, case, steps):
    """The losses of PyTorch's own loop, and how many of its steps were clipped."""
    optimizer = optimizer_of(net, case)
    schedule = schedule_of(optimizer, case, steps)
    x, y, losses, clipped = torch.from_numpy(x), torch.from_numpy(y), [], 0
    net.train()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y, label_smoothing=case.get("label_smoothing", 0))
        loss.backward()
        if "clip_norm" in case:
            clipped += int(nn.utils.clip_grad_norm_(net.parameters(), case["clip_norm"]) > case["clip_norm"])
        optimizer.step()
        schedule.step()
        losses.append(float(loss))
    return np.array(losses), clipped


def weights(net):
    return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])


def compare(case, steps):
    x, y = data(1)
    torchs, ours, start = make(), make(), weights(make())
    expected, clipped = reference(torchs, x, y, case, steps)
    with tempfile.TemporaryDirectory() as folder:
        run = runnel.fit(ours, x, y, validation=(x, y), workers=3, epochs=steps, batch_size=BATCH,
                         **{"rate": "constant", "warm_up_steps": 0, **case}, schedule="sync_1f1b", micro_batches=1, quick=True,
                         eval_every=0, barrier_every=1, progress=False, folder=f"{folder}/run")
    # A row has the mean since the one before.
    rows = [row for row in run.history if row.get("loss") is not None]
    begins = [0, *(row["step"] for row in rows)]
    means = np.array([expected[begin:row["step"]].mean() for begin, row in zip(begins, rows)])
    losses = float(np.abs(np.array([row["loss"] for row in rows]) - means).max())
    far = float((weights(ours) - weights(torchs)).norm() / (weights(torchs) - start).norm())
    return losses, far, clipped, run.summary.get("clipped_steps", 0)


def write_figure(path, rows):
    figure = json.loads(path.read_text(encoding="utf-8"))
    figure["date"] = datetime.date.today().isoformat()
    figure["commit"] = subprocess.check_output(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], text=True).strip()
    figure["tables"][0]["rows"] = rows
    path.write_text(json.dumps(figure, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binaries", type=pathlib.Path, nargs="?", default="build/dev/bin")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="; ".join(CASES))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--figure", type=pathlib.Path)
    arguments = parser.parse_args()
    os.environ["RUNNEL_BIN"] = str(arguments.binaries.resolve())
    failed, rows = [], []
    for name in arguments.cases or CASES:
        losses, far, clipped, ours_clipped = compare(CASES[name], arguments.steps)
        print(f"{name}: loss {losses:.1e}, weights {far:.1e}, clipped {ours_clipped} (PyTorch {clipped})", flush=True)
        failed += [name] if losses > LOSS_LIMIT or far > WEIGHT_LIMIT or clipped != ours_clipped else []
        rows.append([name, float(f"{losses:.1e}"), float(f"{far:.1e}"), ours_clipped])
    if arguments.figure:
        write_figure(arguments.figure, rows)
    if failed:
        print(f"over a limit: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
