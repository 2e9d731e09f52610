#!/usr/bin/env python3
"""Decoders: torch's own forms read, ours written, and both run by ONNX Runtime.

    tests/process/decoder_models.py BINARIES TEXTS --npm FOLDER [--figure FILE]

TEXTS: folder with WikiText-2 (train.txt, test.txt), of which the beginnings are taken. Each model is trained for a few steps by
`--model onnx:` (transformer_tiny by its name), exported, read back and exported again. A row has the largest difference of outputs over the
largest output: of the file before any step in ONNX Runtime to PyTorch, and of the file that was read back to the first one; and the
difference of `eval`'s loss to that of ONNX Runtime's outputs on the test set. Ends with 1 where one is over 1e-5.
"""

import argparse
import datetime
import json
import lzma
import math
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
import numpy as np  # noqa: E402
import other_engines  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

TOKENS, POSITIONS, FEATURES, HEADS, LIMIT = 256, 128, 64, 4, 1e-5
# Opset, constants folded, and whether the batch is open.
FORMS = {"GPT, one projection": (13, True, False), "GPT, open batch": (13, True, True), "GPT, opset 17": (17, True, False),
         "GPT, for training": (13, False, False), "GPT, three projections": (13, True, True),
         "GPT, GELU by erf": (13, True, False), "encoder layers": (13, True, False), "encoder layers, ReLU, norms behind": (13, True, True),
         "encoder layers, positions first": (17, True, True), "encoder layers, causal": (13, True, False),
         "encoder layers, causal, positions first, for training": (13, False, False), "attention modules": (13, True, True),
         "attention modules, causal, positions first": (13, True, False)}


class Attention(nn.Module):
    """As nanoGPT writes it; `apart`: three projections and a mask that is added, as Hugging Face's."""

    def __init__(self, apart):
        super().__init__()
        self.apart = apart
        self.inner = nn.ModuleList(nn.Linear(FEATURES, FEATURES) for _ in range(3)) if apart else nn.Linear(FEATURES, 3 * FEATURES)
        self.outer = nn.Linear(FEATURES, FEATURES)
        ones = torch.ones(POSITIONS, POSITIONS)
        self.register_buffer("mask", torch.triu(ones * -math.inf, 1) if apart else torch.tril(ones)[None, None])

    def forward(self, x):
        count, places, features = x.size()
        parts = [one(x) for one in self.inner] if self.apart else self.inner(x).split(features, dim=2)
        queries, keys, values = (part.view(count, places, HEADS, features // HEADS).transpose(1, 2) for part in parts)
        scores = queries @ keys.transpose(-2, -1) / math.sqrt(features // HEADS)
        if self.apart:
            scores = scores + self.mask
        else:
            scores = scores.masked_fill(self.mask[:, :, :places, :places] == 0, -math.inf)
        mixed = torch.softmax(scores, -1) @ values
        return self.outer(mixed.transpose(1, 2).contiguous().view(count, places, features))


class StockModules(nn.Module):
    """What torch.nn has: TransformerEncoderLayer, or MultiheadAttention alone; with and without a mask, both orders of the axes."""

    def __init__(self, name):
        super().__init__()
        self.batch_first, self.bare = "positions first" not in name, "attention modules" in name
        self.tokens, self.places = nn.Embedding(TOKENS, FEATURES), nn.Embedding(POSITIONS, FEATURES)
        activation, before = ("relu", False) if "ReLU" in name else ("gelu", True)
        self.parts = nn.ModuleList(
            nn.MultiheadAttention(FEATURES, HEADS, batch_first=self.batch_first) if self.bare else
            nn.TransformerEncoderLayer(FEATURES, HEADS, 4 * FEATURES, 0.0, activation=activation, batch_first=self.batch_first,
                                       norm_first=before) for _ in range(2))
        self.head = nn.Linear(FEATURES, TOKENS)
        causal = torch.triu(torch.full((POSITIONS, POSITIONS), -math.inf), 1)
        self.register_buffer("mask", causal if "causal" in name else None)

    def forward(self, x):
        x = self.tokens(x) + self.places(torch.arange(x.size(1)))
        x = x if self.batch_first else x.transpose(0, 1)
        for part in self.parts:
            x = x + part(x, x, x, attn_mask=self.mask, need_weights=False)[0] if self.bare else part(x, self.mask)
        return self.head(x if self.batch_first else x.transpose(0, 1))


class Decoder(nn.Module):
    def __init__(self, apart, approximate="tanh"):
        super().__init__()
        self.tokens, self.places = nn.Embedding(TOKENS, FEATURES), nn.Embedding(POSITIONS, FEATURES)
        self.norms = nn.ModuleList(nn.LayerNorm(FEATURES) for _ in range(5))
        self.attentions = nn.ModuleList(Attention(apart) for _ in range(2))
        self.hidden = nn.ModuleList(nn.Sequential(nn.Linear(FEATURES, 4 * FEATURES), nn.GELU(approximate=approximate),
                                                  nn.Linear(4 * FEATURES, FEATURES)) for _ in range(2))
        self.head = nn.Linear(FEATURES, TOKENS, bias=False)

    def forward(self, x):
        x = self.tokens(x) + self.places(torch.arange(x.size(1)))
        for at in range(2):
            x = x + self.attentions[at](self.norms[2 * at](x))
            x = x + self.hidden[at](self.norms[2 * at + 1](x))
        return self.head(self.norms[4](x))


def made(name, path):
    """A module, written to the path as its form says."""
    torch.manual_seed(3)
    net = Decoder("three" in name, "none" if "erf" in name else "tanh") if "GPT" in name else StockModules(name)
    opset, folds, is_open = FORMS[name]
    mode = torch.onnx.TrainingMode.EVAL if folds else torch.onnx.TrainingMode.PRESERVE
    torch.onnx.export(net if not folds else net.eval(), torch.zeros(1, POSITIONS, dtype=torch.long), path, opset_version=opset,
                      training=mode, do_constant_folding=folds, input_names=["x"],
                      dynamic_axes={"x": {0: "batch"}} if is_open else None)
    return net.eval()


def texts(folder, to):
    """The beginnings of both texts, and the test's windows with the tokens behind them."""
    for name, size in (("train", 1 << 18), ("test", 1 << 14)):
        packed = folder / f"{name}.txt.xz"
        text = lzma.decompress(packed.read_bytes()) if packed.exists() else (folder / f"{name}.txt").read_bytes()
        (to / f"{name}.txt").write_bytes(text[:size])
    text = np.frombuffer((to / "test.txt").read_bytes(), np.uint8).astype(np.int64)
    count = (len(text) - 1) // POSITIONS
    return text[:count * POSITIONS].reshape(count, -1), text[1:count * POSITIONS + 1].reshape(count, -1)


def loss(outputs, labels):
    logits = torch.from_numpy(np.array(outputs)).reshape(-1, TOKENS)
    return float(nn.functional.cross_entropy(logits.double(), torch.from_numpy(labels).reshape(-1)))


def difference(outputs, expected):
    return float(np.abs(outputs - expected).max() / np.abs(expected).max())


class Runs:
    def __init__(self, binaries, folder, engine):
        self._central, self._folder, self._engine = binaries / "runnel-central", folder, engine

    def central(self, *words):
        done = subprocess.run([self._central, *map(str, words)], capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"})
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())

    def exported(self, model, run, rate, steps):
        """A file of what the model is after so many steps."""
        self.central("train", "--quick", "--model", model, "--dataset", "wikitext2", "--data-dir", self._folder, "--local-workers", 2,
                     "--lr", rate, "--warm-up-steps", 0, "--max-batches", steps, "--batch-size", 16, "--eval-every", 0,
                     "--checkpoint-dir", self._folder / run)
        file = self._folder / f"{run}.onnx"
        self.central("export", "--checkpoint-dir", self._folder / run, "--onnx", file)
        return file

    def loss(self, run):
        summary = self._folder / f"{run}.json"
        self.central("eval", "--checkpoint-dir", self._folder / run, "--summary", summary)
        return json.loads(summary.read_text())["loss"]

    def outputs(self, file, samples):
        return self._engine.outputs(file, samples)[0]


def compare(name, runs, folder, samples, labels):
    """Differences of the row."""
    model, before = "transformer_tiny", "-"
    if name in FORMS:
        net, model = made(name, folder / "torch.onnx"), f"onnx:{folder}/torch.onnx"
        with torch.no_grad():
            before = difference(runs.outputs(runs.exported(model, "start", 1e-30, 1), samples),
                                net(torch.from_numpy(samples)).numpy().reshape(len(samples), -1))
    trained = runs.exported(model, "trained", 0.05, 20)
    outputs = runs.outputs(trained, samples)
    again = runs.outputs(runs.exported(f"onnx:{trained}", "again", 1e-30, 1), samples)
    return before, difference(again, outputs), abs(loss(outputs, labels) - runs.loss("trained"))


def write_figure(path, rows, engine):
    figure = json.loads(path.read_text(encoding="utf-8"))
    figure["tables"][0]["rows"] = rows
    figure["date"] = datetime.date.today().isoformat()
    figure["commit"] = subprocess.check_output(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], text=True).strip()
    figure["notes"] = [f"Engines: PyTorch {torch.__version__}, {engine.version()}."]
    path.write_text(json.dumps(figure, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("texts", type=pathlib.Path)
    parser.add_argument("--npm", required=True, help=f"folder with ONNX Runtime: {other_engines.INSTALL}")
    parser.add_argument("--figure", type=pathlib.Path, help="deploy/figures/onnx_decoders.json")
    arguments = parser.parse_args()
    engine = other_engines.engines(arguments.npm)[1]
    if engine.missing():
        print(engine.missing())
        return 2
    rows, failed = [], False
    for name in ("transformer_tiny", *FORMS):
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            samples, labels = texts(arguments.texts, folder)
            cells = compare(name, Runs(arguments.binaries.resolve(), folder, engine), folder, samples, labels)
        failed = failed or any(cell != "-" and cell > LIMIT for cell in cells)
        rows.append([name, *(cell if cell == "-" else float(f"{cell:.1e}") for cell in cells)])
        print(", ".join(map(str, rows[-1])), flush=True)
    if arguments.figure:
        write_figure(arguments.figure, rows, engine)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
