#!/usr/bin/env python3
"""A worker that reaches a limit of its owner gives its layers away, waits, and takes part again.

    tests/process/limits_test.py BINARIES

Its battery is a planted file. The run goes on meanwhile.
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
PATIENCE_S = 60


def wait_for(what, answer, patience_s=PATIENCE_S):
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        if found := answer():
            return found
        time.sleep(0.05)
    raise TimeoutError(f"not within {patience_s} s: {what}")


class Limits(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.environment = {"HOME": folder.name, "PATH": "/usr/bin:/bin", "NO_COLOR": "1", "RUNNEL_HOME": "", "RUNNEL_STATE_DIR": "",
                            "RUNNEL_RUNTIME_DIR": folder.name + "/run", "RUNNEL_SYSTEM_ROOT": folder.name}

    def plant(self, path, text):
        file = self.folder / "sys/class" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")

    def start(self, name, program, *arguments):
        with open(self.folder / name, "w") as log:
            process = subprocess.Popen([BINARIES / program, *arguments], cwd=self.folder, env=self.environment, stdout=log,
                                       stderr=subprocess.STDOUT)
        self.addCleanup(lambda: (process.kill(), process.wait()))
        return process

    def log(self, name):
        return (self.folder / name).read_text()

    def states(self):
        asked = subprocess.run([BINARIES / "runnel-central", "devices", "--json"], cwd=self.folder, env=self.environment,
                               capture_output=True, text=True, timeout=60)
        if asked.returncode != 0:
            return {}
        return {device["name"]: device["state"] for device in json.loads(asked.stdout)["devices"]}

    def test_a_battery_that_runs_down_and_is_charged(self):
        self.plant("power_supply/BAT0/type", "Battery")
        self.plant("power_supply/BAT0/status", "Discharging")
        self.plant("power_supply/BAT0/capacity", "50")
        central = self.start("central", "runnel-central", "train", "--model", "lenet", "--dataset", "synthetic_digits", "--quick",
                             "--local-workers", "1", "--workers", "1", "--epochs", "200", "--barrier-every", "10", "--listen", "127.0.0.1:0")
        address = wait_for("how to join", lambda: re.search(r"runnel-worker --central (\S+)", self.log("central"))).group(1)
        worker = self.start("worker", "runnel-worker", "--central", address, "--name", "pi-1", "--battery-floor", "20")
        wait_for("a stage", lambda: "trains layers" in self.states().get("pi-1", ""))
        self.plant("power_supply/BAT0/capacity", "19")
        wait_for("the limit", lambda: "takes no part: the battery is at 19 %" in self.log("worker"))
        wait_for("a run without it", lambda: "trains layers" not in self.states().get("pi-1", "trains layers"))
        self.assertIsNone(worker.poll(), "it waits for its battery")
        self.assertIsNone(central.poll(), "the run goes on")
        self.assertNotRegex(self.log("central"), "pi-1 is lost", "nothing is lost by a drain")
        self.assertRegex(self.log("central"), r"worker pi-1 leaves \(the battery is at 19 %.*--battery-floor\)", "why")
        self.plant("power_supply/BAT0/status", "Charging")
        wait_for("the end of the limit", lambda: "takes part again: no limit holds this device" in self.log("worker"))
        wait_for("the worker at central", lambda: re.search("pi-1 has left(?s:.)*worker pi-1 (has joined|takes part again)", self.log("central")))

    def test_what_cannot_be_kept_is_refused(self):
        for flags, what in ((["--max-celsius", "60"], "shows no temperature"), (["--hours", "7"], "is not FROM-TO"),
                            (["--battery-floor", "120"], "is no number from 1 to 100")):
            refused = subprocess.run([BINARIES / "runnel-worker", "--central", "127.0.0.1:9", *flags], env=self.environment,
                                     capture_output=True, text=True, timeout=60)
            self.assertEqual(refused.returncode, 2, flags)
            self.assertIn(what, refused.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
