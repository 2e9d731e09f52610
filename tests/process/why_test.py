#!/usr/bin/env python3
"""`runnel-central why` of real runs, each slow for a reason that was planted.

    tests/process/why_test.py BINARIES [CASE...]

Central and its workers on loopback train small networks that are made here. Of each run `why` is asked until it names the reason, for
as long as the run lasts; nothing is asserted about times. Of a run in which nothing was planted it says that nothing stands out.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

BINARIES = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/dev/bin").resolve()
PATIENCE_S = 120


def conv(name, channels=24, stride=1):
    return {"name": name, "ops": [{"op": "conv", "out": channels, "kernel": 3, "padding": 1, "stride": stride}, {"op": "relu"}]}


def linear(name, width):
    return {"name": name, "ops": [{"op": "linear", "out": width, "bias": True}, {"op": "relu"}]}


def joined(name, layers):
    return {"name": name, "ops": [op for layer in layers for op in layer["ops"]]}


POOL = {"name": "pool", "ops": [{"op": "global_avg_pool"}]}
END = {"name": "end", "ops": [{"op": "linear", "out": 10, "bias": True}]}
HEAD = joined("head", [POOL, END])
MODELS = {
    # Many layers of the same time: every cut into two alike halves is close to the best.
    "even": [conv("first", stride=2), *(conv(f"c{i}") for i in range(15)), HEAD],
    # Two layers: of two workers each has one, however slow it is.
    "pair": [joined("a", [conv("", stride=2), conv(""), conv("")]), joined("b", [conv(""), conv(""), HEAD])],
    # Half of the layers have all of the work.
    "lopsided": [conv("first", stride=2), *(conv(f"c{i}", 32) for i in range(3)), POOL, linear("d0", 32), linear("d1", 32), END],
    # 4 MB of weights a layer.
    "wide": [joined("d0", [{"ops": [{"op": "flatten"}]}, linear("", 1024)]), *(linear(f"d{i}", 1024) for i in range(1, 8)), END],
}


class Run:
    """A central with a worker of its own and some that dial in: `worker` has their flags."""

    def __init__(self, folder, model, flags, workers=1, worker=(), batch=16):
        self.folder = pathlib.Path(folder)
        self.environment = {"HOME": folder, "PATH": "/usr/bin:/bin", "NO_COLOR": "1", "RUNNEL_RUNTIME_DIR": folder + "/run"}
        path = self.folder / f"{model}.json"
        path.write_text(json.dumps({"format": "runnel-model", "version": 1, "name": model, "input": [1, 28, 28], "classes": 10,
                                    "layers": MODELS[model]}))
        self.processes = []
        self.log = self.folder / "central.log"
        self.central = self.start("central.log", "runnel-central", "train", "--model", f"json:{path}", "--dataset", "synthetic_digits",
                                  "--eval-every", "-1", "--batch-size", str(batch), "--epochs", "200", "--workers", str(workers), *flags)
        address = self.find(r"runnel-worker --central (\S+)")
        for i in range(workers):
            self.start(f"pi-{i + 1}.log", "runnel-worker", "--central", address, "--name", f"pi-{i + 1}", "--once", "--state-dir", "",
                       *worker)

    def start(self, log, *command):
        with open(self.folder / log, "wb") as out:
            self.processes.append(subprocess.Popen([BINARIES / command[0], *command[1:]], cwd=self.folder, env=self.environment,
                                                   stdout=out, stderr=out))
        return self.processes[-1]

    def find(self, pattern):
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and self.central.poll() is None:
            if match := re.search(pattern, self.log.read_text()):
                return match.group(1)
            time.sleep(0.02)
        raise AssertionError(f"no {pattern!r} in:\n{self.log.read_text()}")

    def why(self):
        """What is said now, and the data that it is said from."""
        answers = [subprocess.run([BINARIES / "runnel-central", "why", *more], cwd=self.folder, env=self.environment,
                                  capture_output=True, text=True, timeout=60, check=False) for more in ((), ("--json",))]
        if any(answer.returncode != 0 for answer in answers):
            return "", {}
        return answers[0].stdout, json.loads(answers[1].stdout)

    def end(self):
        for process in reversed(self.processes):
            process.kill()
            process.wait()


class Why(unittest.TestCase):
    def ask(self, says, *arguments, **more):
        """Asks until says(text, state) is true."""
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            run = Run(folder, *arguments, **more)
            self.addCleanup(run.end)
            until, last = time.monotonic() + PATIENCE_S, ("", {})
            while time.monotonic() < until and run.central.poll() is None:
                last = run.why()
                if says(*last):
                    print(f"{self.id()}:\n{last[0]}", flush=True)
                    run.end()
                    return
                time.sleep(0.1)
            self.fail(f"it says\n{last[0]}\n{json.dumps(last[1].get('parts'), indent=1)}\n{run.log.read_text()[-3000:]}")

    MEASURED = ("--policy", "dp", "--replan", "off", "--barrier-every", "20")

    def test_slow_processor(self):
        # Plain loops: ten times as slow and more.
        self.ask(lambda text, state: state.get("parts", {}).get("slowest") == "pi-1" and "\n  pi-1 twice as fast" in text,
                 "pair", self.MEASURED, worker=("--backend", "ref"))

    def test_slow_link(self):
        self.ask(lambda text, state: "what would help:\n  a faster link between local-000 and pi-1:" in text,
                 "even", ("--policy", "dp", "--replan", "off", "--barrier-every", "10", "--link-mbps", "5"))

    def test_tiny_memory(self):
        self.ask(lambda text, state: "\n  more memory, for other layers (" in text and state["parts"]["memory_ms"] > 0,
                 "wide", ("--policy", "runnel", "--replan", "off", "--barrier-every", "20"), batch=64,
                 worker=("--memory-mb", "64"))

    def test_bad_cut(self):
        self.ask(lambda text, state: "\n  other layers (" in text, "lopsided", (*self.MEASURED, "--links", "0.5"))

    def test_bad_cut_of_a_run_that_measures_nothing(self):
        self.ask(lambda text, state: "local-000 computes much longer than the others: other layers there would help" in text,
                 "lopsided", ("--quick", "--barrier-every", "20"))

    def test_too_few_micro_batches(self):
        self.ask(lambda text, state: "\n  --micro-batches 2: " in text,
                 "even", (*self.MEASURED, "--schedule", "sync_1f1b", "--micro-batches", "1"), workers=2)

    def test_nothing(self):
        self.ask(lambda text, state: "parts" in state and "\nnothing stands out" in text,
                 "even", ("--policy", "runnel", "--barrier-every", "20"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *(f"Why.test_{name}" for name in sys.argv[2:])])
