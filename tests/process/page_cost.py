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
        """Processor time, samples and time of a window."""
        samples, begin = self.samples(), time.monotonic()
        used = sum(processor_s(pid) for pid in self.pids)
        for second in range(1, seconds + 1):
            if asks:
                self.get("/state")
                self.get("/metrics")
            time.sleep(max(0, begin + second - time.monotonic()))
        used = sum(processor_s(pid) for pid in self.pids) - used
        passed = time.monotonic() - begin
        return used, self.samples() - samples, passed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--paused-seconds", type=int, default=30)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        run = Run(arguments.binaries.resolve(), folder)
        try:
            ratios, quiet_us, asked_us, rates = [], [], [], []
            for pair in range(arguments.pairs):
                # Each comes first as often as the other.
                figures = {}
                for asks in (False, True) if pair % 2 == 0 else (True, False):
                    used, samples, passed = run.window(arguments.seconds, asks)
                    figures[asks] = 1e6 * used / samples
                    if not asks:
                        rates.append(used / passed)
                quiet_us.append(figures[False])
                asked_us.append(figures[True])
                ratios.append(figures[True] / figures[False] - 1)
            error = statistics.stdev(ratios) / len(ratios) ** 0.5
            print(f"training, {len(ratios)} pairs of {arguments.seconds} s: {statistics.median(quiet_us):.1f} us a sample while nobody asks, "
                  f"{statistics.median(asked_us):.1f} us while page and scrape do; mean of the ratios {100 * statistics.mean(ratios):+.2f} % "
                  f"(standard error {100 * error:.2f})")
            run.order("pause")
            run.wait(lambda: run.state()["phase"] == "paused")
            idle = run.window(arguments.paused_seconds, False)
            asked = run.window(arguments.paused_seconds, True)
            cost = asked[0] / asked[2] - idle[0] / idle[2]
            took = statistics.median(rates)
            print(f"paused: {1e3 * idle[0] / idle[2]:.2f} ms of processor time a second while nobody asks, {1e3 * asked[0] / asked[2]:.2f} ms while "
                  f"page and scrape do: {1e3 * cost:.2f} ms more, {100 * cost / took:.3f} % of the {took:.2f} s a second that training takes")
        finally:
            run.central.kill()
            run.central.wait()


if __name__ == "__main__":
    sys.exit(main())
