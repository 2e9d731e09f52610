#!/usr/bin/env python3
"""The reference of metrics, from what a running central says of itself.

    deploy/metrics/reference.py http://127.0.0.1:9090/metrics      # or files; - is standard input
    deploy/metrics/reference.py --check http://127.0.0.1:9090/metrics

Turns the HELP and TYPE lines of /metrics into the rows of README.md beside this file: name, type, unit, labels, meaning. A family shows
as soon as it has a value, so one scrape has some rows, never all; tests/tidy/docs.py makes the page's table of the sources' rows.
--check compares a scrape with the page: exit code 1 and a line for each family that the page lacks, or says otherwise.
"""

import argparse
import pathlib
import re
import sys
import urllib.request

PAGE = pathlib.Path(__file__).with_name("README.md")
HEAD = ["| metric | type | unit | labels | meaning |", "|---|---|---|---|---|"]
# The first that the name, without _total, ends with.
UNITS = (("_bytes_per_second", "bytes/s"), ("_samples_per_second", "samples/s"), ("_timestamp_seconds", "s since 1970"),
         ("_seconds", "s"), ("_bytes", "bytes"), ("_joules", "J"), ("_joules_per_sample", "J"), ("_ratio", "share"),
         ("_samples", "samples"), ("_width", "bits"), ("_celsius", "°C"))
SERIES = re.compile(r"(\w+)(?:\{(.*)\})? \S+$")
LABEL = re.compile(r'(\w+)="(?:[^"\\]|\\.)*"')


def type_of(name):
    """As central/display/metric_text.cc."""
    return "counter" if name.endswith("_total") else "gauge"


def row(name, labels, help_text, kind=None):
    """labels: names in their order."""
    base = name.removesuffix("_total")
    unit = next((unit for end, unit in UNITS if base.endswith(end)), "")
    shown = ", ".join(f"`{label}`" for label in labels)
    return f"| `{name}` | {kind or type_of(name)} | {unit} | {shown} | {help_text} |"


def family_of(name, kinds):
    """A histogram has three series, and each bucket a label more."""
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    return base if kinds.get(base) == "histogram" else name


def rows_of(scrape):
    """By name: the row of each family in the text."""
    helps, kinds, labels = {}, {}, {}
    for line in scrape.splitlines():
        if line.startswith("# HELP "):
            _, _, name, text = line.split(" ", 3)
            helps[name] = text
        elif line.startswith("# TYPE "):
            _, _, name, kinds[name] = line.split(" ", 3)
        elif match := SERIES.match(line):
            shown = [label for label in LABEL.findall(match[2] or "") if label != "le"]
            labels.setdefault(family_of(match[1], kinds), shown)
    return {name: row(name, labels[name], helps.get(name, "no HELP"), kinds.get(name, "no TYPE")) for name in labels}


def rows_of_page(text):
    return {match[1]: match[0] for match in re.finditer(r"^\| `((?:runnel|hw|process)_\w+)` \|.*$", text, re.MULTILINE)}


def findings(page, scrape):
    """How a scrape differs from the page. Joules have a label `source` that the page names beside its table."""
    known = rows_of_page(page)
    for name, said in rows_of(scrape).items():
        if name not in known:
            yield f"{name}: the page lacks it"
        elif said.replace(", `source`", "") != known[name]:
            yield f"{name}: central says\n  {said}\nthe page\n  {known[name]}"


def read(source):
    if source == "-":
        return sys.stdin.read()
    if source.startswith("http:"):
        with urllib.request.urlopen(source, timeout=10) as answer:
            return answer.read().decode()
    return pathlib.Path(source).read_text(encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the page")
    parser.add_argument("scrapes", nargs="+", metavar="URL|FILE|-")
    arguments = parser.parse_args()
    scrape = "\n".join(read(source) for source in arguments.scrapes)
    if not arguments.check:
        print("\n".join([*HEAD, *(line for _, line in sorted(rows_of(scrape).items()))]))
        return 0
    found = list(findings(PAGE.read_text(encoding="utf-8"), scrape))
    print("\n".join([*found, f"{len(rows_of(scrape))} families, {len(found)} findings"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
