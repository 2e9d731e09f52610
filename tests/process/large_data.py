#!/usr/bin/env python3
"""Trains on a data set that is larger than what central may hold, and shows central's memory.

    tests/process/large_data.py BINARIES [--gib N] [--batches N] [--folder DIR] [--figure FILE]

Makes sparse NPY files of pictures (bytes) and labels for each row, trains lenet or a small network on two local workers, and reads
the high-water mark of central's own memory (VmHWM of /proc) until it ends. Ends with 1 if it is over 300 MB. --figure puts the
rows into deploy/figures/large_data.json.
"""

import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_MB = 300
# Channels, side.
PICTURES = ((1, 28), (3, 64))


def write_array(path, dtype, shape, first):
    """An .npy file of zeros but for the bytes that it begins with."""
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    size = int(dtype[-1])
    for side in shape:
        size *= side
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + first)
        file.truncate(10 + len(header) + size)


def high_water_mb(process):
    try:
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    lines = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(lines[0]) * 1024 / 1e6 if lines else 0


def measure(central, channels, side, gib, batches, folder):
    """Samples, the file's bytes on the disk, MB of central, seconds until training ended."""
    samples = int(gib * 2**30) // (channels * side * side)
    x, y = folder / "x.npy", folder / "y.npy"
    write_array(x, "|u1", (samples, channels, side, side), os.urandom(1 << 20))
    # Each class is in the first labels, the others are 0.
    write_array(y, "<i4", (samples,), b"".join((i % 10).to_bytes(4, "little") for i in range(5000)))
    command = [central, "train", "--quick", "--model", "lenet" if channels == 1 else "mobilenet_v2", "--data", f"npy:{x},{y}",
               "--local-workers", "2", "--batch-size", "32", "--eval-every", "-1", "--max-batches", str(batches)]
    begin, most = time.monotonic(), 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            most = max(most, high_water_mb(process))
            time.sleep(0.05)
        error = process.stderr.read()
    if process.returncode != 0:
        raise SystemExit(error)
    return samples, x.stat().st_blocks * 512, most, time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binaries", type=pathlib.Path, nargs="?", default="build/dev/bin")
    parser.add_argument("--gib", type=float, default=4)
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--figure", type=pathlib.Path)
    arguments = parser.parse_args()
    if not (arguments.binaries / "runnel-central").exists():
        parser.error(f"{arguments.binaries}: no runnel-central in it; deploy/test.sh builds it")
    rows = []
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for channels, side in PICTURES:
            samples, on_disk, memory, seconds = measure(arguments.binaries.resolve() / "runnel-central", channels, side,
                                                        arguments.gib, arguments.batches, pathlib.Path(folder))
            print(f"{channels} x {side} x {side}: {samples} samples, {arguments.gib} GiB ({on_disk / 1e6:.1f} MB on the disk), "
                  f"central {memory:.0f} MB, {seconds:.0f} s", flush=True)
            rows.append([f"{channels} x {side} x {side}", samples / 1000, arguments.gib, round(memory), round(seconds)])
    if arguments.figure:
        figure = json.loads(arguments.figure.read_text(encoding="utf-8"))
        figure["date"] = datetime.date.today().isoformat()
        figure["commit"] = subprocess.check_output(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], text=True).strip()
        figure["tables"][0]["rows"] = rows
        arguments.figure.write_text(json.dumps(figure, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 1 if any(row[3] > LIMIT_MB for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
