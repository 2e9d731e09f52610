"""deploy/lab/transfer.sh: frames of our transport beside raw TCP over one shaped link."""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import network
import run
import sandbox
from sandbox import Interrupted, LabError

PORT = 7100


def parse_arguments(words):
    parser = argparse.ArgumentParser(
        prog="deploy/lab/transfer.sh", description="Sends frames through the transport and the same "
        "bytes through raw TCP, in turns, over a link between two name spaces (veth, tc tbf, MTU "
        "1500). Needs root. Prints medians and their ratio.")
    parser.add_argument("--bench", default=os.path.join(
        run.REPOSITORY, "build/release/bin/bench_transfer"), help="default: %(default)s "
        "(cmake --build --preset release --target bench_transfer)")
    parser.add_argument("--mbps", default="50", help="rates, e.g. 1,10,50 (default: %(default)s)")
    parser.add_argument("--bytes", default=str(4096 * 1024), help="frame sizes, e.g. 4194304,81920")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--summary")
    return parser.parse_args(words)


def inside(job):
    """In the sandbox: one server and one client for each rate."""
    sandbox.interruptible()
    network.bring_up(2, lambda i, j: job["mbps"][0])
    rows = []
    for mbps in job["mbps"]:
        network.shape(0, 1, mbps)
        network.shape(1, 0, mbps)
        address = f"{network.data_address(1)}:{PORT}"
        server = subprocess.Popen(network.in_host(1, [job["bench"], "--serve", address]),
                                  preexec_fn=sandbox.die_with_parent)
        print(f"{mbps:g} Mbps", flush=True)
        path = job["folder"] + "/rows.json"
        done = subprocess.run(network.in_host(0, [
            job["bench"], "--to", address, "--bytes", job["bytes"], "--rounds", str(job["rounds"]),
            "--summary", path]), check=False, preexec_fn=sandbox.die_with_parent)
        if done.returncode != 0 or server.wait(30) != 0:
            raise LabError("bench_transfer failed (above)")
        with open(path, encoding="utf-8") as file:
            rows += [dict(row, mbps=mbps) for row in json.load(file)]
    with open(job["folder"] + "/all.json", "w", encoding="utf-8") as file:
        json.dump(rows, file)


def main(words):
    if words[:1] == ["--inside"]:
        with open(words[1], encoding="utf-8") as file:
            inside(json.load(file))
        return
    sandbox.interruptible()
    arguments = parse_arguments(words)
    why = sandbox.missing_for_lab()
    if why:
        raise LabError(why)
    if not os.access(arguments.bench, os.X_OK):
        raise LabError(f"{arguments.bench} is not there: build it, or name it with --bench")
    with tempfile.TemporaryDirectory(prefix="runnel-lab-") as folder:
        job = {"bench": os.path.abspath(arguments.bench), "folder": folder,
               "mbps": [float(word) for word in arguments.mbps.split(",")],
               "bytes": arguments.bytes, "rounds": arguments.rounds}
        path = os.path.join(folder, "job.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(job, file)
        code = sandbox.run_inside([os.path.abspath(__file__), "--inside", path])
        if code != 0:
            raise LabError(f"the transfers ended with {code}")
        with open(os.path.join(folder, "all.json"), encoding="utf-8") as file:
            rows = json.load(file)
    if arguments.summary:
        with open(arguments.summary, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    sys.exit(run.guarded(main, sys.argv[1:]))
