#!/usr/bin/env python3
"""How long a run takes to recover: workers are killed, one a run, by turns.

    tests/process/recovery_seconds.py [--bin DIR] [--runs N] [--barrier N] [--lost N] [FLAGS OF train...]

Prints seconds of each phase of each recovery, and their medians, and how many runs came to the weights of a run without a
loss. The flags come behind those of LeNet over three local workers, sync_1f1b, a barrier each 20 steps; --barrier: after so many barriers workers are killed;
--lost: so many at once.
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PHASES = ("detect_s", "plan_s", "fetch_s", "first_gradient_s", "caught_up_s")


def workers_of(central):
    """Process ids of the workers that a central has started, by name."""
    found = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            words = (folder / "cmdline").read_bytes().decode().split("\0")
        except (OSError, UnicodeDecodeError):
            continue
        if int(status[1]) == central and "--name" in words:
            found[words[words.index("--name") + 1]] = int(folder.name)
    return found


def barriers(journal):
    try:
        return journal.read_text().count('{"record":"barrier"')
    except OSError:
        return 0


def train(options, flags, turn=None):
    """A run's summary; in turn N, the N-th worker and those behind it are killed."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder)
        own = {"--model": "lenet", "--barrier-every": "20", "--schedule": "sync_1f1b"}
        own = [word for flag, value in own.items() if flag not in flags for word in (flag, value)]
        command = [f"{options.bin}/runnel-central", "train", *own, "--quick", "--local-workers", "3",
                   "--eval-every", "-1", *flags, "--journal", out / "j", "--summary", out / "s.json"]
        with open(out / "log", "wb") as log:
            central = subprocess.Popen(command, stdout=log, stderr=log)
            while turn is not None and barriers(out / "j") < options.barrier and central.poll() is None:
                time.sleep(0.005)
            workers = sorted(workers_of(central.pid).items()) if turn is not None else []
            for lost in range(options.lost if workers else 0):
                os.kill(workers[(turn + lost) % len(workers)][1], signal.SIGKILL)
            code = central.wait()
        if code != 0:
            sys.exit((out / "log").read_text())
        return json.loads((out / "s.json").read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default=str(ROOT / "build/release/bin"))
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--barrier", type=int, default=3)
    parser.add_argument("--lost", type=int, default=1)
    options, flags = parser.parse_known_args()
    if not os.access(f"{options.bin}/runnel-central", os.X_OK):
        sys.exit(f"recovery_seconds.py: no {options.bin}/runnel-central: build it first")
    seconds = {phase: [] for phase in PHASES}
    resumed = []
    whole = train(options, flags)["weights_sha256"]
    equal = 0
    for turn in range(options.runs):
        summary = train(options, flags, turn)
        if not summary["recoveries"]:
            sys.exit(f"recovery_seconds.py: the run ended before barrier {options.barrier}: give more --epochs or a smaller --barrier")
        equal += summary["weights_sha256"] == whole
        recovery = summary["recoveries"][0]
        for phase in PHASES:
            seconds[phase].append(recovery[phase])
        resumed.append(sum(recovery[phase] for phase in PHASES[1:4]))
        print(f"{', '.join(recovery['workers'])}: from step {recovery['step']} of {recovery['source']}: "
              + ", ".join(f"{phase[:-2]} {recovery[phase]:.3f}" for phase in PHASES), flush=True)
    print("medians: " + ", ".join(f"{phase[:-2]} {statistics.median(seconds[phase]):.3f}" for phase in PHASES)
          + f"; from the loss to the first gradient {statistics.median(resumed):.3f} s"
          + f"; {equal} of {options.runs} came to the same weights as a run without a loss")


if __name__ == "__main__":
    main()
