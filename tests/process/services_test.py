"""What starts central as a service and in a container, with a stand-in for runnel-central; and that the units are confined.

    python3 tests/process/services_test.py
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "deploy/systemd/run-central"
# Says what it was told, and ends as the test wants: at once, or when it is told to.
STAND_IN = """#!/bin/sh
echo "$@" >>"$LOG"
trap 'echo told to end >>"$LOG"; exit 130' TERM
if [ "$CODE" = waits ]; then
  echo begun >>"$LOG"
  while :; do sleep 0.02; done
fi
exit "$CODE"
"""


def name_of(process):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{process}/comm").read_text()
    return ""


class RunCentral(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        stand_in = self.folder / "runnel-central"
        stand_in.write_text(STAND_IN)
        stand_in.chmod(0o755)
        self.log = self.folder / "log"
        self.log.touch()

    def start(self, code, *words):
        environment = {"PATH": f"{self.folder}:/usr/bin:/bin", "LOG": str(self.log), "CODE": str(code),
                       "RUNNEL_RUNTIME_DIR": str(self.folder)}
        process = subprocess.Popen([SCRIPT, *words, "conf", self.folder / "run1", "--listen", "1.2.3.4:7000"], env=environment,
                                   stdout=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def wait_for(self, found):
        end = time.monotonic() + 20
        while not found():
            self.assertLess(time.monotonic(), end, self.log.read_text())
            time.sleep(0.01)

    def test_begins_and_goes_on(self):
        run = self.folder / "run1"
        self.assertEqual(self.start(2).wait(), 2)
        run.mkdir()
        (run / "central.json").touch()
        self.assertEqual(self.start(1).wait(), 1)
        (run / "checkpoint-000000000100.runnel").touch()
        for _ in range(2):  # the second time it is done
            self.assertEqual(self.start(0).wait(), 0)
        train = f"train --config conf --checkpoint-dir {run} --listen 1.2.3.4:7000"
        self.assertEqual(self.log.read_text().splitlines(),
                         [train, train, f"resume --checkpoint-dir {run} --listen 1.2.3.4:7000"])

    def test_a_signal_reaches_central(self):
        for words in ([], ["--stay"]):
            self.log.write_text("")
            process = self.start("waits", *words)
            self.wait_for(lambda: "begun" in self.log.read_text())
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(20), 130, words)
            self.assertIn("told to end", self.log.read_text())
        self.assertFalse((self.folder / "run1/done").exists())

    def test_stays_when_the_run_is_done(self):
        run = self.folder / "run1"
        run.mkdir()
        self.assertEqual(self.start(1, "--stay").wait(20), 1)
        for _ in range(2):
            process = self.start(0, "--stay")
            self.wait_for((run / "done").exists)
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
            self.wait_for(lambda: children.exists() and any("sleep" in name_of(child) for child in children.read_text().split()))
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(20), 0)
        self.assertEqual(len(self.log.read_text().splitlines()), 2, "one that failed, one that ended well")


class Units(unittest.TestCase):
    @unittest.skipUnless(shutil.which("systemd-analyze"), "needs systemd-analyze")
    def test_exposure(self):
        for unit in sorted((ROOT / "deploy/systemd").glob("*.service")):
            said = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--no-pager", unit], capture_output=True, text=True,
                                  env={**os.environ, "LC_ALL": "C.UTF-8"})
            level = re.search(r"Overall exposure level for \S+: ([\d.]+)", said.stdout)
            if level is None:
                self.skipTest("systemd-analyze has no --offline: " + said.stderr.strip())
            self.assertLessEqual(float(level[1]), 2.0, unit.name)

    def test_ends(self):
        for unit in sorted((ROOT / "deploy/systemd").glob("*.service")):
            text = unit.read_text()
            self.assertIn("\nTimeoutStopSec=300\n", text, unit.name)
            self.assertIn("\nRestartPreventExitStatus=2\n", text, unit.name)


if __name__ == "__main__":
    unittest.main()
