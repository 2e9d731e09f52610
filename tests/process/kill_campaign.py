#!/usr/bin/env python3
"""Kills at the moments that are worst, each many times: the run ends with the weights of one that nobody disturbs.

    tests/process/kill_campaign.py [--bin DIR] [--times N] [--only NAME]

A run over one local worker and three that dial in. SIGKILL ends
    measured    a worker while devices are measured
    unplanned   a worker that has joined, before all are there
    recovery    a second worker in the recovery of the first one
    neighbours  two neighbours at once
and it is started again. Ends with 1 if a run fails or its weights differ, 2 where binaries are missing.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = ("pi-1", "pi-2", "pi-3")
# Any plan gives these weights.
FLAGS = ("--model", "lenet", "--dataset", "synthetic_digits", "--schedule", "sync_1f1b", "--micro-batches", "4", "--batch-size", "32",
         "--barrier-every", "10", "--eval-every", "-1", "--replicate-every", "1", "--max-batches", "120", "--codec-forward", "identity",
         "--codec-backward", "identity")
PATIENCE_S = 120


class Run:
    def __init__(self, binaries, folder, quick, names=NAMES):
        self.bin, self.folder = binaries, pathlib.Path(folder)
        self.journal, self.summary, self.log = self.folder / "j", self.folder / "s.json", self.folder / "log"
        with open(self.log, "wb") as log:
            self.central = subprocess.Popen(
                [f"{binaries}/runnel-central", "train", *FLAGS, *(["--quick"] if quick else []), "--workers", str(len(NAMES)), "--local-workers",
                 "1", "--listen", "127.0.0.1:0", "--journal", self.journal, "--summary", self.summary], stdout=log, stderr=log)
        self.address = self.await_text(self.log, r"--central (\S+:\d+)").group(1)
        self.workers = {}
        for name in names:
            self.start(name)

    def await_text(self, path, pattern, count=1):
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            found = list(re.finditer(pattern, path.read_text())) if path.exists() else []
            if len(found) >= count:
                return found[-1]
            if self.central.poll() is not None:
                break
            time.sleep(0.002)
        raise RuntimeError(f"no {pattern} in {path.name}: " + self.log.read_text()[-1500:])

    def start(self, name):
        with open(self.folder / name, "ab") as log:
            self.workers[name] = subprocess.Popen(
                [f"{self.bin}/runnel-worker", "--central", self.address, "--name", name, "--threads", "1", "--state-dir",
                 self.folder / f"state-{name}"], stdout=log, stderr=log)

    def kill(self, *names):
        for name in names:
            self.workers[name].kill()
        for name in names:
            self.workers[name].wait()
            self.start(name)

    def barrier(self, count):
        self.await_text(self.journal, r'"record":"barrier"', count)

    def end(self):
        try:
            code = self.central.wait(PATIENCE_S)
        finally:
            self.stop()
        if code != 0:
            raise RuntimeError(f"exit code {code}: " + self.log.read_text()[-1500:])
        return json.loads(self.summary.read_text())

    def stop(self):
        for process in (self.central, *self.workers.values()):
            process.kill()
            process.wait()


def measured(run, turn):
    name = NAMES[turn % 3]
    run.await_text(run.folder / name, "joined")
    time.sleep(0.05 * (turn % 10))
    run.kill(name)


def unplanned(run, turn):
    name = NAMES[turn % 2]
    run.await_text(run.folder / "log", "waiting for")
    time.sleep(0.02 * (turn % 10))
    run.kill(name)
    run.start(NAMES[2])


def recovery(run, turn):
    run.barrier(2 + turn % 3)
    run.kill(NAMES[turn % 3])
    run.await_text(run.journal, '"record":"worker_lost"')
    time.sleep(0.01 * (turn % 8))
    run.kill(NAMES[(turn + 1) % 3])


def neighbours(run, turn):
    run.barrier(2 + turn % 5)
    first = turn % 2
    run.kill(NAMES[first], NAMES[first + 1])


KILLS = {"measured": (measured, False, NAMES), "unplanned": (unplanned, True, NAMES[:2]), "recovery": (recovery, True, NAMES),
         "neighbours": (neighbours, True, NAMES)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default=str(ROOT / "build/release/bin"))
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--only", choices=KILLS)
    options = parser.parse_args()
    if not os.access(f"{options.bin}/runnel-central", os.X_OK):
        print(f"kill_campaign.py: no {options.bin}/runnel-central: build it first")
        sys.exit(2)
    with tempfile.TemporaryDirectory() as folder:
        whole = Run(options.bin, folder, True).end()["weights_sha256"]
    failed = 0
    for name, (kill, quick, names) in KILLS.items():
        if options.only not in (None, name):
            continue
        results, recoveries = collections.Counter(), 0
        for turn in range(options.times):
            with tempfile.TemporaryDirectory() as folder:
                run = Run(options.bin, folder, quick, names)
                try:
                    kill(run, turn)
                    summary = run.end()
                    recoveries += len(summary["recoveries"])
                    result = "weights equal" if summary["weights_sha256"] == whole else "WEIGHTS DIFFER"
                except RuntimeError as error:
                    result = "FAILED"
                    print(f"{name} {turn}: {error}")
                finally:
                    run.stop()
            results[result] += 1
        failed += options.times - results["weights equal"]
        print(f"{name}: {dict(results)} of {options.times}, {recoveries} recoveries", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
