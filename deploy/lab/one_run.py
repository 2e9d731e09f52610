"""One training inside the sandbox: hosts up, daemons and central started, the summary collected.

Started by run.py as the first process of a sandbox (sandbox.py) with a job file; whatever is left
when it ends, ends with it.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import time

import cpu_quota
import network
from sandbox import Interrupted, LabError, die_with_parent, interruptible

CENTRAL_PORT = 7000
STOP_SECONDS = 5
# Changes of links count from the first plan on, which central prints by its stages.
PLAN_LINE = b"stage 0: "
POLL_SECONDS = 0.1


class Children:
    """The lab's processes, each with its output in a file."""

    def __init__(self, folder):
        self.folder = folder
        self.names = []
        self.children = []

    def start(self, name, command, group, environment):
        def prepare():
            die_with_parent()
            if group:
                cpu_quota.join(group)
        with open(f"{self.folder}/{name}.log", "wb") as log:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                     start_new_session=True, preexec_fn=prepare, env=environment)
        self.names.append(name)
        self.children.append(child)
        return child

    def failed(self):
        """Names of those that have ended with an error."""
        return [name for name, child in zip(self.names, self.children) if child.poll()]

    def stop(self):
        for child in self.children:
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        for child in self.children:
            try:
                child.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def backend_flags(host):
    """What the host's worker computes with, where the scenario says so."""
    return ["--backend", host["backend"]] if host.get("backend") else []


def local_worker(job):
    """The program that central starts as its own host's worker: of a host with a backend, a script
    that adds it."""
    flags = backend_flags(job["hosts"][0])
    if not flags:
        return job["worker"]
    path = job["folder"] + "/local-worker"
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexec {shlex.join([job["worker"]] + flags)} "$@"\n')
    os.chmod(path, 0o755)
    return path


def _environment(job, host):
    environment = dict(os.environ)
    environment.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
                        "RUNNEL_WORKER": local_worker(job) if host == 0 else job["worker"]})
    # Hosts of every run measure anew, unless the user names a folder for what they find: one of its
    # own for each host, since hosts of one processor differ by their quotas only.
    kept = environment.get("RUNNEL_STATE_DIR", "")
    environment["RUNNEL_STATE_DIR"] = os.path.join(os.path.abspath(kept), f"host-{host}") \
        if kept else ""
    return environment


def commands(job):
    """(name, host, command) of central and the daemons; central first."""
    address = network.data_address if job["shared_control"] else network.control_address
    central = f"{address(0)}:{CENTRAL_PORT}"
    yield "central", 0, [job["central"], "--insecure-network", "train", "--listen", central,
                         "--workers", str(len(job["hosts"]) - 1), "--worker-timeout-s", "120",
                         "--summary", job["folder"] + "/summary.json"] + job["train"]
    for host in range(1, len(job["hosts"])):
        yield f"worker-{host}", host, [
            job["worker"], "--once", "--insecure-network", "--central", central, "--name",
            f"{host:02}-{job['hosts'][host]['name']}", "--listen",
            f"{network.data_address(host)}:0", "--threads", str(job["hosts"][host]["threads"]),
            "--connect-timeout-ms", "120000"] + backend_flags(job["hosts"][host])


def _tail(path, lines=3):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return " | ".join(file.read().strip().splitlines()[-lines:])
    except OSError:
        return ""


def _has_plan(folder):
    with open(folder + "/central.log", "rb") as log:
        return PLAN_LINE in log.read()


def _change_links(before, after):
    for i, rates in enumerate(after):
        for j, mbps in enumerate(rates):
            if i != j and mbps != before[i][j]:
                network.shape(i, j, mbps)


def _await(central, job, children):
    """Central's exit code; meanwhile links change as the job says. Central would wait on for a worker
    that cannot begin; one that ends later is lost, and the others go on."""
    deadline = time.monotonic() + job["timeout_s"]
    changes, mbps, planned_at = list(job["changes"]), job["mbps"], None
    while True:
        left = deadline - time.monotonic()
        try:
            polls = changes or planned_at is None
            return central.wait(min(POLL_SECONDS, left) if polls else left)
        except subprocess.TimeoutExpired:
            if left <= 0:
                raise
        if planned_at is None and _has_plan(job["folder"]):
            planned_at = time.monotonic()
        for name in children.failed() if planned_at is None else []:
            raise LabError(f"{name} ended: {_tail(job['folder'] + '/' + name + '.log')}")
        while changes and planned_at is not None and \
                time.monotonic() - planned_at >= changes[0][0]:
            after = changes.pop(0)[1]
            _change_links(mbps, after)
            mbps = after


def run(job):
    """Runs the job; what the lab has to say beside central's summary."""
    def mbps(i, j):
        return job["mbps"][i][j]
    network.bring_up(len(job["hosts"]), mbps, job["media"])
    children = Children(job["folder"])
    try:
        for name, host, command in commands(job):
            child = children.start(name, network.in_host(host, command),
                                   job["groups"][host] if job["groups"] else None,
                                   _environment(job, host))
            if name == "central":
                central = child
        try:
            code = _await(central, job, children)
        except subprocess.TimeoutExpired as error:
            raise LabError(f"no end after {job['timeout_s']} s (--timeout-s); central last said: "
                           f"{_tail(job['folder'] + '/central.log')}") from error
        if code != 0:
            raise LabError(f"central ended with {code}: {_tail(job['folder'] + '/central.log')}")
    finally:
        children.stop()


def main():
    interruptible()
    with open(sys.argv[1], encoding="utf-8") as file:
        job = json.load(file)
    try:
        run(job)
    except Interrupted as interrupt:
        return 128 + interrupt.number
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
