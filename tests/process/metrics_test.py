#!/usr/bin/env python3
"""Page and metrics over TLS, and a real Prometheus that scrapes them.

    tests/process/metrics_test.py BINARIES

A cluster with certificates on loopback: a worker is drained, another one killed. Who may read is asked as a user would: with the read
token, an operator's certificate, nothing. Where Debian's prometheus is, it scrapes by the example of deploy/metrics: of what is gone
there is no series, and the alert of a lost worker fires, alone. Where Debian's chromium is, the page asks for the token that it lacks.
"""

import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse
import urllib.request

sys.dont_write_bytecode = True
import browser as browsers  # noqa: E402

BINARIES = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/dev/bin").resolve()
METRICS = pathlib.Path(__file__).resolve().parents[2] / "deploy/metrics"
PATIENCE_S = 120
# Of a name that the certificate has: the address of the test is no name.
CENTRAL = "central.server.runnel"


def wait_for(what, answer, patience_s=PATIENCE_S):
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        if found := answer():
            return found
        time.sleep(0.05)
    raise TimeoutError(f"not within {patience_s} s: {what}")


class Run:
    """A central with certificates, a page over TLS and two workers that joined by tokens."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.home = self.folder / "home"
        self.environment = {"HOME": folder, "PATH": "/usr/bin:/bin", "NO_COLOR": "1", "RUNNEL_HOME": str(self.home),
                            "RUNNEL_RUNTIME_DIR": folder + "/run", "RUNNEL_SYSTEM_ROOT": folder}
        self.processes = []
        self.files = []
        self.log = self.folder / "central.log"
        self.ask("init")
        with open(self.log, "w") as log:
            self.central = self.start("runnel-central", "train", "--model", "lenet", "--dataset", "synthetic_digits", "--quick",
                                      "--local-workers", "1", "--workers", "2", "--epochs", "60", "--barrier-every", "20", "--listen",
                                      "127.0.0.1:0", "--http-listen", "127.0.0.1:0", stdout=log, stderr=subprocess.STDOUT)
        self.port, self.read_token = wait_for("the page's address", lambda: re.search(
            r"page over TLS: https://127\.0\.0\.1:(\d+)/#read=(\w+)", self.log.read_text())).groups()
        self.door = wait_for("how to join", lambda: re.search(r"--join TOKEN@(\S+)", self.log.read_text())).group(1)

    def start(self, program, *arguments, **options):
        process = subprocess.Popen([BINARIES / program, *arguments], cwd=self.folder, env=self.environment, **options)
        self.processes.append(process)
        return process

    def ask(self, *command):
        return subprocess.run([BINARIES / "runnel-central", *command], cwd=self.folder, env=self.environment, capture_output=True,
                              text=True, timeout=60, check=True).stdout.strip()

    def join(self, name):
        return self.start("runnel-worker", "--join", f"{self.ask('token', '--name', name)}@{self.door}", "--state-dir", "state-" + name,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def get(self, path, method="GET", operator=False, **headers):
        """Checks central's certificate, and its name."""
        context = ssl.create_default_context(cafile=self.home / "authority.pem")
        if operator:
            context.load_cert_chain(self.home / "operator/identity.pem")
        # The address of central in the place of a name server's.
        connection = Connection(CENTRAL, int(self.port), context)
        connection.request(method, path, headers={"Content-Length": "0", **headers} if method == "POST" else headers)
        with contextlib.closing(connection):
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def metrics(self):
        return self.get("/metrics", Authorization="Bearer " + self.read_token)[1]

    def end(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        for file in self.files:
            file.close()


class Connection(http.client.HTTPSConnection):
    """HTTPS to a name that loopback has here."""

    def __init__(self, name, port, context):
        super().__init__(name, port, timeout=10, context=context)
        self.tls = context

    def connect(self):
        self.sock = self.tls.wrap_socket(socket.create_connection(("127.0.0.1", self.port), 10), server_hostname=self.host)


class Prometheus:
    """Debian's, by the example of deploy/metrics with this run's address."""

    def __init__(self, program, run):
        self.folder = run.folder / "prometheus"
        self.folder.mkdir()
        example = (METRICS / "prometheus_tls.yml").read_text()
        (self.folder / "read_token").write_text(run.read_token)
        for of_example, here in (("192.168.1.10:9443", "127.0.0.1:" + run.port), ("authority.pem", str(run.home / "authority.pem")),
                                 ("page_token", str(self.folder / "read_token")), ("alerts.yml", str(METRICS / "alerts.yml")),
                                 ("evaluation_interval: 5s", "evaluation_interval: 1s")):
            assert of_example in example, f"prometheus_tls.yml has no {of_example}"
            example = example.replace(of_example, here)
        (self.folder / "prometheus.yml").write_text(example)
        log = open(self.folder / "log", "w")
        run.files.append(log)
        # It has no "any free port"; its own answer says who listens.
        for port in range(19090 + os.getpid() % 1000, 65000, 97):
            self.url = f"http://127.0.0.1:{port}"
            self.process = subprocess.Popen(
                [program, "--config.file", self.folder / "prometheus.yml", "--storage.tsdb.path", self.folder / "data",
                 "--web.listen-address", f"127.0.0.1:{port}"], stdout=log, stderr=subprocess.STDOUT)
            run.processes.append(self.process)
            if wait_for("Prometheus", lambda: self.is_ready() or self.process.poll() is not None) is True and self.process.poll() is None:
                return
        raise RuntimeError((self.folder / "log").read_text())

    def is_ready(self):
        try:
            with urllib.request.urlopen(self.url + "/-/ready", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def get(self, path, **query):
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
            return json.loads(answer.read())["data"]

    def series(self, query):
        return {one["metric"]["__name__"]: one["value"][1] for one in self.get("query", query=query)["result"]}

    def alerts(self, *states):
        return {(alert["labels"]["alertname"], alert["labels"].get("worker")) for alert in self.get("alerts")["alerts"]
                if alert["state"] in states}


class Metrics(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.run_ = Run(folder.name)
        self.addCleanup(self.run_.end)
        self.workers = [self.run_.join(name) for name in ("pi-1", "pi-2")]
        self.await_state("training", lambda state: state["phase"] == "training" and len(state["stages"]) == 3 and state["busy"])

    def await_state(self, what, holds):
        read = {"Authorization": "Bearer " + self.run_.read_token}
        return wait_for(what, lambda: holds(json.loads(self.run_.get("/state", **read)[1])))

    def test_who_may_read(self):
        get, token = self.run_.get, {"Authorization": "Bearer " + self.run_.read_token}
        for path in ("/metrics", "/state"):
            self.assertEqual(get(path)[0], 401)
            self.assertEqual(get(path, Authorization="Bearer guess")[0], 401)
            self.assertEqual(get(path, **token)[0], 200)
            self.assertEqual(get(path, operator=True)[0], 200)
        self.assertEqual([get(path)[0] for path in ("/", "/healthz", "/readyz")], [200, 200, 200])
        self.assertEqual(get("/orders/pause", "POST", **token)[0], 403)
        self.assertEqual(get("/orders/pause", "POST", operator=True)[0], 204)
        self.await_state("the pause", lambda state: state["phase"] == "paused")
        self.assertEqual((self.run_.home / "page_token").stat().st_mode & 0o777, 0o600)
        self.assertEqual((self.run_.home / "page_token").read_text().strip(), self.run_.read_token)

    def test_the_page_asks_for_the_token(self):
        stage = wait_for("the certificate's end", lambda: [stage for stage in json.loads(self.run_.get(
            "/state", Authorization="Bearer " + self.run_.read_token)[1])["stages"] if stage.get("certificate_until_s")])[0]
        self.assertGreater(stage["certificate_until_s"], time.time())
        program = browsers.find_chromium()
        if not program:
            print("without Chromium: the page is not drawn")
            return
        # Its authority is this test's own.
        browser = browsers.Browser(program, "--ignore-certificate-errors")
        self.addCleanup(browser.close)
        browser.open(f"https://127.0.0.1:{self.run_.port}/#read=guess")
        browser.wait_for("document.body.innerText.includes('That address, or its token')")
        give = "by('token').value = {}; by('no-right').requestSubmit()"
        browser.evaluate(give.format("'another guess'"))
        browser.wait_for("!by('no-right').hidden && location.hash.includes('another')")
        self.assertFalse(browser.evaluate("document.body.innerText.includes('Certificate until')"))
        browser.evaluate(give.format(json.dumps(self.run_.read_token)))
        browser.wait_for("by('no-right').hidden && document.body.innerText.includes('Certificate until')")
        self.assertTrue(browser.evaluate("by('orders').hidden"), "it only reads")

    def test_without_certificates_there_is_none(self):
        environment = {**self.run_.environment, "RUNNEL_HOME": str(self.run_.folder / "none")}
        refused = subprocess.run([BINARIES / "runnel-central", "train", "--http-listen", "127.0.0.1:0"], env=environment,
                                 capture_output=True, text=True, timeout=60)
        self.assertEqual(refused.returncode, 2)
        self.assertRegex(refused.stderr, r"^runnel-central: --http-listen: needs certificates.*runnel-central init.*\n$")

    def test_a_loss_and_a_drain_under_prometheus(self):
        program = shutil.which("prometheus")
        if not program:
            print("without Prometheus: central alone is asked")
        prometheus = Prometheus(program, self.run_) if program else None
        if prometheus:
            checked = subprocess.run([shutil.which("promtool"), "check", "metrics"], input=self.run_.metrics(), capture_output=True,
                                     text=True, timeout=60)
            self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
            self.assertEqual(checked.stderr + checked.stdout, "", "promtool has something to say")
            wait_for("series of both", lambda: all(len(prometheus.series(f'{{worker="{name}"}}')) > 10 for name in ("pi-1", "pi-2")))
            self.assertEqual(prometheus.alerts("firing", "pending"), set())
            wait_for("how long most forwards take", lambda: [one for one in prometheus.get(
                "query", query="histogram_quantile(0.95, rate(runnel_stage_forward_seconds_bucket[15s])) > 0")["result"]
                if one["value"][1] != "NaN"])
            for family in ("runnel_link_send_seconds_sum", "process_memory_usage_bytes", "process_cpu_time_seconds_total",
                           "runnel_stage_certificate_expiry_timestamp_seconds"):
                self.assertTrue(prometheus.series(family), family)
        self.run_.ask("drain", "pi-2")
        self.expect_gone("pi-2", prometheus, {})
        self.workers[0].kill()
        self.workers[0].wait()
        self.expect_gone("pi-1", prometheus, {"runnel_worker_up": "0"})
        if prometheus:
            wait_for("the alert", lambda: ("RunnelWorkerLost", "pi-1") in prometheus.alerts("firing"))
            self.assertEqual(prometheus.alerts("firing"), {("RunnelWorkerLost", "pi-1")})

    def expect_gone(self, name, prometheus, left):
        """Central shows no series but `left` of the worker, and the next scrape ends those of Prometheus."""
        lines = [f'{metric}{{worker="{name}"}} {value}' for metric, value in left.items()]
        wait_for(f"no series of {name}", lambda: [line for line in self.run_.metrics().splitlines() if f'"{name}"' in line] == lines)
        if not prometheus:
            return
        begin = time.monotonic()
        wait_for(f"no series of {name} in Prometheus",
                 lambda: {metric: value for metric, value in prometheus.series(f'{{__name__=~"(runnel|hw|process)_.*",worker="{name}"}}').items()} == left)
        print(f"Prometheus has no series of {name} after another {time.monotonic() - begin:.1f} s")
        for end in ("from", "to"):
            self.assertEqual(prometheus.series(f'{{__name__=~"(runnel|hw|process)_.*",{end}="{name}"}}'), {}, "links")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
