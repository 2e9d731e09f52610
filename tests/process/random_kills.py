#!/usr/bin/env python3
"""A run whose workers are killed again and again comes to the same weights as one that nobody disturbs.

    tests/process/random_kills.py [--bin DIR] [--kills N] [--seed N] [--barriers N] [FLAGS OF train...]

LeNet over one local worker and two that dial in. SIGKILL ends a random one of the three, --kills times, each time when the run
has passed --barriers barriers since the last one; a worker that dialled in is started again, the local one by central. Prints
how the run recovered, and ends with 1 if the weights differ.
"""

import argparse
import json
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from recovery_seconds import ROOT, barriers, workers_of

DIALLING = ("pi-1", "pi-2")
FLAGS = ("--model", "lenet", "--dataset", "synthetic_digits", "--quick", "--schedule", "sync_1f1b", "--micro-batches", "4", "--batch-size", "32",
         "--barrier-every", "10", "--eval-every", "-1", "--replicate-every", "1")
PATIENCE_S = 120


class Run:
    """Central and the workers that dial in."""

    def __init__(self, options, flags, folder):
        self.bin, self.folder = options.bin, pathlib.Path(folder)
        self.journal, self.summary = self.folder / "j", self.folder / "s.json"
        self.log = open(self.folder / "central.log", "wb")
        self.central = subprocess.Popen(
            [f"{self.bin}/runnel-central", "train", *FLAGS, *flags, "--workers", str(len(DIALLING)), "--local-workers", "1", "--listen",
             "127.0.0.1:0", "--journal", self.journal, "--summary", self.summary], stdout=self.log, stderr=self.log)
        self.address = self._address()
        self.workers = {name: self._start(name) for name in DIALLING}

    def _address(self):
        while self.central.poll() is None:
            found = re.search(rb"--central (\S+:\d+)", (self.folder / "central.log").read_bytes())
            if found:
                return found.group(1).decode()
            time.sleep(0.01)
        sys.exit((self.folder / "central.log").read_text())

    def _start(self, name):
        with open(self.folder / f"{name}.log", "ab") as log:
            return subprocess.Popen([f"{self.bin}/runnel-worker", "--central", self.address, "--name", name, "--threads", "1", "--state-dir",
                                     self.folder / name], stdout=log, stderr=log)

    def await_barriers(self, count):
        """False: the run ended before."""
        until = time.monotonic() + PATIENCE_S
        while barriers(self.journal) < count:
            if self.central.poll() is not None:
                return False
            if time.monotonic() > until:
                sys.exit(f"random_kills.py: no barrier for {PATIENCE_S} s\n" + (self.folder / "central.log").read_text()[-2000:])
            time.sleep(0.005)
        return True

    def kill(self, name):
        if name not in self.workers:
            for pid in workers_of(self.central.pid).values():
                os.kill(pid, signal.SIGKILL)
            return
        self.workers[name].kill()
        self.workers[name].wait()
        self.workers[name] = self._start(name)

    def end(self):
        code = self.central.wait()
        for worker in self.workers.values():
            worker.terminate()
            worker.wait()
        if code != 0:
            sys.exit((self.folder / "central.log").read_text()[-2000:])
        return json.loads(self.summary.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default=str(ROOT / "build/release/bin"))
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--barriers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    options, flags = parser.parse_known_args()
    if not os.access(f"{options.bin}/runnel-central", os.X_OK):
        sys.exit(f"random_kills.py: no {options.bin}/runnel-central: build it first")
    if "--max-batches" not in flags:
        flags += ["--max-batches", str(10 * (options.kills + 2) * options.barriers), "--epochs", "1000"]
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        whole = Run(options, flags, folder).end()
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(options, flags, folder)
        kills = 0
        while kills < options.kills and run.await_barriers(barriers(run.journal) + options.barriers):
            run.kill(draw.choice((*DIALLING, "local")))
            kills += 1
        summary = run.end()
    recoveries = summary["recoveries"]
    resumed = [sum(one[phase] for phase in ("plan_s", "fetch_s", "first_gradient_s")) for one in recoveries]
    sources = {source: sum(one["source"] == source for one in recoveries) for source in {one["source"] for one in recoveries}}
    equal = summary["weights_sha256"] == whole["weights_sha256"]
    print(f"{kills} kills, {len(recoveries)} recoveries ({sources}), from the loss to the first gradient "
          f"{statistics.median(resumed) if resumed else 0:.3f} s in the middle, {max(resumed, default=0):.3f} s at most; {summary['steps']} steps; "
          f"weights {'equal' if equal else 'DIFFER'}")
    sys.exit(0 if equal and kills == options.kills else 1)


if __name__ == "__main__":
    main()
