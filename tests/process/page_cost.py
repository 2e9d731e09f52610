#!/usr/bin/env python3
"""What a page that is open, and a scrape of metrics, cost a run.

    tests/process/page_cost.py BINARIES [--pairs N] [--seconds S] [--paused-seconds S]

LeNet over three local workers. One run, in windows by turns: nobody asks; then /state and /metrics are asked once a second each, as a page
and a Prometheus do. Of both the processor time of central and its workers for a sample. That has the noise of whatever else the machine
does, so the same is measured of the paused run, where central does nothing else: processor time a second, over what training takes of it.
Who asks is another process and does not count.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

PATIENCE_S = 60


def processor_s(pid):
    """Of all threads of the process, those that ended too: the kernel's clock of it (CPUCLOCK_SCHED)."""
    return time.clock_gettime((~pid << 3) | 2)


class Run:
    def __init__(self, binaries, folder):
        self.folder = pathlib.Path(folder)
        environment = {"HOME": folder, "PATH": "/usr/bin:/bin", "NO_COLOR": "1", "RUNNEL_RUNTIME_DIR": folder + "/run"}
        with open(self.folder / "log", "w") as log:
            self.central = subprocess.Popen(
                [binaries / "runnel-central", "train", "--quick", "--model", "lenet", "--dataset", "synthetic_digits", "--local-workers", "3",
                 "--eval-every", "-1", "--barrier-every", "20", "--epochs", "100000", "--metrics-port", "0", "--linger-s", "0"],
                cwd=folder, env=environment, stdout=log, stderr=log)
        self.url, self.token = self.wait(lambda: re.search(r"orders: (http://127\.0\.0\.1:\d+)/#(\w+)", (self.folder / "log").read_text())).groups()
        self.wait(lambda: self.state()["phase"] == "training" and self.state()["step"] > 100)
        children = pathlib.Path(f"/proc/{self.central.pid}/task").glob("*/children")
        self.pids = [self.central.pid, *(int(pid) for path in children for pid in path.read_text().split())]
        assert len(self.pids) == 4, self.pids

    def wait(self, answer):
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end and self.central.poll() is None:
            if found := answer():
                return found
            time.sleep(0.05)
        raise TimeoutError((self.folder / "log").read_text())

    def get(self, path, **options):
        with urllib.request.urlopen(urllib.request.Request(self.url + path, **options), timeout=10) as answer:
            return answer.read().decode()

    def state(self):
        return json.loads(self.get("/state"))

    def order(self, name):
        self.get("/orders/" + name, method="POST", headers={"X-Runnel-Token": self.token})

    def samples(self):
        return int(float(re.search(r"^runnel_samples_total (\S+)$", self.get("/metrics"), re.MULTILINE)[1]))

    def window(self, seconds, asks):
        """Processor time of central, and of all; samples; time."""
        samples, begin = self.samples(), time.monotonic()
        before = [processor_s(pid) for pid in self.pids]
        for second in range(1, seconds + 1):
            if asks:
                self.get("/state")
                self.get("/metrics")
            time.sleep(max(0, begin + second - time.monotonic()))
        used = [processor_s(pid) - was for pid, was in zip(self.pids, before)]
        passed = time.monotonic() - begin
        return used[0], sum(used), self.samples() - samples, passed

    def pairs(self, count, seconds):
        """Windows by turns, so that each kind comes first as often as the other: while nobody asks, and while page and scrape do."""
        for pair in range(count):
            order = (False, True) if pair % 2 == 0 else (True, False)
            windows = {asks: self.window(seconds, asks) for asks in order}
            yield windows[False], windows[True]


def with_error(values, unit):
    error = statistics.stdev(values) / len(values) ** 0.5
    return f"{statistics.mean(values):+.3f} {unit} (standard error {error:.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--paused-pairs", type=int, default=8)
    arguments = parser.parse_args()
    if not (arguments.binaries / "runnel-central").exists():
        parser.error(f"{arguments.binaries}: no runnel-central in it; deploy/test.sh builds it")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        run = Run(arguments.binaries.resolve(), folder)
        try:
            pairs = list(run.pairs(arguments.pairs, arguments.seconds))
            quiet_s = statistics.median(quiet[1] / quiet[2] for quiet, _ in pairs)  # of all, a sample
            took = statistics.median(quiet[1] / quiet[3] for quiet, _ in pairs)
            whole = [100 * (asked[1] / asked[2] / (quiet[1] / quiet[2]) - 1) for quiet, asked in pairs]
            own = [100 * (asked[0] / asked[2] - quiet[0] / quiet[2]) / quiet_s for quiet, asked in pairs]
            print(f"training, {len(pairs)} pairs of {arguments.seconds} s, {1e6 * quiet_s:.1f} us of processor time a sample: page and scrape take "
                  f"{with_error(whole, '% more of all processes')}, {with_error(own, '% of that more of central')}")
            run.order("pause")
            run.wait(lambda: run.state()["phase"] == "paused")
            costs = [1e3 * (asked[0] / asked[3] - quiet[0] / quiet[3]) for quiet, asked in run.pairs(arguments.paused_pairs, 10)]
            print(f"paused: they take central {with_error(costs, 'ms of processor time a second')}: {statistics.mean(costs) / took / 10:.3f} % of the "
                  f"{took:.2f} s a second that training took, {statistics.mean(costs) / 20:.3f} % of two processors")
        finally:
            run.central.kill()
            run.central.wait()


if __name__ == "__main__":
    sys.exit(main())
