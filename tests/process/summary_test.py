#!/usr/bin/env python3
"""What commands print for programs: `--summary -` leaves standard output to one JSON object, whatever else is printed for people. And
examples of the help can be typed.

    tests/process/summary_test.py BINARIES
"""

import json
import pathlib
import shlex
import subprocess
import sys
import tempfile
import unittest

BINARIES = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/dev/bin").resolve()
RUN = ("--quick", "--model", "lenet", "--dataset", "synthetic_digits", "--local-workers", "0", "--max-batches", "2", "--eval-every", "-1")


class Summary(unittest.TestCase):
    def ask(self, program, *words):
        """The object on standard output, and the lines for people."""
        with tempfile.TemporaryDirectory() as home:
            done = subprocess.run([BINARIES / program, *words, "--summary", "-"], capture_output=True, text=True, timeout=300, check=False,
                                  env={"HOME": home, "PATH": "/usr/bin:/bin", "NO_COLOR": "1"})
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout), done.stderr

    def test_one_run(self):
        summary, lines = self.ask("runnel-central", "train", *RUN)
        self.assertEqual(summary["steps"], 2)
        self.assertIn("trained after 2 steps", lines)

    def test_several_seeds(self):
        summary, lines = self.ask("runnel-central", "train", "--seeds", "1,2", *RUN)
        self.assertEqual([run["seed"] for run in summary["runs"]], [1, 2])
        self.assertIn("seed 2, run 2 of 2", lines)

    def test_a_plan(self):
        summary, lines = self.ask("runnel-central", "plan", "--quick", "--model", "lenet", "--local-workers", "2")
        self.assertEqual(len(summary["plan"]["stages"]), 2)
        self.assertIn("stage 1: ", lines)

    def test_a_simulation(self):
        summary, lines = self.ask("runnel-lab", "simulate", "three-pis", "--policies", "uniform", "--mbps", "4")
        self.assertEqual(summary["results"][0]["cells"][0]["method"], "uniform")
        self.assertIn("samples/s", lines)

    def test_the_example_of_a_profile(self):
        """As the help has it, into a folder that is there or not."""
        with tempfile.TemporaryDirectory() as folder:
            def ask(*words):
                return subprocess.run([BINARIES / "runnel-lab", "profile", *words], cwd=folder, capture_output=True, text=True, timeout=300, check=False,
                                      env={"HOME": folder, "PATH": "/usr/bin:/bin", "NO_COLOR": "1"})
            _, example = ask("--help").stdout.split("    runnel-lab profile ")
            words = shlex.split(example.replace("\\\n", " "))
            refused = ask(*("none/laptop.profile" if word == "laptop.profile" else word for word in words))
            self.assertEqual((refused.returncode, len(refused.stderr.splitlines())), (2, 1), refused.stderr)
            self.assertIn("none/laptop.profile", refused.stderr)
            # Few ranges, so that it takes seconds.
            done = ask(*("lenet" if word == "lenet,har_cnn" else word for word in words), "--extra", "0", "--max-macs", "10000", "--burst-ms", "0")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("laptop.profile", done.stdout)

    def test_codecs(self):
        summary, _ = self.ask("runnel-lab", "codecs", "--codecs", "mbq:2", "--repetitions", "1")
        self.assertIn("codecs", summary)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
