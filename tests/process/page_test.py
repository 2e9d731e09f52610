#!/usr/bin/env python3
"""The page of a run, from the waiting room to the end.

    tests/process/page_test.py BINARIES [FOLDER]

A central on loopback waits for a worker, trains, loses one that is killed, and is done. What is asked without a browser: the data of
each state, that nobody else is asked for anything, foreign names, `status`, `devices`, the report. Where Debian's chromium is, also the
page as it is drawn: no sideways scrolling, no error of the console, contrast, the killed worker by name. FOLDER gets
screenshots.
"""

import contextlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "deploy/metrics"))
import browser as browsers  # noqa: E402
import reference  # noqa: E402

BINARIES = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/dev/bin").resolve()
SHOTS = pathlib.Path(sys.argv[2]).resolve() if len(sys.argv) > 2 else None
PATIENCE_S = 120
WIDTHS = (360, 768, 1280, 3840)


def wait_for(what, answer, patience_s=PATIENCE_S):
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        if (found := answer()):
            return found
        time.sleep(0.05)
    raise TimeoutError(f"not within {patience_s} s: {what}")


# A central that waits for one worker beside two of its own.
AWAITS_ONE = ("--model", "lenet", "--quick", "--local-workers", "2", "--workers", "1", "--epochs", "40", "--barrier-every", "20",
              "--checkpoint-dir", "checkpoints", "--report", "run.html", "--linger-s", "60")
# A residual block behind a gate.
GATED = {"format": "runnel-model", "version": 1, "name": "gated", "input": [1, 28, 28], "classes": 10, "layers": [
    {"name": "stem", "ops": [{"op": "conv", "out": 4, "kernel": 5, "stride": 2}, {"op": "relu"}]},
    {"name": "block", "ops": [{"op": "conv", "out": 4, "kernel": 3, "padding": 1}, {"op": "batch_norm"}, {"op": "relu"},
                              {"op": "conv", "out": 4, "kernel": 3, "padding": 1}, {"op": "batch_norm"}, {"op": "add", "from": [5, 0]},
                              {"op": "relu"}]},
    {"name": "head", "ops": [{"op": "global_avg_pool"}, {"op": "linear", "out": 10}]}]}


class Run:
    """A central and its files."""

    def __init__(self, folder, flags=AWAITS_ONE):
        self.folder = pathlib.Path(folder)
        # A folder of its own for who runs here: other tests have centrals too.
        self.environment = {"HOME": folder, "PATH": "/usr/bin:/bin", "NO_COLOR": "1", "RUNNEL_RUNTIME_DIR": folder + "/run",
                            "RUNNEL_SYSTEM_ROOT": folder}
        self.log = open(self.folder / "central.log", "w+")
        self.central = self.start(
            "runnel-central", "train", "--dataset", "synthetic_digits", "--metrics-port", "0", *flags, stdout=self.log,
            stderr=subprocess.STDOUT)
        self.url = wait_for("the page's address", lambda: self.find(r"(http://127\.0\.0\.1:\d+)/"))
        self.token = wait_for("the token of orders", lambda: self.find(r"orders: http://127\.0\.0\.1:\d+/#(\w+)"))
        self.worker = None

    def start(self, program, *arguments, **options):
        return subprocess.Popen([BINARIES / program, *arguments], cwd=self.folder, env=self.environment, **options)

    def find(self, pattern):
        match = re.search(pattern, (self.folder / "central.log").read_text())
        return match and match.group(1)

    def plant(self, path, text):
        """A sensor of the worker's device."""
        file = self.folder / "sys/class" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")

    def join(self, name, *flags):
        address = wait_for("how to join", lambda: self.find(r"runnel-worker --central (\S+)"))
        return self.start("runnel-worker", "--central", address, "--name", name, "--state-dir", "state-" + name, *flags,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def get(self, path, **headers):
        with urllib.request.urlopen(urllib.request.Request(self.url + path, headers=headers), timeout=10) as answer:
            return answer.read().decode(), answer.headers

    def state(self):
        return json.loads(self.get("/state")[0])

    def order(self, path, **headers):
        headers = {"X-Runnel-Token": self.token, **headers}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, headers=headers, method="POST"), timeout=10) as answer:
            return answer.status

    def ask(self, *command):
        return subprocess.run([BINARIES / "runnel-central", *command], cwd=self.folder, env=self.environment, capture_output=True,
                              text=True, timeout=60)

    def end(self):
        for process in (self.central, self.worker):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
        self.log.close()


class Page(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = self.stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        self.run_ = None
        program = browsers.find_chromium()
        self.browser = browsers.Browser(program) if program else None
        if self.browser:
            self.stack.callback(self.browser.close)

    def begin(self, *flags):
        self.run_ = Run(self.folder, *flags)
        self.stack.callback(self.run_.end)

    def check_shape(self, name, expected="no line is expected"):
        """The page as it is drawn now. expected: what the browser itself writes to its console."""
        if not self.browser:
            return
        for width in WIDTHS:
            for dark in (False, True):
                self.browser.show_as(width, dark)
                self.browser.evaluate("dispatchEvent(new Event('resize'))")
                wide = self.browser.evaluate("document.documentElement.scrollWidth")
                self.assertLessEqual(wide, width, f"{name} at {width}: {wide} px of content")
                self.assertEqual(self.browser.evaluate(browsers.LOW_CONTRAST), [], f"{name}, dark: {dark}")
                if SHOTS:
                    self.browser.screenshot(SHOTS / f"{name}_{width}{'_dark' if dark else ''}.png")
        self.assertEqual([error for error in self.browser.errors if expected not in error], [], name)

    def wait_drawn(self, text):
        if self.browser:
            return self.browser.wait_for(f"document.body.innerText.includes({json.dumps(text)})", PATIENCE_S)
        return 0

    def foreign(self):
        page, headers = self.run_.get("/")
        self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
        for address in re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\"' ]*", page):
            self.assertTrue(address.startswith(("http://www.w3.org/", "https://ui.perfetto.dev")), f"the page knows {address}")
        for header in ({"Host": "rebound.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
            with self.assertRaises(urllib.error.HTTPError) as refused:
                self.run_.get("/state", **header)
            self.assertEqual(refused.exception.code, 403)
        self.run_.get("/state", Origin=self.run_.url)

    def waiting(self):
        state = wait_for("the local workers", lambda: (s := self.run_.state()).get("join", {}).get("local_here") == 2 and s)
        self.assertEqual(state["phase"], "waiting")
        self.assertEqual((state["join"]["here"], state["join"]["wanted"]), (0, 1))
        self.assertIn("runnel-worker --central", state["join"]["commands"][0])
        if self.browser:
            self.browser.open(f"{self.run_.url}/#{self.run_.token}")
        self.wait_drawn("1 more awaited. Here: 0 of 1 that dial in, 2 of 2 on central's host.")
        self.check_shape("waiting")

    def documented(self, state):
        """Each key of the state stands in the header that says what it means, or is a figure."""
        root = pathlib.Path(__file__).resolve().parents[2]
        known = set(re.findall(r"\w+", (root / "central/display/state_json.h").read_text()))
        known |= set(re.findall(r"`(\w+)` \| yes", (root / "central/README.md").read_text()))

        def keys(value):
            if isinstance(value, dict):
                return set(value).union(*map(keys, value.values()))
            return set().union(*map(keys, value)) if isinstance(value, list) else set()
        self.assertEqual(keys(state) - known, set())

    def stays(self):
        """What a reader has selected, or points at, outlives the next state."""
        self.browser.evaluate("by('workers').querySelector('h3').firstChild.mark = 1; getSelection().selectAllChildren(by('workers').querySelector('h3'))")
        self.browser.evaluate("for (const key of ['End', 'ArrowLeft']) by('loss').dispatchEvent(new KeyboardEvent('keydown', {key}))")
        drawn = self.browser.evaluate("lastAt")
        self.browser.wait_for(f"lastAt > {drawn}", PATIENCE_S)
        self.assertEqual(self.browser.evaluate("by('workers').querySelector('h3').firstChild.mark"), 1)
        self.assertTrue(self.browser.evaluate("getSelection().toString()"))
        self.assertTrue(self.browser.evaluate("by('loss').querySelector('.cursor') !== null"))
        self.browser.evaluate("getSelection().removeAllRanges()")

    def training(self):
        for path, text in (("power_supply/BAT0/type", "Battery"), ("power_supply/BAT0/status", "Discharging"),
                           ("power_supply/BAT0/capacity", "37"), ("thermal/thermal_zone0/temp", "48500")):
            self.run_.plant(path, text)
        self.run_.worker = self.run_.join("pi-1", "--battery-floor", "20")
        state = wait_for("training", lambda: (s := self.run_.state())["phase"] == "training" and s["evaluations"] and s["busy"] and s)
        self.assertEqual(len(state["stages"]), 3)
        self.assertEqual({worker["name"] for worker in state["workers"]}, {"local-000", "local-001", "pi-1"})
        self.assertEqual(state["plans"][0]["generation"], 1)
        [own] = [worker for worker in state["workers"] if worker["name"] == "pi-1"]
        self.assertEqual(own["limits"], "battery 20 % or more")
        [stage] = [stage for stage in state["stages"] if stage["device"] == "pi-1"]
        self.assertEqual((stage["celsius"], stage["battery_charge"]), (48.5, 0.37))
        for share in ("forward", "backward", "wait", "send"):
            self.assertEqual(len(state["busy"][-1][share]), 3, share)
        self.wait_drawn("pi-1 → ")
        for text in ("48.5 °C", "37 %", "battery 20 % or more"):
            self.wait_drawn(text)
        if self.browser:
            for kind in ("forward", "backward", "wait"):
                self.browser.wait_for(f"document.querySelectorAll('#timeline rect.{kind}').length > 0", PATIENCE_S)
            self.assertRegex(self.browser.evaluate("by('timeline').innerText"), r"pi-1: forward [\d.]+ %, backward [\d.]+ %.*waits [\d.]+ %; sends")
            self.stays()
        self.documented(state)
        self.check_shape("training")
        status = self.run_.ask("status")
        self.assertEqual(status.returncode, 0, status.stderr)
        self.assertRegex(status.stdout, r"pi-1 +\.+#+ +trains layers")
        self.assertEqual(json.loads(self.run_.ask("status", "--json").stdout)["model"], "lenet")
        why = self.run_.ask("why")
        self.assertEqual(why.returncode, 0, why.stderr)
        self.assertIn("whose devices were not measured", why.stdout, "policy uniform measures nothing")
        devices = json.loads(self.run_.ask("devices", "--json").stdout)
        self.assertEqual([device["limits"] for device in devices["devices"]], ["", "", "battery 20 % or more"])
        self.assertIn("takes part with battery 20 % or more", self.run_.ask("devices").stdout)
        metrics = self.run_.get("/metrics")[0]
        self.assertGreater(len(reference.rows_of(metrics)), 45)
        self.assertEqual(list(reference.findings(reference.PAGE.read_text(), metrics)), [])

    def orders(self):
        with self.assertRaises(urllib.error.HTTPError) as refused:
            self.run_.order("/orders/pause", **{"X-Runnel-Token": "guess"})
        self.assertEqual(refused.exception.code, 403)
        self.press("pause", "/orders/pause")
        wait_for("the pause", lambda: self.run_.state()["phase"] == "paused")
        self.wait_drawn("Paused")
        self.press("pause", "/orders/continue")
        wait_for("training again", lambda: self.run_.state()["phase"] == "training")
        with self.assertRaises(urllib.error.HTTPError) as nothing:
            self.run_.order("/orders/what-if?assumption=leave:pi-1")
        self.assertEqual(nothing.exception.code, 409, "policy uniform measures nothing")
        with self.assertRaises(urllib.error.HTTPError) as nothing:
            self.run_.order("/orders/replan")
        self.assertEqual(nothing.exception.code, 409, "layers do not move in this run")
        self.press("trace", "/orders/trace?seconds=0.5")
        self.wait_drawn("The trace is there.")
        trace = json.loads(wait_for("the trace", lambda: self.run_.get("/trace")[0]))
        self.assertEqual(len([e for e in trace["traceEvents"] if e["name"] == "process_name"]), 3)

    def press(self, button, order):
        """The page's button, or without a browser what it asks."""
        if self.browser:
            self.browser.evaluate(f"document.getElementById('{button}').click()")
        else:
            self.assertIn(self.run_.order(order), (200, 204))

    def lost(self):
        self.run_.worker.kill()
        self.run_.worker.wait()
        begin = time.monotonic()
        wait_for("pi-1 on /state", lambda: any(e["kind"] == "lost" and "pi-1" in e["what"] and e["why"] for e in self.run_.state()["events"]))
        self.wait_drawn("pi-1 is lost")
        seconds = time.monotonic() - begin
        print(f"a killed worker is shown after {seconds:.2f} s")
        wait_for("the next plan", lambda: len((s := self.run_.state())["stages"]) == 2 and s["phase"] == "training")
        wait_for("no series of what is gone", lambda: [line for line in self.run_.get("/metrics")[0].splitlines() if '"pi-1"' in line] ==
                 ['runnel_worker_up{worker="pi-1"} 0'])
        self.wait_drawn("without pi-1")
        self.check_shape("lost")

    def drained(self):
        self.run_.worker = self.run_.join("pi-2")
        wait_for("a stage of pi-2", lambda: any(stage["device"] == "pi-2" for stage in self.run_.state()["stages"]))
        self.wait_drawn("● pi-2")
        self.run_.order("/orders/drain?name=pi-2")
        wait_for("a run without it", lambda: (s := self.run_.state())["phase"] == "training" and
                 not any(worker["name"] == "pi-2" for worker in s["workers"]))
        self.wait_drawn("pi-2 has left")
        self.check_shape("drained")

    def done(self):
        self.press("stop", "/orders/stop")
        wait_for("the end", lambda: self.run_.state()["phase"] == "done")
        self.wait_drawn("Ended after")
        self.check_shape("done")
        wait_for("the report", lambda: (self.run_.folder / "run.html").exists())
        if self.browser:
            self.browser.open((self.run_.folder / "run.html").as_uri())
            self.wait_drawn("pi-1 is lost")
            self.check_shape("report")
            asked = [url for url in self.browser.requests if not url.startswith((self.run_.url, "file:", "data:", "about:"))]
            self.assertEqual(asked, [])
        else:
            self.assertIn("pi-1 is lost", (self.run_.folder / "run.html").read_text())
        # Nobody reads the page any more.
        self.assertEqual(self.run_.central.wait(60), 130, "stopped before the end")

    def test_gates_and_a_stop_that_loses_weights(self):
        path = pathlib.Path(self.folder) / "gated.json"
        path.write_text(json.dumps(GATED))
        self.begin(("--model", f"json:{path}", "--local-workers", "2", "--quick", "--recipe", "sbm:8,8,8", "--gates",
                    "ff:0,3,8/6,6,8@beta:0.01", "--batch-size", "8", "--barrier-every", "5", "--eval-every", "-1", "--epochs", "40",
                    "--linger-s", "0"))
        [gate] = wait_for("what the gate chose", lambda: self.run_.state().get("gates"))
        self.assertEqual((gate["layer"], gate["options"]), ("block", ["0", "3/6", "8/8"]))
        self.assertEqual(sum(gate["samples"]) % 40, 0, "as of a barrier")
        if self.browser:
            self.browser.open(f"{self.run_.url}/#{self.run_.token}")
            self.wait_drawn("Samples skipped ")
            self.check_shape("gates")
            for answer in ("stopping loses the weights", "training ends at the next barrier"):
                self.press("stop", "")
                self.wait_drawn(answer)
        else:
            with self.assertRaises(urllib.error.HTTPError) as refused:
                self.run_.order("/orders/stop")
            self.assertEqual(refused.exception.code, 409)
            self.assertEqual(self.run_.order("/orders/stop?sure=yes"), 200)
        self.assertEqual(self.run_.central.wait(PATIENCE_S), 130, "stopped before the end")

    def test_from_the_waiting_room_to_the_end(self):
        self.begin()
        self.foreign()
        self.waiting()
        self.training()
        self.orders()
        self.lost()
        self.drained()
        self.done()

    def test_central_that_is_gone(self):
        self.begin(("--model", "lenet", "--local-workers", "2", "--quick", "--epochs", "400"))
        wait_for("training", lambda: self.run_.state()["phase"] == "training")
        if not self.browser:
            return
        self.browser.open(f"{self.run_.url}/#{self.run_.token}")
        self.wait_drawn("Training")
        self.run_.central.kill()
        self.run_.central.wait()
        self.wait_drawn("Central does not answer")
        self.wait_drawn("What is below is 0:0")
        self.check_shape("gone", expected="ERR_CONNECTION_REFUSED")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
