#!/usr/bin/env python3
"""Makes FIGURES.md, the lab books and the headline figures of README.md out of the stored results.

    python3 deploy/figures/make_figures.py [--check] [--root FOLDER]

A result file (deploy/figures/*.json) is one section: what was measured, on which machine, when, at
which commit, by which commands, its tables, and the page that has it (FIGURES.md, or a lab book
beside its bench; BOOKS). Links in its texts are from the repository's root. A column has a name, a unit where its cells are
numbers, and decimals (without: as many as each cell has). A column with "formula" is computed from other columns: mean, change
(percent, first over second), difference (first less second), ratio (first over second) or interval (half the width of the
95 % interval of the mean of those that are numbers, by Student's t; words where they are fewer than three).
"rank_correlation" of a table names two columns: Spearman's coefficient over the rows that have both stands behind it.
headlines.json is the index by claim in front of FIGURES.md: about what, the claim, and the cell with
its number; README.md shows those with "readme". --check writes nothing: exit code 1 and a line
for each difference.
"""

import argparse
import difflib
import json
import os
import pathlib
import re
import statistics
import sys

BEGIN = "<!-- headline figures: deploy/figures/make_figures.py writes this table -->"
END = "<!-- end of the headline figures -->"
FIX = "run python3 deploy/figures/make_figures.py"
FIGURES = "FIGURES.md"
# The pages of sections that are not on FIGURES.md: what one is called, and the link to it.
BOOKS = {
    "deploy/lab/FIGURES.md": "Figures of the lab",
    "tests/bench/CODECS.md": "Figures of codecs and frames",
    "tests/bench/KERNELS.md": "Figures of kernels on processors",
    "tests/bench/DSP.md": "Figures of kernels on the emulated DSP",
}
LINK = re.compile(r"\]\(([^)#:\s]*)(#[^)\s]*)?\)")
NEEDED = ("order", "title", "what", "machine", "date", "commit", "commands", "tables")
# A measured value in README's own text: those stand in the generated table only.
VALUE = re.compile(r"\d+\.\d+ ?(%|x\b|times|s\b|ms\b|points|samples/s|GB/s|KB\b)|\d ?%|\dx\b")


class FigureError(Exception):
    """A result file that breaks a rule; the text names the file and the rule."""


def _known(values):
    return [value for value in values if isinstance(value, (int, float))]


def ranks(values):
    """1 for the least; equal values share the mean of their ranks."""
    ordered = sorted(values)
    return [ordered.index(value) + (1 + ordered.count(value)) / 2 for value in values]


def rank_correlation(pairs):
    """Spearman's coefficient of (a, b) pairs; None for fewer than three, or where all a or all b are equal."""
    if len(pairs) < 3:
        return None
    a, b = (ranks(values) for values in zip(*pairs))
    mean = (len(pairs) + 1) / 2
    both = sum((x - mean) * (y - mean) for x, y in zip(a, b))
    squares = sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b)
    return both / squares ** 0.5 if squares > 0 else None


def correlation_lines(table):
    if "rank_correlation" not in table:
        return []
    names = table["rank_correlation"]
    at = [column_index(table, name) for name in names]
    pairs = [[row[i] for i in at] for row in (computed(table, row) for row in table["rows"])]
    pairs = [pair for pair in pairs if len(_known(pair)) == len(at)]
    found = rank_correlation(pairs)
    if found is None:
        raise FigureError(f"'{table['caption']}': no rank correlation of {len(pairs)} rows")
    return [f"Spearman's rank correlation of {names[0]} and {names[1]} over {len(pairs)} rows: {found:.2f}.", ""]


# Student's t that 2.5 % are above, by the number of values less one.
STUDENT = {2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
FEW = {0: "none", 1: "of one", 2: "of two"}


def interval(values):
    """Half the width of the 95 % interval of the mean, or how few values there are."""
    count = len(values)
    if count in FEW:
        return FEW[count]
    return STUDENT[count - 1] * statistics.stdev(values) / count ** 0.5


FORMULAS = {
    "mean": lambda v: sum(v) / len(v),
    "change": lambda v: 100 * (v[0] / v[1] - 1),
    "difference": lambda v: v[0] - v[1],
    "ratio": lambda v: v[0] / v[1],
}


def column_index(table, name):
    names = [column["name"] for column in table["columns"]]
    if name not in names:
        raise FigureError(f"no column '{name}' in the table '{table['caption']}'")
    return names.index(name)


def computed(table, row):
    """The row with the cells of its computed columns filled in."""
    cells = iter(row)
    full = [None if "formula" in column else next(cells) for column in table["columns"]]
    for at, column in enumerate(table["columns"]):
        if "formula" not in column:
            continue
        values = [full[column_index(table, name)] for name in column["of"]]
        if column["formula"] == "interval":
            full[at] = interval(_known(values))
        elif len(_known(values)) == len(values):
            full[at] = FORMULAS[column["formula"]](values)
    return full


def shown(column, cell):
    if cell is None:
        return "-"
    if isinstance(cell, str):
        return cell
    sign = "+" if column.get("formula") in ("change", "difference") or column.get("signed") else ""
    return f"{cell:{sign}.{column['decimals']}f}" if "decimals" in column else f"{cell:{sign}g}"


def head(column):
    return f"{column['name']} ({column['unit']})" if "unit" in column else column["name"]


def check_table(table):
    own = [column for column in table["columns"] if "formula" not in column]
    for row in table["rows"]:
        if len(row) != len(own):
            raise FigureError(f"a row of '{table['caption']}' has {len(row)} cells, "
                              f"its columns are {len(own)}: {row}")
        for column, cell in zip(own, row):
            if "unit" in column and isinstance(cell, str) and re.search(r"\d", cell):
                raise FigureError(f"'{cell}' in column '{column['name']}' of '{table['caption']}': "
                                  "write a number, or words without digits")
            if "unit" not in column and isinstance(cell, (int, float)):
                raise FigureError(f"{cell} in column '{column['name']}' of '{table['caption']}': "
                                  "the column has no unit")


def table_lines(table):
    check_table(table)
    columns = table["columns"]
    lines = [f"**{table['caption']}**", ""]
    lines.append("| " + " | ".join(head(column) for column in columns) + " |")
    lines.append("|" + "|".join("---:" if "unit" in c else "---" for c in columns) + "|")
    for row in table["rows"]:
        cells = [shown(column, cell) for column, cell in zip(columns, computed(table, row))]
        lines.append("| " + " | ".join(cells) + " |")
    return lines + [""]


def page_of(section):
    return section.get("page", FIGURES)


def way(page, target):
    """The link from a page to a file; nothing to the page itself."""
    return "" if page == target else os.path.relpath(target, os.path.dirname(page) or ".")


def relinked(text, page, anchors):
    """The text with its links, which are from the root, as they are from the page."""
    def link(match):
        file, heading = match[1], match[2] or ""
        target = file or anchors.get(heading[1:])
        if target is None:
            raise FigureError(f"{page}: link to {heading}: no section has this heading")
        return f"]({way(page, target)}{heading})"
    return LINK.sub(link, text)


def section_lines(section):
    lines = [f"## {section['title']}", "", section["what"], ""]
    for table in section["tables"]:
        lines += table_lines(table) + correlation_lines(table)
    lines += [f"{note}\n" for note in section.get("notes", [])]
    lines += ["```sh"] + section["commands"] + ["```", ""]
    lines += [f"Result of {section['date']}, commit {section['commit']}. Machine: {section['machine']}.",
              ""]
    return lines


def read_sections(folder):
    sections = {}
    for path in sorted(folder.glob("*.json")):
        if path.name == "headlines.json":
            continue
        section = json.loads(path.read_text(encoding="utf-8"))
        missing = [key for key in NEEDED if key not in section]
        if missing:
            raise FigureError(f"{path.name}: without {', '.join(missing)}")
        sections[path.stem] = section
    return dict(sorted(sections.items(), key=lambda item: item[1]["order"]))


def anchor(title):
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


def book_text(page, sections):
    """A lab book: the sections of one page, and where the index is."""
    lines = [f"# {BOOKS[page]}", "",
             f"Commands, machines and results; [FIGURES.md]({way(page, FIGURES)}) has the index by claim. "
             "`deploy/figures/make_figures.py` writes both.", ""]
    return "\n".join(lines + sections_lines(page, sections)).rstrip() + "\n"


def sections_lines(page, sections):
    anchors = {anchor(section["title"]): page_of(section) for section in sections.values()}
    own = [section for section in sections.values() if page_of(section) == page]
    lines = [f"* [{section['title']}](#{anchor(section['title'])})" for section in own] + [""]
    for section in own:
        lines += relinked("\n".join(section_lines(section)), page, anchors).split("\n")
    return lines


def claim_lines(sections, headlines):
    lines = []
    for about in dict.fromkeys(headline["about"] for headline in headlines):
        lines += [f"### {about}", "",
                  *headline_lines(FIGURES, sections, [h for h in headlines if h["about"] == about]), ""]
    return lines


def figures_text(sections, headlines):
    lines = ["# Figures", "",
             "Measured results, and the commands that measure them again. `deploy/figures/make_figures.py` writes this",
             "page and the lab books from `deploy/figures/*.json`; a test compares them. \"Paper\" is AccEPT.", "",
             "## What we claim", "", *claim_lines(sections, headlines),
             "## Lab books", ""]
    lines += [f"* [{title}]({page})" for page, title in BOOKS.items()]
    lines += ["",
              "`--data-dir DIR` is the folder of one data set ([README](README.md#data)); `--data DIR` of the "
              "scripts in `tests/process` holds",
              "`mnist/` (IDX files), `cifar10/` (`*.bin.xz`) and `ucihar-subset/` (`ucihar-subset.tar.gz`).", ""]
    return "\n".join(lines + sections_lines(FIGURES, sections)).rstrip() + "\n"


def cell_of(sections, headline):
    """(text, unit) of the cell that a headline names."""
    section = sections.get(headline["file"])
    if section is None:
        raise FigureError(f"headlines.json: no result file {headline['file']}.json")
    table = section["tables"][headline["table"]]
    at = column_index(table, headline["column"])
    for row in table["rows"]:
        if row[:len(headline["row"])] == headline["row"]:
            column = table["columns"][at]
            return shown(column, computed(table, row)[at]), column["unit"]
    raise FigureError(f"headlines.json: no row {headline['row']} in '{table['caption']}'")


def headline_lines(page, sections, headlines):
    lines = ["| claim | figure | unit |", "|---|---:|---|"]
    for headline in headlines:
        text, unit = cell_of(sections, headline)
        section = sections[headline["file"]]
        link = f"{way(page, page_of(section))}#{anchor(section['title'])}"
        lines.append(f"| [{headline['what']}]({link}) | {text} | {unit} |")
    return lines


def readme_text(readme, table):
    if readme.count(BEGIN) != 1 or readme.count(END) != 1:
        raise FigureError(f"README.md: needs one line '{BEGIN}' and one line '{END}'")
    before, rest = readme.split(BEGIN)
    after = rest.split(END)[1]
    for number, line in enumerate(re.sub(r"```.*?```", "", before + after, flags=re.S).split("\n")):
        match = VALUE.search(line)
        if match:
            raise FigureError(f"README.md: '{match[0]}' in \"{line.strip()}\" is a figure outside of "
                              "the generated table; add it to headlines.json")
    return "\n".join([before + BEGIN, *table, END + after])


def pages(root):
    """{path: text} of all that is generated."""
    folder = root / "deploy/figures"
    sections = read_sections(folder)
    headlines = json.loads((folder / "headlines.json").read_text(encoding="utf-8"))
    readme = (root / "README.md").read_text(encoding="utf-8")
    shown_first = [headline for headline in headlines if headline.get("readme")]
    used = {page_of(section) for section in sections.values()}
    unknown = used - {FIGURES, *BOOKS}
    if unknown:
        raise FigureError(f"no such page: {', '.join(sorted(unknown))}; add it to BOOKS")
    return {root / FIGURES: figures_text(sections, headlines),
            root / "README.md": readme_text(readme, headline_lines("README.md", sections, shown_first)),
            **{root / page: book_text(page, sections) for page in BOOKS if page in used}}


def differences(path, text):
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    return [line for line in difflib.unified_diff(old.splitlines(), text.splitlines(),
                                                  str(path), "from the results", "", "", 0)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[2])
    arguments = parser.parse_args()
    try:
        generated = pages(arguments.root)
    except (FigureError, ValueError) as error:
        print(f"make_figures.py: {error}", file=sys.stderr)
        return 2
    if not arguments.check:
        for path, text in generated.items():
            path.write_text(text, encoding="utf-8")
        return 0
    found = [line for path, text in generated.items() for line in differences(path, text)]
    if found:
        print("\n".join(found))
        print(f"make_figures.py: a page differs from the stored results; {FIX}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
