"""deploy/lab/sweep.sh: a scenario under several policies and bandwidths, measured or simulated."""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import cpu_quota
import report
import run
import sandbox
import scenario as scenarios
from sandbox import LabError

def parse_arguments(words):
    parser = argparse.ArgumentParser(
        prog="deploy/lab/sweep.sh", description="Runs a scenario under each policy and bandwidth, "
        "in the lab (root) or simulated, and writes Markdown, CSV and SVG plots. A sweep that was "
        "stopped goes on where it was. Policies: the methods that runnel-lab simulate "
        "--list-methods knows, or any policy of runnel-central. Flags after -- go to runnel-central "
        "train.")
    run.add_common_flags(parser)
    parser.add_argument("--simulate", action="store_true", help="runnel-lab simulate instead")
    parser.add_argument("--policies", help="default: ftpipehd,compression,predictor,accept,runnel; with "
                        "--simulate what runnel-lab simulate takes by default")
    parser.add_argument("--mbps", default="0.25,0.5,1,2,4", help="default: %(default)s")
    parser.add_argument("--repeats", type=int, default=1, help="runs of a cell; medians count")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, where the links are "
                        "what takes the time")
    parser.add_argument("--work", help="folder of the cells and the report "
                        "(default: build/lab/SCENARIO)")
    parser.add_argument("--summary", help="JSON: plan, seconds_per_batch, speedup_vs_ftpipehd by "
                        "policy and bandwidth")
    at = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_args(words[:at])
    arguments.train = words[at + 1:]
    if not (arguments.policies or arguments.simulate):
        arguments.policies = "ftpipehd,compression,predictor,accept,runnel"
    arguments.policies = (arguments.policies or "").split(",")
    arguments.mbps = [float(word) for word in arguments.mbps.split(",")]
    if min(arguments.repeats, arguments.jobs) < 1 or min(arguments.mbps) <= 0:
        raise LabError("--repeats, --jobs and --mbps must be above zero")
    return arguments


def load_methods(folder):
    """What a name in --policies means to central: flags of its train command by name."""
    [lab] = run.binaries(folder, ["runnel-lab"])
    listed = subprocess.run([lab, "simulate", "--list-methods"], capture_output=True, text=True,
                            check=False)
    if listed.returncode != 0:
        raise LabError(f"{lab} does not list its methods: {listed.stderr.strip()}")
    return {method["name"]: method["train_flags"] for method in json.loads(listed.stdout)}


def version_of(arguments, program):
    [path] = run.binaries(arguments.bin, [program])
    return subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout.strip()


def commit_of_checkout():
    """With "-dirty" where something is not committed; empty: it is no checkout, or there is no git."""
    try:
        done = subprocess.run(["git", "-C", run.REPOSITORY, "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True,
                              text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def method_flags(arguments, name):
    return arguments.methods.get(name, ["--policy", name])


def fingerprint(case, arguments, policy):
    """What a finished cell must have been run with to count."""
    shares = run.shares_of(case, arguments.cpu)
    given = [scenarios.under_quotas(case, shares), shares, arguments.batches, arguments.warm_up,
             arguments.shared_control, arguments.dataset, arguments.train,
             method_flags(arguments, policy)]
    return hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()


def finished(path, mark):
    try:
        with open(path, encoding="utf-8") as file:
            summary = json.load(file)
        return summary if summary["lab"]["fingerprint"] == mark else None
    except (OSError, ValueError, KeyError):
        return None


class Cell:
    """One run of the grid: a process of run.py's, or a file of an earlier sweep."""

    def __init__(self, case, arguments, work, policy, mbps, repeat):
        self.policy, self.mbps = policy, mbps
        self.name = f"{policy}@{mbps:g}#{repeat}"
        self.path = f"{work}/cells/{self.name}.json"
        self.mark = fingerprint(case, arguments, policy)
        self.summary = finished(self.path, self.mark)
        self.command = [sys.executable, "-B", os.path.join(run.HERE, "run.py"), case["path"], "--bin",
                        arguments.bin, "--batches", str(arguments.batches), "--warm-up",
                        str(arguments.warm_up), "--timeout-s", str(arguments.timeout_s), "--mbps",
                        str(mbps), "--summary", self.path + ".part"]
        for flag, value in (("--cpu", arguments.cpu), ("--dataset", arguments.dataset),
                            ("--data-dir", arguments.data_dir)):
            self.command += [flag, value] if value else []
        self.command += [] if arguments.shared_control else ["--no-shared-control"]
        self.command += ["--"] + method_flags(arguments, policy) + arguments.train
        self.process = None

    def start(self):
        # A process group of its own: Ctrl-C comes to us, and from us to it.
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True, start_new_session=True,
                                        preexec_fn=sandbox.die_with_parent)

    def collect(self):
        """None, or why it failed."""
        error = self.process.communicate()[1].strip()
        if self.process.returncode != 0:
            return f"{self.name}: {error or self.process.returncode}"
        with open(self.path + ".part", encoding="utf-8") as file:
            self.summary = json.load(file)
        self.summary["lab"]["fingerprint"] = self.mark
        with open(self.path + ".part", "w", encoding="utf-8") as file:
            json.dump(self.summary, file, indent=1)
        os.replace(self.path + ".part", self.path)
        return None

    def tell(self):
        seconds = self.summary["lab"]["seconds_per_batch"]
        print(f"{self.name:24} {run.seconds_text(seconds)}, "
              f"{report.plan_text(self.summary['plan'])}", flush=True)


def run_cells(cells, jobs):
    """Runs what has no summary yet, `jobs` at a time; what failed, a line each."""
    waiting = [cell for cell in cells if cell.summary is None]
    running, failures = [], []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(waiting.pop(0))
                running[-1].start()
            time.sleep(0.2)
            for cell in [one for one in running if one.process.poll() is not None]:
                running.remove(cell)
                failure = cell.collect()
                if failure:
                    failures.append(failure)
                    print(failure, flush=True)
                else:
                    cell.tell()
    finally:
        for cell in running:
            cell.process.terminate()
        for cell in running:
            cell.process.communicate()
    return failures


def measure(case, arguments, work):
    """The results, and what failed. Repeats are the outer loop, so that what the machine does
    meanwhile falls on all alike."""
    os.makedirs(work + "/cells", exist_ok=True)
    cells = [Cell(case, arguments, work, policy, mbps, repeat)
             for repeat in range(arguments.repeats) for mbps in arguments.mbps
             for policy in arguments.policies]
    failures = run_cells(cells, arguments.jobs)
    grid = {}
    for cell in cells:
        if cell.summary is not None:
            grid.setdefault((cell.policy, cell.mbps), []).append(cell.summary)
    batch_size = case["training"]["batch_size"]
    return [result_of(policy, mbps, batch_size, runs)
            for (policy, mbps), runs in grid.items()], failures


def median_of(runs, key):
    values = [one["lab"].get(key) for one in runs]
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def middle_run(runs):
    """The run whose time is the median, of an even number the quicker of the two: each run profiles
    anew, so plans may differ, and a plan should stand beside the time that it gave."""
    timed = [one for one in runs if one["lab"]["seconds_per_batch"] is not None] or runs[:1]
    timed.sort(key=lambda one: one["lab"]["seconds_per_batch"] or 0)
    return timed[(len(timed) - 1) // 2]


def result_of(policy, mbps, batch_size, runs):
    seconds = [one["lab"]["seconds_per_batch"] for one in runs]
    seconds = [value for value in seconds if value is not None]
    middle = middle_run(runs)
    median = statistics.median(seconds) if seconds else None
    predicted = median_of(runs, "predicted_seconds_per_batch")
    return {"method": policy, "mbps": mbps, "plan": middle["plan"],
            "plan_text": report.plan_text(middle["plan"]),
            "links": [{key: link[key] for key in ("codec_forward", "codec_backward")}
                      for link in middle["links"]],
            "predicted_seconds_per_batch": predicted,
            "predicted_samples_per_s": batch_size / predicted if predicted else None,
            "prediction_error": median_of(runs, "prediction_error"),
            "efficiency_steady": median_of(runs, "efficiency_steady"),
            "efficiency_computation": median_of(runs, "efficiency_computation"),
            "efficiency_end_to_end": median_of(runs, "efficiency_end_to_end"),
            "seconds_per_batch": median,
            "samples_per_s": batch_size / median if median else None,
            "runs": seconds, "no_seconds_because": None if seconds else run.TOO_QUICK,
            "load_average": max((one["lab"]["load_average"][0][0] for one in runs if "load_average" in one["lab"]), default=None),
            "run_plans": [report.plan_text(one["plan"]) for one in runs
                          if one["lab"]["seconds_per_batch"] is not None]}


def add_speedups(results):
    for row in results:
        base = report.cell(results, "ftpipehd", row["mbps"])
        if base and base["seconds_per_batch"] and row["seconds_per_batch"]:
            row["speedup_vs_ftpipehd"] = base["seconds_per_batch"] / row["seconds_per_batch"]


def simulate(case, arguments):
    """The same grid by runnel-lab simulate, which adds the ablations by itself."""
    [lab] = run.binaries(arguments.bin, ["runnel-lab"])
    with tempfile.TemporaryDirectory(prefix="runnel-lab-") as folder:
        path = folder + "/summary.json"
        command = [lab, "simulate", case["path"],
                   "--mbps", ",".join(f"{rate:g}" for rate in arguments.mbps), "--summary", path]
        command += ["--policies", ",".join(arguments.policies)] if any(arguments.policies) else []
        if subprocess.run(command + arguments.train, check=False).returncode != 0:
            raise LabError("the simulation failed (above)")
        with open(path, encoding="utf-8") as file:
            return dict(json.load(file), mode="simulated")


def main(words):
    arguments = parse_arguments(words)
    case = scenarios.load(arguments.scenario)
    arguments.methods = load_methods(arguments.bin)
    work = arguments.work or os.path.join(run.REPOSITORY, "build/lab", case["name"])
    os.makedirs(work, exist_ok=True)
    failures, load = [], os.getloadavg()[0]
    if arguments.simulate:
        summary = simulate(case, arguments)
        summary["version"] = version_of(arguments, "runnel-lab")
        for row in summary["results"][0]["cells"]:
            row["load_average"] = round(load, 2)
    else:
        sandbox.interruptible()
        why = sandbox.missing_for_lab()
        if why:
            raise LabError(why)
        cpu_quota.remove_stale()
        results, failures = measure(case, arguments, work)
        add_speedups(results)
        shares = ",".join(f"{share:g}" for share in run.shares_of(case, arguments.cpu))
        summary = {"mode": "measured", "results": [{"scenario": case["name"], "cells": results}],
                   "version": version_of(arguments, "runnel-central"),
                   "notes": [f"CPU quotas {shares} of a core, {arguments.batches} batches after "
                             f"{arguments.warm_up}, medians of {arguments.repeats}."]}
    summary["commit"] = commit_of_checkout()
    if arguments.summary:
        with open(arguments.summary, "w", encoding="utf-8") as file:
            json.dump(summary, file, indent=1)
    print("\n".join(report.write(summary, work)))
    if failures:
        raise LabError(f"{len(failures)} cells failed; the same command tries them again")


if __name__ == "__main__":
    sys.exit(run.guarded(main, sys.argv[1:]))
