"""A grid's results as Markdown, CSV and SVG plots (gnuplot)."""

import csv
import shutil
import subprocess

PLOT_HEAD = """set terminal svg size 640,420 dynamic background rgb 'white'
set output '{path}'
set title '{title}'
set xlabel 'link bandwidth, Mbps'
set ylabel '{label}'
set logscale x 2
set key outside right
set grid
set xtics ({tics})
"""


def plan_text(plan):
    """"0:0-1 2:2-4": devices and their layers."""
    return " ".join(f"{stage.get('device_number', stage['device'])}:"
                    f"{stage['first_layer']}-{stage['last_layer']}" for stage in plan["stages"])


def cell(results, method, mbps):
    for row in results:
        if row["method"] == method and row["mbps"] == mbps:
            return row
    return None


def axes(results):
    """Methods in order of appearance, bandwidths ascending."""
    methods = list(dict.fromkeys(row["method"] for row in results))
    return methods, sorted({row["mbps"] for row in results})


def _table(results, title, value):
    methods, rates = axes(results)
    lines = [f"### {title}", "", "| method | " + " | ".join(f"{rate:g} Mbps" for rate in rates) +
             " |", "|---|" + "---|" * len(rates)]
    for method in methods:
        cells = [cell(results, method, rate) for rate in rates]
        lines.append(f"| {method} | " + " | ".join("-" if row is None else value(row)
                                                   for row in cells) + " |")
    return lines + [""]


def _samples_text(row):
    values = [row[key] for key in ("predicted_samples_per_s", "samples_per_s") if row.get(key)]
    return ", ".join(f"{value:.1f}" for value in values) or "-"


def markdown(summary):
    results, scenario = summary["results"][0]["cells"], summary["results"][0]["scenario"]
    lines = [f"## {scenario}, {summary['mode']}", ""] + summary.get("notes", []) + [""]
    lines += _table(results, "Seconds a batch", lambda row: f"{row['seconds_per_batch']:.3f}"
                    if row["seconds_per_batch"] is not None else "-")
    if any(row.get("samples_per_s") for row in results):
        both = any(row.get("predicted_samples_per_s") for row in results)
        lines += _table(results, "Samples a second" + (", predicted and measured" if both else ""),
                        _samples_text)
    if any(row.get("speedup_vs_ftpipehd") for row in results):
        lines += _table(results, "Times faster than ftpipehd",
                        lambda row: f"{row['speedup_vs_ftpipehd']:.2f}"
                        if row.get("speedup_vs_ftpipehd") else "-")
    if any(row.get("prediction_error") is not None for row in results):
        lines += _table(results, "Predicted against measured seconds a batch",
                        lambda row: f"{row['prediction_error']:+.1%}"
                        if row.get("prediction_error") is not None else "-")
    if any(row.get("efficiency_steady") is not None for row in results):
        lines += _table(results, "Efficiency (bound over measured, between barriers)",
                        lambda row: f"{row['efficiency_steady']:.3f}"
                        if row.get("efficiency_steady") is not None else "-")
    lines += _table(results, "Plan (device:layers)", lambda row: plan_text(row["plan"]))
    return "\n".join(lines) + "\n"


def write_csv(results, path, version="", commit=""):
    """Units stand in the names; load_average: of the last minute before a run, the most of a cell's. commit: of the checkout."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["method", "mbps", "seconds_per_batch", "speedup_vs_ftpipehd", "plan", "runs_seconds_per_batch",
                         "no_seconds_because", "version", "load_average", "commit"])
        for row in results:
            writer.writerow([row["method"], row["mbps"], row["seconds_per_batch"],
                             row.get("speedup_vs_ftpipehd"), plan_text(row["plan"]),
                             " ".join(f"{value:.5f}" for value in row.get("runs", [])),
                             row.get("no_seconds_because"), version, row.get("load_average"), commit])


def _plot(results, path, title, label, key):
    methods, rates = axes(results)
    tics = ", ".join(f"'{rate:g}' {rate}" for rate in rates)
    script = PLOT_HEAD.format(path=path, title=title.replace("'", ""), label=label, tics=tics)
    blocks, curves = [], []
    for index, method in enumerate(methods):
        points = [(rate, cell(results, method, rate)) for rate in rates]
        lines = [f"{rate} {row[key]}" for rate, row in points if row and row.get(key)]
        if not lines:
            continue
        blocks.append(f"$d{index} << EOD\n" + "\n".join(lines) + "\nEOD\n")
        curves.append(f"$d{index} using 1:2 with linespoints lw 2 title '{method}' noenhanced")
    if not curves:
        return
    script += "".join(blocks) + "set logscale y\nplot " + ", \\\n  ".join(curves) + "\n"
    done = subprocess.run(["gnuplot"], input=script, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError("gnuplot: " + done.stderr.strip())


def write(summary, folder):
    """report.md, results.csv and, with gnuplot, two plots; the files that were written."""
    results, scenario = summary["results"][0]["cells"], summary["results"][0]["scenario"]
    files = [f"{folder}/report.md", f"{folder}/results.csv"]
    with open(files[0], "w", encoding="utf-8") as file:
        file.write(markdown(summary))
    write_csv(results, files[1], summary.get("version", ""), summary.get("commit", ""))
    if shutil.which("gnuplot") is None:
        print("lab: no plots: gnuplot is not installed (Debian: gnuplot-nox)")
        return files
    title = f"{scenario}, {summary['mode']}"
    for name, label, key in (("seconds", "seconds a batch", "seconds_per_batch"),
                             ("speedup", "times faster than ftpipehd", "speedup_vs_ftpipehd")):
        path = f"{folder}/{name}.svg"
        _plot(results, path, title, label, key)
        files.append(path)
    return files
