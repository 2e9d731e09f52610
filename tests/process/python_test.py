#!/usr/bin/env python3
"""The Python package, with real processes: a torch module trains on workers and has the weights back.

    tests/process/python_test.py BINARIES

Ends with 77 where Debian's python3-torch is not installed.
"""

import concurrent.futures
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARIES = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/dev/bin").resolve()
os.environ["RUNNEL_BIN"] = str(BINARIES)
os.environ["NO_COLOR"] = "1"
sys.path.insert(0, str(ROOT / "deploy/python"))

try:
    import numpy as np
    import torch
except ImportError as error:
    print(f"skipped: {error}; apt install python3-torch")
    sys.exit(77)
import runnel  # noqa: E402
from torch import nn  # noqa: E402

QUIET = {"progress": False, "quick": True}


class Block(nn.Module):
    """A residual block whose shortcut has a convolution."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)

    def forward(self, x):
        main = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(main + self.shortcut(x))


class Gate(nn.Module):
    """Squeeze-and-excite, and two branches joined."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, 2)
        self.down = nn.Conv2d(8, 4, 1)
        self.up = nn.Conv2d(4, 8, 1)
        self.side = nn.Conv2d(8, 3, 1)
        self.end = nn.Linear(11 * 9, 4)

    def forward(self, x):
        x = nn.functional.hardswish(self.stem(x))
        gate = torch.sigmoid(self.up(nn.functional.leaky_relu(self.down(x.mean((2, 3), keepdim=True)), 0.1)))
        x = nn.functional.silu(x * gate)
        x = torch.cat([x, self.side(x)], 1)
        return self.end(torch.flatten(nn.functional.avg_pool2d(x, 2), 1))


class Net(nn.Module):
    """As people write them: a view by the batch's size, a functional pool, parts that are not in the order of their use."""

    def __init__(self, classes=4):
        super().__init__()
        self.end = nn.Linear(16 * 4 * 4, classes)
        self.second = Block(8, 16, 2)
        self.first = nn.Conv2d(1, 8, 3, padding=1)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.first(x)), 2)
        x = self.second(x)
        return self.end(x.view(x.size(0), -1))


class Decoder(nn.Module):
    """As torch.nn has it: positions in front of the batch, GELU by erf, a table of more positions than a sample has."""

    def __init__(self):
        super().__init__()
        self.places = nn.Embedding(12, 16)
        self.tokens = nn.Embedding(10, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0, activation="gelu")
        self.end = nn.Linear(16, 10)
        self.register_buffer("mask", torch.triu(torch.full((8, 8), float("-inf")), 1))

    def forward(self, x):
        x = (self.tokens(x) + self.places(torch.arange(x.size(1)))).transpose(0, 1)
        return self.end(self.block(x, self.mask).transpose(0, 1))


class Projections(nn.Module):
    """Attention by hand: queries, keys and values by a linear module each, which are neither declared nor called in this order."""

    def __init__(self, bias=True):
        super().__init__()
        self.tokens = nn.Embedding(10, 16)
        self.values, self.queries, self.keys = (nn.Linear(16, 16, bias=bias) for _ in range(3))
        self.outer, self.end = nn.Linear(16, 16), nn.Linear(16, 10)
        self.register_buffer("mask", torch.triu(torch.full((8, 8), float("-inf")), 1))

    def forward(self, x):
        x = self.tokens(x)
        values, keys, queries = (part(x).view(len(x), 8, 2, 8).transpose(1, 2) for part in (self.values, self.keys, self.queries))
        shares = torch.softmax(queries @ keys.transpose(-2, -1) / 8 ** 0.5 + self.mask, -1)
        return self.end(x + self.outer((shares @ values).transpose(1, 2).reshape(len(x), 8, 16)))


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.end = nn.Embedding(10, 16), nn.Linear(16, 10)
        self.both = nn.Transformer(16, 2, 1, 1, 32, dropout=0, batch_first=True)

    def forward(self, x):
        x = self.tokens(x)
        return self.end(self.both(x, x))


class Several(nn.Module):
    """Gives its outputs packed into something."""

    def __init__(self, pack):
        super().__init__()
        self.net, self.pack = Net(), pack

    def forward(self, x):
        return self.pack(self.net(x))


def series(count, seed):
    """Whole numbers that rise by the same step, mod 10, and what follows each."""
    random = np.random.default_rng(seed)
    numbers = (random.integers(10, size=(count, 1)) + random.integers(1, 4, size=(count, 1)) * np.arange(9)) % 10
    return numbers[:, :-1], numbers[:, 1:]


def corners(count, seed):
    """A bright square in one of four corners, in noise."""
    random = np.random.default_rng(seed)
    x = random.normal(0, 1, (count, 1, 16, 16)).astype(np.float32)
    y = np.arange(count) % 4
    for sample, corner in zip(x, y):
        sample[0, 8 * (corner // 2):, 8 * (corner % 2):][:8, :8] += 0.8
    return x, y


def accuracy(net, x, y):
    with torch.no_grad():
        return float((net.eval()(torch.as_tensor(x)).argmax(1) == torch.as_tensor(y)).float().mean())


def loss(net, x, y):
    with torch.no_grad():
        return float(nn.functional.cross_entropy(net.eval()(torch.as_tensor(x)), torch.as_tensor(y)))


# Trains for longer than any test.
ENDLESS = """
import sys, runnel, torch
x = torch.rand(4000, 8)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
runnel.fit(net, x, (x[:, 0] > 0.5).long(), workers=2, quick=True, epochs=1000000, folder=sys.argv[1])
"""


class Fit(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(7)

    def test_a_module_has_its_trained_weights_back(self):
        x, y = corners(800, 1)
        test = corners(200, 2)
        weights = {}
        start = Net().state_dict()
        for workers in (0, 3):
            net = Net()
            net.load_state_dict(start)
            run = runnel.fit(net, x, y, validation=test, workers=workers, epochs=3, batch_size=40, lr=0.05, schedule="sync_1f1b",
                             micro_batches=1, **QUIET)
            self.assertGreater(run.accuracy, 0.9)
            self.assertAlmostEqual(run.accuracy, accuracy(net, *test), places=6)
            # Accuracy alone forgives a statistic that did not come back.
            self.assertAlmostEqual(run.history[-1]["test_loss"], loss(net, *test), places=5)
            self.assertTrue(net.end.weight.requires_grad)
            self.assertEqual(run.history[-1]["step"], 60)
            self.assertIsNone(run.folder)
            weights[workers] = run.weights_sha256
        self.assertEqual(weights[0], weights[3])

    def test_gates_and_branches(self):
        x, y = corners(400, 5)
        test = corners(100, 6)
        net = Gate()
        run = runnel.fit(net, x, y, validation=test, workers=2, epochs=4, batch_size=40, lr=0.05, **QUIET)
        self.assertGreater(run.accuracy, 0.8)
        self.assertAlmostEqual(run.accuracy, accuracy(net, *test), places=6)

    def test_tokens(self):
        test = series(100, 8)
        weights = set()
        start = Decoder().state_dict()
        for workers in (0, 2):
            net = Decoder()
            net.load_state_dict(start)
            run = runnel.fit(net, *series(600, 7), validation=test, workers=workers, epochs=6, batch_size=20, optimizer="adamw", lr=0.005,
                             schedule="sync_1f1b", micro_batches=1, **QUIET)
            self.assertGreater(run.accuracy, 0.7)
            with torch.no_grad():
                outputs = net.eval()(torch.as_tensor(test[0])).flatten(0, 1)
            labels = torch.as_tensor(test[1]).flatten()
            self.assertAlmostEqual(run.accuracy, float((outputs.argmax(1) == labels).float().mean()), places=6)
            self.assertAlmostEqual(run.history[-1]["test_loss"], float(nn.functional.cross_entropy(outputs, labels)), places=5)
            self.assertTrue(torch.equal(net.places.weight[8:], start["places.weight"][8:]))
            weights.add(run.weights_sha256)
        self.assertEqual(len(weights), 1)

    def test_queries_keys_and_values_by_a_linear_each(self):
        test = series(100, 8)
        for bias, workers in ((True, 0), (False, 2)):
            net = Projections(bias)
            before = {name: value.clone() for name, value in net.state_dict().items()}
            with tempfile.TemporaryDirectory() as folder:
                run = runnel.fit(net, *series(600, 7), validation=test, workers=workers, epochs=6, batch_size=20, optimizer="adamw",
                                 lr=0.005, folder=folder, **QUIET)
                following = run.predict(test[0])
            with torch.no_grad():
                outputs = net.eval()(torch.as_tensor(test[0])).flatten(0, 1)
            labels = torch.as_tensor(test[1]).flatten()
            np.testing.assert_allclose(following, outputs.reshape(100, 8, 10)[:, -1], rtol=1e-3, atol=1e-4)
            # Queries in the place of keys would give other outputs.
            self.assertAlmostEqual(run.history[-1]["test_loss"], float(nn.functional.cross_entropy(outputs, labels)), places=5)
            for name in ("queries", "keys", "values"):
                self.assertFalse(torch.equal(net.state_dict()[f"{name}.weight"], before[f"{name}.weight"]), name)

    def test_the_start_is_the_module_s_own(self):
        x, y = corners(80, 3)
        net = Net()
        before = {name: value.clone() for name, value in net.state_dict().items()}
        runnel.fit(net, x, y, workers=2, max_batches=1, batch_size=40, lr=1e-12, warm_up_steps=0, **QUIET)
        for name, value in net.state_dict().items():
            if "running" not in name:
                torch.testing.assert_close(value, before[name], rtol=0, atol=1e-6)
        self.assertFalse(torch.equal(net.second.bn1.running_mean, before["second.bn1.running_mean"]))

    def test_a_folder_is_kept(self):
        x, y = corners(80, 3)
        with tempfile.TemporaryDirectory() as folder:
            net = Net()
            run = runnel.fit(net, torch.as_tensor(x), torch.as_tensor(y), workers=0, folder=folder, max_batches=2, **QUIET)
            self.assertTrue((run.folder / "checkpoints").is_dir())
            with torch.no_grad():
                np.testing.assert_allclose(run.predict(x[:9]), net.eval()(torch.as_tensor(x[:9])).numpy(), rtol=1e-4, atol=1e-5)
            with self.assertRaisesRegex(runnel.InputError, "the model was trained on numbers"):
                run.predict(x[:, :, :8])
            with self.assertRaisesRegex(runnel.InputError, "is not empty"):
                runnel.fit(Net(), x, y, folder=folder, **QUIET)

    def test_what_requires_no_gradient_stays(self):
        x, y = corners(80, 3)
        flat = x.reshape(80, -1)
        net = nn.Sequential(nn.Linear(256, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
        net[0].requires_grad_(False)
        before = {name: value.clone() for name, value in net.state_dict().items()}
        runnel.fit(net, flat, y, workers=0, max_batches=2, rewrite="freeze:1", **QUIET)
        for name, value in net.state_dict().items():
            self.assertEqual(torch.equal(value, before[name]), name.startswith("0."), name)
        net[2].requires_grad_(False)
        with self.assertRaisesRegex(runnel.InputError, "2.weight, 2.bias: trained, though requires_grad is False"):
            runnel.fit(net, flat, y, workers=0, max_batches=2, rewrite="freeze:1", **QUIET)

    def test_numbers_of_other_types_are_the_same_samples(self):
        x, y = corners(80, 3)
        start = Net().state_dict()
        digests = set()
        for samples, labels in ((x, y), (np.asfortranarray(x.astype(np.float64)), y.astype(np.int32)), (np.repeat(x, 2, 0)[::2], y.astype(float)),
                                (torch.as_tensor(x), torch.as_tensor(y))):
            net = Net()
            net.load_state_dict(start)
            digests.add(runnel.fit(net, samples, labels, workers=0, max_batches=2, **QUIET).weights_sha256)
        self.assertEqual(len(digests), 1)
        runnel.fit(Net(), torch.as_tensor(x).bfloat16(), y, workers=0, max_batches=1, **QUIET)

    def test_two_at_once(self):
        x, y = corners(80, 3)
        start = Net().state_dict()

        def train(_):
            net = Net()
            net.load_state_dict(start)
            return runnel.fit(net, x, y, workers=0, max_batches=2, **QUIET).weights_sha256
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            self.assertEqual(len(set(pool.map(train, range(4)))), 1)

    @unittest.skipUnless(shutil.which("setpriv"), "needs util-linux")
    def test_a_python_that_is_killed_leaves_no_processes(self):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            child = subprocess.Popen([sys.executable, "-c", ENDLESS, folder + "/run"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                     text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "deploy/python")})
            with child:
                self.assertTrue(any("stage 1: " in line for line in child.stdout), "it has to train first")
                children = pathlib.Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
                [central] = [int(pid) for pid in children if b"train" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()]
                ended = os.pidfd_open(central)
                child.kill()
                has_ended = select.select([ended], [], [], 60)[0] == [ended]
                if not has_ended:
                    signal.pidfd_send_signal(ended, signal.SIGKILL)
                os.close(ended)
                self.assertTrue(has_ended, "central goes on")

    def test_the_example(self):
        done = subprocess.run([sys.executable, ROOT / "deploy/python/example.py"], capture_output=True, text=True, timeout=300,
                              env={**os.environ, "PYTHONPATH": str(ROOT / "deploy/python")}, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"accuracy on the test (9[5-9]|100)\.\d%")


class WrongInput(unittest.TestCase):
    def refused(self, text, net, x, y, **settings):
        before = {name: value.clone() for name, value in net.state_dict().items()}
        with self.assertRaisesRegex(ValueError, text) as caught:
            runnel.fit(net, x, y, **{**QUIET, **settings})
        self.assertEqual(caught.exception.exit_code, 2)
        self.assertEqual(str(caught.exception).count("\n"), 0)
        for name, value in net.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]))

    def test_each_is_one_line(self):
        x, y = corners(80, 4)
        self.refused("80 samples and 40 labels", Net(), x, y[:40])
        self.refused("labels must be all of 0 to 4", Net(), x, np.where(y == 3, 4, y))
        self.refused("one integer a sample", Net(), x, y + 0.5)
        self.refused("there are 4 classes: its last layer must have 4 outputs", Net(classes=7), x, y)
        self.refused("does not compute samples of shape", Net(), x[:, :, :9, :9], y)
        self.refused("optimizer", Net(), x, y, optimizer="none")
        bad = x.copy()
        bad[3] = np.nan
        self.refused("sample 3 holds nan", Net(), bad, y)
        self.refused("no array of numbers", Net(), [], y)
        for wrong in (x + 1j, np.full(80, "a"), 3.0, [[1, 2], [3]], "/no-such.npy"):
            self.refused("x is no array of numbers", Net(), wrong, y)
        self.refused("y.argmax", Net(), x, np.eye(4)[y])
        self.refused("y.reshape", Net(), x, y[:, None])
        self.refused("validation is a pair", Net(), x, y, validation=x)
        self.refused("validation: labels are 4 to 7, those of the training 0 to 3", Net(), x, y, validation=(x, y + 4))
        for name in ("log", "summary", "checkpoint_dir", "model", "local_workers"):
            self.refused(f"{name} is not for fit: ", Net(), x, y, **{name: 1})
        self.refused("folder /proc/none", Net(), x, y, folder="/proc/none")
        self.refused("cluster is a str, not a runnel.Cluster", Net(), x, y, cluster="127.0.0.1:7000")
        with self.assertRaisesRegex(runnel.InputError, "address 127.0.0.1 is not HOST:PORT"):
            runnel.Cluster("127.0.0.1")
        with self.assertRaisesRegex(runnel.InputError, "a str, not a torch.nn.Module"):
            runnel.fit("net", x, y, **QUIET)

    def test_modules_that_cannot_be_trained(self):
        x, y = corners(80, 4)
        shared = nn.Linear(256, 256)
        self.refused("computes twice", nn.Sequential(nn.Flatten(), shared, nn.ReLU(), shared, nn.Linear(256, 4)), x, y)
        several = nn.Sequential(nn.Flatten(), nn.GRU(256, 4), nn.PReLU(), nn.GroupNorm(2, 4))
        self.refused(r"1 \(GRU\), 2 \(PReLU\), 3 \(GroupNorm\) cannot", several, x, y)
        self.refused("remove_weight_norm", nn.Sequential(nn.Flatten(), nn.utils.weight_norm(nn.Linear(256, 4))), x, y)
        part = nn.Sequential(nn.Flatten(), nn.Linear(256, 8), nn.Linear(8, 4))
        part[1].weight.requires_grad_(False)
        self.refused("1.weight: requires_grad is False, and fit would train them", part, x, y)
        still = nn.Sequential(nn.Flatten(), *(nn.Linear(256, 256) for _ in range(3)), nn.Linear(256, 4, bias=False)).requires_grad_(False)
        self.refused("1.weight, 1.bias, 2.weight and 4 more: requires_grad is False", still, x, y)
        self.refused("GRU", nn.Sequential(nn.Flatten(), nn.GRU(256, 4)), x, y)
        for pack, kind in ((lambda out: (out, out), "tuple"), (lambda out: {"out": out}, "dict"), (lambda out: None, "NoneType")):
            self.refused(f"returns a {kind}, not one tensor", Several(pack), x, y)
        tokens, following = series(80, 9)
        self.refused("token 10 of sample 0", Decoder(), tokens * 0 + 10, following)
        attention = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.refused("shares with dropout 0.1", nn.Sequential(nn.Embedding(10, 16), attention, nn.Linear(16, 10)), tokens, following)
        self.refused(r"both \(Transformer\) attends from one sequence to another", Translator(), tokens, following)
        self.refused("LayerNorm.*has no weights", nn.Sequential(nn.LayerNorm((1, 16, 16), elementwise_affine=False), Net()), x, y)
        self.refused("not supported: node", nn.Sequential(nn.Flatten(), nn.Linear(256, 8), nn.Softplus(), nn.Linear(8, 4)), x, y)

    def test_a_file_with_an_encoder_and_a_decoder_is_one_complaint(self):
        with tempfile.TemporaryDirectory() as folder:
            for mode in (torch.onnx.TrainingMode.EVAL, torch.onnx.TrainingMode.PRESERVE):
                file = f"{folder}/net.onnx"
                torch.onnx.export(Translator(), torch.zeros(1, 8, dtype=torch.long), file, training=mode, opset_version=13,
                                  do_constant_folding=mode == torch.onnx.TrainingMode.EVAL)
                done = subprocess.run([BINARIES / "runnel-central", "check", f"onnx:{file}"], capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 2)
                self.assertRegex(done.stderr, r"multihead_attn/MatMul\S* \(MatMul\): attention from one sequence to another, as nn.Transformer")
                self.assertEqual(done.stderr.count("(MatMul)"), 1)

    def test_no_programs(self):
        os.environ["RUNNEL_BIN"] = "/nowhere"
        try:
            self.refused("RUNNEL_BIN=/nowhere has no runnel-central", Net(), *corners(80, 4))
        finally:
            os.environ["RUNNEL_BIN"] = str(BINARIES)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
