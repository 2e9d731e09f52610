"""The tables of figures in central/README.md and of metrics in deploy/metrics/README.md, from the rows of the sources."""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "deploy/metrics"))

import reference  # noqa: E402

FIELDS = "proto/base/figures/figure_fields.cc"
METRICS = "central/display/run_metrics.cc"
TELEMETRY = "proto/base/figures/telemetry.h"
OF = {"kStage": "stage", "kNextForward": "link", "kNextBackward": "link",
      "kPreviousForward": "link", "kPreviousBackward": "link"}
# A member of a row: its name, and a text of one or more parts or a word.
MEMBER = re.compile(r'\.(\w+) =\s+((?:"[^"]*"\s*)+|[\w:&]+)')
# A metric of a run: name, help and the names of its labels.
METRIC = re.compile(r'\{"(runnel_\w+)",\s*((?:"[^"]*"\s*)+)(?:,\s*"([\w,]+)")?\}')


def text_of(literal):
    return "".join(re.findall(r'"([^"]*)"', literal)) if '"' in literal else literal


def members(source):
    return {name: text_of(value) for name, value in MEMBER.findall(source)}


def views(root):
    """Of each way to show a figure: whom it is about, and the members of its row."""
    source = (root / FIELDS).read_text(encoding="utf-8")
    histograms = re.findall(r"^  Histogram (\w+)", (root / TELEMETRY).read_text(encoding="utf-8"), re.MULTILINE)
    for row in source.split("{.name = ")[1:]:
        head, *shown = row.split(".views = {", 1)
        of = OF[members(head).get("of", "Of::kStage").split("::")[1]]
        kind = {"kind": "histogram"} if head.split('"')[1] in histograms else {}
        for view in re.split(r"\{(?=\.)", shown[0])[1:] if shown else []:
            yield of, {**members(view), **kind}


def key_table(root):
    lines = ["| of | key | page | meaning |", "|---|---|---|---|"]
    for of, view in views(root):
        if "key" not in view:
            continue
        page = "yes" if view.get("on_page") == "true" else ""
        line = f"| {of} | `{view['key']}` | {page} | {view['help']} |"
        if line not in lines:
            lines.append(line)
    return lines


def metric_table(root):
    labels = {"stage": ["stage", "worker"], "link": ["link", "direction", "from", "to"]}
    rows = {view["metric"]: (labels[of], view["help"], view.get("kind")) for of, view in views(root) if "metric" in view}
    source = (root / METRICS).read_text(encoding="utf-8")
    for name, help_text, names in METRIC.findall(source):
        rows[name] = (names.split(",") if names else [], text_of(help_text))
    return [*reference.HEAD, *(reference.row(name, *row) for name, row in sorted(rows.items()))]
