#!/usr/bin/env python3
"""Draws the confusion matrix of a run's last evaluation, from its --summary, as an SVG.

usage: confusion.py SUMMARY.json --out FILE.svg [--test]

A row a class of the labels, a column a class that the model gave; the shade is the share of the row.
--test: of the test set of a run with --validation-share.
Exit code 2, and one line, if the file cannot be read or has no matrix.
"""

import argparse
import html
import json
import re
import sys

CELL, TOP = 26, 40
MOST_SHOWN = 30  # classes with a number in each cell
CONTROLS = re.compile(r"[\x00-\x1f\x7f]")  # XML has no place for them


class Wrong(Exception):
    """A line for the user."""


def matrix_of(path, of_test=False):
    """Names of the classes, the matrix of counts, and the accuracy."""
    try:
        with open(path, encoding="utf-8") as file:
            summary = json.load(file)
    except (OSError, ValueError) as error:
        raise Wrong(f"{path}: {error}") from error
    if of_test:
        if "test" not in summary:
            raise Wrong(f"{path}: has no figures of a test set; train with --validation-share")
        summary = summary["test"]
    if "confusion" not in summary:
        raise Wrong(f"{path}: has no matrix; models of tokens and of more than 128 classes have none")
    names = [CONTROLS.sub("\ufffd", one["name"]) for one in summary["classes"]]
    return names, summary["confusion"], summary["accuracy"]


def text(x, y, words, anchor, color="black", turned=False):
    turn = f' transform="rotate(-60 {x} {y})"' if turned else ""
    return (f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{color}"{turn}>'
            f'{html.escape(str(words))}</text>')


def draw(names, matrix, accuracy):
    """The text of the SVG."""
    left = 20 + 7 * max(len(name) for name in names)
    side, high = CELL * len(names), TOP + left
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + side + 80}" '
             f'height="{high + side + 30}" font-family="sans-serif" font-size="11">',
             '<rect width="100%" height="100%" fill="white"/>',
             text(10, 20, f"accuracy {100 * accuracy:.2f} %; rows: labels, columns: given", "start")]
    for i, name in enumerate(names):
        middle = CELL * i + CELL // 2 + 4
        lines.append(text(left - 6, high + middle, name, "end"))
        lines.append(text(left + middle, high - 6, name, "start", turned=True))
        labels = sum(matrix[i])
        for j, count in enumerate(matrix[i]):
            share = count / labels if labels else 0
            light = round(255 * (1 - share))
            fill = f"rgb({light},255,{light})" if i == j else f"rgb(255,{light},{light})"
            lines.append(f'<rect x="{left + CELL * j}" y="{high + CELL * i}" width="{CELL}" '
                         f'height="{CELL}" fill="{fill}" stroke="#ddd"><title>{html.escape(name)} as '
                         f'{html.escape(names[j])}: {count} of {labels}</title></rect>')
            if count and len(names) <= MOST_SHOWN:
                lines.append(text(left + CELL * j + CELL // 2, high + middle, count, "middle"))
        if labels:
            lines.append(text(left + side + 6, high + middle, f"{100 * matrix[i][i] / labels:.1f} %",
                              "start"))
    return "\n".join(lines + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1], add_help=True)
    parser.add_argument("summary")
    parser.add_argument("--out", required=True)
    parser.add_argument("--test", action="store_true")
    words = parser.parse_args()
    try:
        drawn = draw(*matrix_of(words.summary, words.test))
        with open(words.out, "w", encoding="utf-8") as file:
            file.write(drawn)
    except (Wrong, OSError) as error:
        print(f"confusion.py: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
