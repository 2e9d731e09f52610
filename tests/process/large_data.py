#!/usr/bin/env python3
"""Trains on a data set that is larger than what central may hold, and shows central's memory.

    tests/process/large_data.py BINARIES [--gib N] [--batches N] [--folder DIR] [--figure FILE]

Makes sparse NPY files of pictures (bytes) and labels for each row, and a table of 20 columns (a quarter of --gib, 182 bytes a line),
trains lenet or a small network on two local workers, and reads the high-water mark of central's own memory (VmHWM of /proc) until it
ends. Ends with 1 if it is over 300 MB. --figure puts the
rows into deploy/figures/large_data.json.
"""

import argparse
import datetime
import json
import os
import pathlib
import random
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


def write_table(path, size):
    """Lines of random numbers, the same 10,000 again and again; how many there are."""
    draws = random.Random(1)
    block = "".join(",".join(f"{draws.random():.6f}" for _ in range(20)) + f",{i % 3}\n" for i in range(10_000))
    times = max(1, round(size / len(block)))
    with open(path, "w", encoding="utf-8") as file:
        file.write(",".join(f"f{i}" for i in range(20)) + ",y\n")
        for _ in range(times):
            file.write(block)
    return 10_000 * times


def high_water_mb(process):
    try:
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    lines = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(lines[0]) * 1024 / 1e6 if lines else 0


def measure_pictures(central, channels, side, gib, batches, folder):
    """Samples, the file's bytes on the disk, MB of central, seconds until training ended."""
    samples = int(gib * 2**30) // (channels * side * side)
    x, y = folder / "x.npy", folder / "y.npy"
    write_array(x, "|u1", (samples, channels, side, side), os.urandom(1 << 20))
    # Each class is in the first labels, the others are 0.
    write_array(y, "<i4", (samples,), b"".join((i % 10).to_bytes(4, "little") for i in range(5000)))
    model = "lenet" if channels == 1 else "mobilenet_v2"
    return samples, x.stat().st_blocks * 512, *measure(central, model, f"npy:{x},{y}", batches)


def measure_table(central, gib, batches, folder):
    """The same."""
    table = folder / "table.csv"
    samples = write_table(table, gib * 2**30)
    return samples, table.stat().st_blocks * 512, *measure(central, "mlp", f"csv:{table}", batches)


def measure(central, model, data, batches):
    """MB of central, seconds until training ended."""
    command = [central, "train", "--quick", "--model", model, "--data", data, "--local-workers", "2", "--batch-size", "32",
               "--eval-every", "-1", "--max-batches", str(batches)]
    begin, most = time.monotonic(), 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            most = max(most, high_water_mb(process))
            time.sleep(0.05)
        error = process.stderr.read()
    if process.returncode != 0:
        raise SystemExit(error)
    return most, time.monotonic() - begin


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
        central, place = arguments.binaries.resolve() / "runnel-central", pathlib.Path(folder)
        cases = [(f"{channels} x {side} x {side}", arguments.gib, measure_pictures, (channels, side)) for channels, side in PICTURES]
        cases.append(("20 columns", arguments.gib / 4, measure_table, ()))
        for name, gib, measure_one, about in cases:
            samples, on_disk, memory, seconds = measure_one(central, *about, gib, arguments.batches, place)
            print(f"{name}: {samples} samples, {gib} GiB ({on_disk / 1e6:.1f} MB on the disk), central {memory:.0f} MB, {seconds:.0f} s",
                  flush=True)
            rows.append([name, samples / 1000, gib, round(memory), round(seconds)])
    if arguments.figure:
        figure = json.loads(arguments.figure.read_text(encoding="utf-8"))
        figure["date"] = datetime.date.today().isoformat()
        figure["commit"] = subprocess.check_output(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], text=True).strip()
        figure["tables"][0]["rows"] = rows
        arguments.figure.write_text(json.dumps(figure, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 1 if any(row[3] > LIMIT_MB for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
