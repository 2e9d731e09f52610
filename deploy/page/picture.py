#!/usr/bin/env python3
"""Makes README's picture of the page: a run that has lost a worker and goes on.

    deploy/page/picture.py BINARIES [FILE.png]

LeNet on generated digits, on central's worker and two that dial in, on loopback; one of these is killed behind the first evaluation.
The upper part of the page is drawn by Debian's chromium, headless. Exit code 2, and one line, where that is not installed.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/process"))
import browser as browsers  # noqa: E402

WIDTH, HEIGHT = 1000, 1052
MOST_BYTES = 150_000
PATIENCE_S = 300
TRAIN = ["train", "--quick", "--model", "lenet", "--dataset", "synthetic_digits", "--workers", "2", "--codec-forward", "mbq:2",
         "--codec-backward", "stochastic:8", "--epochs", "8", "--barrier-every", "20", "--checkpoint-dir", "run1", "--metrics-port", "0",
         "--linger-s", "0"]


class Cluster:
    def __init__(self, binaries, folder):
        self.binaries, self.folder, self.processes = binaries, pathlib.Path(folder), []
        self.environment = {"HOME": folder, "PATH": "/usr/bin:/bin", "NO_COLOR": "1", "RUNNEL_RUNTIME_DIR": folder + "/run"}
        self.start("runnel-central", *TRAIN)

    def start(self, program, *flags):
        with open(self.folder / f"{len(self.processes)}.log", "wb") as log:
            self.processes.append(subprocess.Popen([self.binaries / program, *flags], cwd=self.folder, env=self.environment, stdout=log,
                                                   stderr=log))
        return self.processes[-1]

    def find(self, pattern):
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and self.processes[0].poll() is None:
            if match := re.search(pattern, (self.folder / "0.log").read_text()):
                return match.group(1)
            time.sleep(0.05)
        raise TimeoutError(f"central does not say {pattern}: {(self.folder / '0.log').read_text()}")

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


def draw(binaries, chromium, path):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        cluster = Cluster(binaries, folder)
        page = browsers.Browser(chromium)
        try:
            page.open(cluster.find(r"(http://127\.0\.0\.1:\d+/)"))
            page.show_as(WIDTH, False)
            address = cluster.find(r"runnel-worker --central (\S+)")
            workers = [cluster.start("runnel-worker", "--central", address, "--name", name, "--state-dir", "") for name in ("pi-1", "pi-2")]
            page.wait_for("last?.evaluations.length >= 1", PATIENCE_S)
            workers[1].kill()
            page.wait_for("last.recoveries >= 1 && last.phase === 'training' && last.evaluations.length >= 3", PATIENCE_S)
            page.evaluate("dispatchEvent(new Event('resize'))")
            page.screenshot(path, {"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT, "scale": 1})
        finally:
            page.close()
            cluster.end()
    size = pathlib.Path(path).stat().st_size
    print(f"{path}: {size} bytes")
    if size > MOST_BYTES:
        raise SystemExit(f"picture.py: {path} has {size} bytes, more than {MOST_BYTES}")


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    chromium = browsers.find_chromium()
    if chromium is None:
        print("picture.py: chromium is not installed (Debian: chromium)", file=sys.stderr)
        return 2
    draw(pathlib.Path(sys.argv[1]).resolve(), chromium, sys.argv[2] if len(sys.argv) > 2 else ROOT / "deploy/page/page.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
