#!/usr/bin/env python3
"""Draws what runs learned, from the files of `runnel-central train --log`, as one SVG.

usage: curves.py LOG... --out FILE.svg [--x step|epoch|seconds] [--y loss|test_accuracy|...] [--smooth N]

A curve a file, named by the file; .csv or .jsonl. Needs gnuplot (Debian: gnuplot-nox).
Exit code 2, and one line, if a file cannot be read or has no such column.
"""

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys

HEAD = """set terminal svg size 640,420 dynamic background rgb 'white'
set output '{path}'
set xlabel '{x}'
set ylabel '{y}' noenhanced
set key outside right
set grid
"""


class Wrong(Exception):
    """A line for the user."""


def rows_of(path):
    try:
        with open(path, encoding="utf-8", newline="") as file:
            if path.endswith(".csv"):
                return list(csv.DictReader(file))
            return [json.loads(line) for line in file if line.strip()]
    except (OSError, ValueError) as error:
        raise Wrong(f"{path}: {error}") from error


def points_of(path, x, y, smooth):
    """Pairs of numbers where both are there, y as the mean of up to `smooth` rows."""
    rows = rows_of(path)
    if not any(y in row for row in rows):
        raise Wrong(f"{path}: has no column {y}; it has {', '.join(rows[0]) if rows else 'no row'}")
    found = [(float(row[x]), float(row[y])) for row in rows
             if row.get(x) not in (None, "") and row.get(y) not in (None, "")]
    if not found:
        raise Wrong(f"{path}: no row has both {x} and {y}")
    points = []
    for i, (at, _) in enumerate(found):
        last = [value for _, value in found[max(0, i + 1 - smooth):i + 1]]
        points.append((at, sum(last) / len(last)))
    return points


def draw(logs, out, x, y, smooth=1):
    try:
        with open(out, "ab"):
            pass
    except OSError as error:
        raise Wrong(f"{out}: {error.strerror}") from error
    script = HEAD.format(path=out.replace("'", ""), x=x, y=y)
    curves = []
    for index, path in enumerate(logs):
        points = points_of(path, x, y, smooth)
        script += f"$d{index} << EOD\n" + "".join(f"{at} {value}\n" for at, value in points) + "EOD\n"
        name = os.path.splitext(os.path.basename(path))[0].replace("'", "")
        curves.append(f"$d{index} using 1:2 with lines lw 2 title '{name}' noenhanced")
    if shutil.which("gnuplot") is None:
        raise Wrong("gnuplot is not installed (Debian: gnuplot-nox)")
    script += "plot " + ", \\\n  ".join(curves) + "\n"
    done = subprocess.run(["gnuplot"], input=script, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise Wrong("gnuplot: " + done.stderr.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1], add_help=True)
    parser.add_argument("logs", nargs="+")
    parser.add_argument("--out", required=True)
    parser.add_argument("--x", default="step", choices=("step", "epoch", "seconds"))
    parser.add_argument("--y", default="loss")
    parser.add_argument("--smooth", type=int, default=1)
    words = parser.parse_args()
    if words.smooth < 1:
        parser.error("--smooth must be at least 1")
    try:
        draw(words.logs, words.out, words.x, words.y, words.smooth)
    except Wrong as error:
        print(f"curves.py: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
