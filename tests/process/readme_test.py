#!/usr/bin/env python3
"""Types what README tells its readers to type, on four hosts with links of 50 Mbps.

    tests/process/readme_test.py BINARIES

The hosts are network name spaces with README's addresses: the laptop and three Pis. `scp` and `ssh` go to the name spaces, and the
worker that is copied there is the native one in place of the cross-built: else every line is README's own. Data in MNIST's format
are made here. Exit code 0: every line ended as README says. 77: no root, or no network name spaces.
"""

import os
import pathlib
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy/lab"))
from sandbox import missing_for_lab, run_inside  # noqa: E402

LAPTOP, PIS = "192.168.1.10", ["192.168.1.11", "192.168.1.12", "192.168.1.13"]
MBPS = 50
PATIENCE_S = 240


def blocks_of(readme):
    """The ```sh blocks, by the heading above each."""
    blocks, heading, lines = {}, "", None
    for line in readme.splitlines():
        if lines is None and line.startswith("## "):
            heading = line[3:]
        elif line.startswith("```"):
            if lines is not None:
                blocks.setdefault(heading, []).append("\n".join(lines))
            lines = [] if lines is None and line == "```sh" else None
        elif lines is not None:
            lines.append(line)
    return blocks


def make_network():
    """A bridge with the laptop's address here, and a name space for each Pi."""
    def ip(words):
        subprocess.run(["ip", *shlex.split(words)], check=True)
    pathlib.Path("/run/netns").mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run/netns"], check=True)
    ip("link set lo up")
    ip("link add br0 type bridge")
    ip("link set br0 up")
    ip(f"addr add {LAPTOP}/24 dev br0")
    shape = f"root tbf rate {MBPS}mbit burst 64kb latency 400ms"
    for address in PIS:
        host = "h" + address.rsplit(".", 1)[1]
        ip(f"netns add {host}")
        ip(f"link add v{host} type veth peer name eth0 netns {host}")
        ip(f"link set v{host} master br0 up")
        ip(f"-n {host} addr add {address}/24 dev eth0")
        ip(f"-n {host} link set eth0 up")
        ip(f"-n {host} link set lo up")
        subprocess.run(["tc", "qdisc", "add", "dev", f"v{host}", *shape.split()], check=True)
        subprocess.run(["ip", "netns", "exec", host, "tc", "qdisc", "add", "dev", "eth0", *shape.split()], check=True)


def write_program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def make_checkout(folder, binaries):
    """What README's commands find where they are typed."""
    (folder / "build/release").mkdir(parents=True)
    (folder / "build/release/bin").symlink_to(binaries)
    write_program(folder / "deploy/cross/static_worker.sh",
                  f"#!/bin/sh\ncp {shlex.quote(str(binaries))}/runnel-worker build/runnel-worker-arm64\n")
    hosts = folder / "hosts"
    write_program(folder / "shims/scp", f"#!/bin/sh\nto=${{2#*@}}\ncp \"$1\" \"{hosts}/${{to%%:*}}/${{to#*:}}\"\n")
    write_program(folder / "shims/ssh", "#!/bin/sh\naddress=${1#*@}\nshift\n"
                  f"cd \"{hosts}/$address\"\nexport HOME=$PWD RUNNEL_RUNTIME_DIR=$PWD/run\n"
                  "exec ip netns exec \"h${address##*.}\" sh -c \"$*\"\n")
    for address in PIS:
        (hosts / address).mkdir(parents=True)
    data = folder / "home/data/mnist"
    data.mkdir(parents=True)
    for name, count in (("train", 1500), ("t10k", 300)):
        pixels = os.urandom(1024)
        images = b"".join(pixels[i % 200:i % 200 + 784] for i in range(count))
        (data / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, count, 28, 28) + images)
        (data / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, count) + bytes(i % 10 for i in range(count)))


class Typist:
    def __init__(self, folder):
        self.folder = folder
        self.environment = {**os.environ, "HOME": str(folder / "home"), "RUNNEL_RUNTIME_DIR": str(folder / "run"), "RUNNEL_STATE_DIR": "",
                            "PATH": f"{folder}/shims:{os.environ['PATH']}"}
        self.environment.pop("RUNNEL_HOME", None)
        self.environment.pop("RUNNEL_STATE_DIR")
        self.failures = []

    def start(self, text, log):
        with open(self.folder / log, "wb") as out:
            return subprocess.Popen(["bash", "-c", text], cwd=self.folder, env=self.environment, stdout=out, stderr=out)

    def log(self, name):
        return (self.folder / name).read_text(errors="replace")

    def type(self, text, expected=0):
        """Runs one block or line to its end."""
        process = self.start(text, "log")
        code = process.wait(PATIENCE_S)
        print(f"{code}  {text.splitlines()[-1]}", flush=True)
        if code != expected:
            self.failures.append(f"{text!r} ended with {code}, not {expected}:\n{self.log('log')[-2000:]}")
        return self.log("log")

    def expect(self, what, pattern, text):
        if not re.search(pattern, text):
            self.failures.append(f"{what}: no {pattern!r} in:\n{text[-2000:]}")

    def await_text(self, name, pattern, process):
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and process.poll() is None:
            if re.search(pattern, self.log(name)):
                return True
            time.sleep(0.02)
        self.failures.append(f"{name}: no {pattern!r} in:\n{self.log(name)[-2000:]}")
        return False


def sample_block(typist, readme):
    """What README shows of a run: its first line and stages are what its command prints."""
    found = re.search(r"^`(train --quick [^`]+)`[^\n]*\n\n```\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    command, sample = found.groups()
    stages = [line for line in sample.splitlines() if line.startswith("stage ")]
    path = f"cd {shlex.quote(str(typist.folder))}\nexec build/release/bin/"
    address = "127.0.0.1:7005"
    pis = [typist.start(f"{path}runnel-worker --central {address} --name {name}", name) for name in ("pi-1", "pi-2")]
    central = typist.start(f"{path}runnel-central {command} --listen {address}", "sample")
    typist.await_text("sample", f"stage {len(stages) - 1}: .*\n", central)
    for process in [central, *pis]:
        process.send_signal(signal.SIGINT)
    for process in [central, *pis]:
        process.wait(PATIENCE_S)
    for line in [sample.splitlines()[0], *stages]:
        typist.expect("README's sample", f"(?m)^{re.escape(line)}$", typist.log("sample"))
    print(f"{len(stages)} stages as README shows them", flush=True)


def train_block(typist, block):
    path, *rest = re.sub(r"\\\n", " ", block).splitlines()
    for command in rest:
        typist.type(f"{path}\n{command}")


def cluster_block(typist, block):
    cluster = typist.start(block + "\n", "cluster")
    joined = typist.await_text("cluster", r"3 of 3 are here", cluster)
    for number in (1, 2):
        typist.expect("central", rf"has joined: {number} of 3 (is|are) here", typist.log("cluster"))
    typist.expect("a Pi", r"joined 192\.168\.1\.10:7000 as pi-\d; waiting for the run \([12] of 3", typist.log("cluster"))
    if joined and typist.await_text("cluster", r"policy runnel predicts", cluster):
        path = "PATH=$PWD/build/release/bin:$PATH\n"
        until = time.monotonic() + PATIENCE_S
        listed = ""
        # Stages are prepared for a moment after the plan is there.
        while "trains layers" not in listed and cluster.poll() is None and time.monotonic() < until:
            listed = typist.type(path + "runnel-central devices")
        for name in ("local-000", "pi-1", "pi-2", "pi-3"):
            typist.expect("devices", name, listed)
        typist.type(path + "runnel-central drain pi-2")
        typist.type(path + "runnel-central pause")
        typist.type(path + "runnel-central continue")
    code = cluster.wait(PATIENCE_S)
    print(f"{code}  {block.splitlines()[-1]}", flush=True)
    if code != 0:
        typist.failures.append(f"the cluster ended with {code}:\n{typist.log('cluster')[-3000:]}")
    typist.expect("central", r"trained after \d+ steps", typist.log("cluster"))
    typist.type("PATH=$PWD/build/release/bin:$PATH\nrunnel-central drain pi-2", expected=2)


def run(binaries):
    make_network()
    readme = (ROOT / "README.md").read_text()
    blocks = blocks_of(readme)
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        make_checkout(folder, binaries)
        typist = Typist(folder)
        sample_block(typist, readme)
        train_block(typist, blocks["Train"][0])
        cluster_block(typist, blocks["A cluster of three Pis"][0])
    for failure in typist.failures:
        print(f"FAILED: {failure}", file=sys.stderr)
    return 1 if typist.failures else 0


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--inside":
        return run(pathlib.Path(sys.argv[2]))
    if len(sys.argv) != 2 or not shutil.which(str(pathlib.Path(sys.argv[1]) / "runnel-central")):
        print(__doc__, file=sys.stderr)
        return 2
    missing = missing_for_lab()
    if missing:
        print(f"skipped: {missing}")
        return 77
    return run_inside([__file__, "--inside", str(pathlib.Path(sys.argv[1]).resolve())])


if __name__ == "__main__":
    sys.exit(main())
