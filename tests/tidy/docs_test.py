"""That docs.py and make_figures.py find what they are for, on small pages made for it.

    python3 tests/tidy/docs_test.py
"""

import copy
import json
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy/figures"))

import docs  # noqa: E402
import make_figures  # noqa: E402
import reference  # noqa: E402

SECTION = {
    "order": 1, "title": "Speed of a thing", "what": "It is fast.", "machine": "one", "date": "2026",
    "commit": "abc", "commands": ["run me"],
    "tables": [{"caption": "Speeds",
                "columns": [{"name": "thing"}, {"name": "a", "unit": "s", "decimals": 1},
                            {"name": "b", "unit": "s", "decimals": 1},
                            {"name": "mean", "unit": "s", "decimals": 2, "formula": "mean",
                             "of": ["a", "b"]}],
                "rows": [["x", 1, 2], ["y", "diverges", 4]]}]}
HEADLINES = [{"about": "Speed", "what": "x", "readme": True, "file": "speed", "table": 0, "row": ["x"], "column": "mean"}]
README = f"# It\n\n{make_figures.BEGIN}\n{make_figures.END}\n"


class Figures(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self._folder.name)
        (self.root / "deploy/figures").mkdir(parents=True)
        self.store(SECTION, README)

    def tearDown(self):
        self._folder.cleanup()

    def store(self, section, readme):
        folder = self.root / "deploy/figures"
        (folder / "speed.json").write_text(json.dumps(section))
        (folder / "headlines.json").write_text(json.dumps(HEADLINES))
        (self.root / "README.md").write_text(readme)

    def write_pages(self):
        for path, text in make_figures.pages(self.root).items():
            path.write_text(text)

    def differs(self):
        return any(make_figures.differences(path, text)
                   for path, text in make_figures.pages(self.root).items())

    def test_one_number_a_cell_with_computed_columns(self):
        self.write_pages()
        text = (self.root / "FIGURES.md").read_text()
        self.assertIn("| thing | a (s) | b (s) | mean (s) |", text)
        self.assertIn("| x | 1.0 | 2.0 | 1.50 |", text)
        self.assertIn("| y | diverges | 4.0 | - |", text)
        self.assertIn("| 1.50 | s |", (self.root / "README.md").read_text())
        self.assertFalse(self.differs())

    def test_a_number_that_no_result_has(self):
        self.write_pages()
        for page in ("FIGURES.md", "README.md"):
            path = self.root / page
            kept = path.read_text()
            path.write_text(kept.replace("1.50", "1.60"))
            self.assertTrue(self.differs(), page)
            path.write_text(kept)

    def test_a_figure_in_the_readme_beside_the_table(self):
        self.store(SECTION, README + "It takes 1.5 s.\n")
        with self.assertRaisesRegex(make_figures.FigureError, "1.5 s"):
            make_figures.pages(self.root)

    def test_a_section_on_a_page_of_its_own(self):
        page = "tests/bench/DSP.md"
        (self.root / "tests/bench").mkdir(parents=True)
        section = {**SECTION, "page": page,
                   "what": "[How](central/README.md#how), [speed](#speed-of-a-thing)."}
        self.store(section, README)
        self.write_pages()
        self.assertIn("[How](../../central/README.md#how), [speed](#speed-of-a-thing).",
                      (self.root / page).read_text())
        self.assertIn(f"| [x]({page}#speed-of-a-thing) | 1.50 | s |",
                      (self.root / "FIGURES.md").read_text())
        self.store({**section, "what": "[gone](#gone)"}, README)
        with self.assertRaisesRegex(make_figures.FigureError, "gone"):
            make_figures.pages(self.root)
        self.store({**SECTION, "page": "tests/OTHER.md"}, README)
        with self.assertRaisesRegex(make_figures.FigureError, "tests/OTHER.md"):
            make_figures.pages(self.root)

    def test_a_rank_correlation(self):
        section = copy.deepcopy(SECTION)
        table = section["tables"][0]
        table["rank_correlation"] = ["a", "b"]
        table["rows"] = [["x", 1, 10], ["y", 2, 30], ["z", 3, 20], ["none", 4, None], ["w", 3, 40]]
        self.store(section, README)
        self.write_pages()
        # Ranks 1, 2, 3.5, 3.5 beside 1, 3, 2, 4.
        self.assertIn("rank correlation of a and b over 4 rows: 0.63.", (self.root / "FIGURES.md").read_text())
        table["rows"] = table["rows"][:2]
        self.store(section, README)
        with self.assertRaisesRegex(make_figures.FigureError, "no rank correlation of 2 rows"):
            make_figures.pages(self.root)
        self.assertIsNone(make_figures.rank_correlation([(1, 2), (1, 3), (1, 4)]))

    def test_an_interval_of_seeds(self):
        section = copy.deepcopy(SECTION)
        table = section["tables"][0]
        table["columns"] = [{"name": "what"}, *({"name": f"seed {i}", "unit": "%"} for i in (1, 2, 3, 4)),
                            {"name": "half", "unit": "points", "decimals": 2, "formula": "interval",
                             "of": ["seed 1", "seed 2", "seed 3", "seed 4"]}]
        table["rows"] = [["x", 1, 2, 3, None], ["y", 1, 2, 3, 4], ["z", 1, 2, "diverges", None]]
        self.store(section, README)
        (self.root / "deploy/figures/headlines.json").write_text("[]")
        self.write_pages()
        text = (self.root / "FIGURES.md").read_text()
        # 4.303 * 1 / sqrt(3), 3.182 * 1.291 / 2.
        self.assertIn("| x | 1 | 2 | 3 | - | 2.48 |", text)
        self.assertIn("| y | 1 | 2 | 3 | 4 | 2.05 |", text)
        self.assertIn("| z | 1 | 2 | diverges | - | of two |", text)

    def test_two_numbers_in_a_cell(self):
        section = copy.deepcopy(SECTION)
        section["tables"][0]["rows"][0][1] = "1; 2"
        self.store(section, README)
        with self.assertRaisesRegex(make_figures.FigureError, "1; 2"):
            make_figures.pages(self.root)

    def test_a_row_that_is_too_short(self):
        section = copy.deepcopy(SECTION)
        section["tables"][0]["rows"].append(["z", 1])
        self.store(section, README)
        with self.assertRaisesRegex(make_figures.FigureError, "2 cells"):
            make_figures.pages(self.root)

    def test_a_headline_without_a_result(self):
        headlines = [dict(HEADLINES[0], row=["z"])]
        (self.root / "deploy/figures/headlines.json").write_text(json.dumps(headlines))
        with self.assertRaisesRegex(make_figures.FigureError, "no row"):
            make_figures.pages(self.root)


class Watch(unittest.TestCase):
    def test_an_alert_on_a_metric_that_is_none(self):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            for path, text in {"deploy/metrics/alerts.yml": "expr: runnel_step > runnel_stepp", docs.figures.FIELDS: "", docs.figures.TELEMETRY: "",
                               docs.figures.METRICS: 'text.Add({"runnel_step", "Steps."}, {}, 1);'}.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            found = list(docs.watch_findings(root))
            self.assertEqual(len(found), 1)
            self.assertIn("runnel_stepp is no metric", found[0])

    def test_a_histogram_is_one_family(self):
        page = "\n".join([*reference.HEAD, reference.row("runnel_stage_forward_seconds", ["stage"], "Seconds.", "histogram")])
        scrape = ("# HELP runnel_stage_forward_seconds Seconds.\n# TYPE runnel_stage_forward_seconds histogram\n"
                  "runnel_stage_forward_seconds_bucket{stage=\"0\",le=\"0.1\"} 1\nrunnel_stage_forward_seconds_bucket{stage=\"0\",le=\"+Inf\"} 2\n"
                  "runnel_stage_forward_seconds_sum{stage=\"0\"} 3.5\nrunnel_stage_forward_seconds_count{stage=\"0\"} 2\n")
        self.assertEqual(list(reference.findings(page, scrape)), [])
        self.assertEqual(len(list(reference.findings(page, scrape.replace("histogram", "gauge")))), 3, "three gauges")

    def test_a_scrape_that_the_page_does_not_say(self):
        page = "\n".join([*reference.HEAD, reference.row("runnel_step", [], "Steps."), reference.row("runnel_up", ["worker"], "1: here.")])
        scrape = ("# HELP runnel_step Steps.\n# TYPE runnel_step gauge\nrunnel_step 3\n"
                  "# HELP runnel_up 1: here.\n# TYPE runnel_up gauge\nrunnel_up{worker=\"a, \\\"b\\\"\"} 1\n")
        self.assertEqual(list(reference.findings(page, scrape)), [])
        self.assertEqual(sorted(reference.rows_of(scrape).values()), page.splitlines()[2:])
        for ours, theirs in (("runnel_step", "runnel_steps"), ("Steps.", "Stages."), ("gauge", "counter"), ("worker=", "stage=")):
            self.assertTrue(list(reference.findings(page, scrape.replace(ours, theirs))), theirs)

    @unittest.skipIf(docs.yaml is None, "needs python3-yaml")
    def test_manifests(self):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            folder = root / "deploy/kubernetes"
            folder.mkdir(parents=True)

            def found(text):
                (folder / "a.yaml").write_text(text)
                return list(docs.manifest_findings(root))

            kustomization = "apiVersion: v1\nkind: Kustomization\nresources: [%s]\n"
            self.assertEqual(found(kustomization % "a.yaml"), [])
            self.assertIn("names b.yaml", found(kustomization % "b.yaml")[0])
            self.assertIn("is no YAML", found("a: [")[0])
            self.assertIn("without kind", found("a: 1")[0])


class FakePrograms:
    HELPS = {("runnel-central",): "--insecure-network", ("runnel-central", "train"): "--model --lr",
             ("runnel-worker",): "--central"}

    def help(self, *words):
        return self.HELPS.get(words)

    def built(self, program):
        return True


class Pages(unittest.TestCase):
    def commands(self, text):
        return list(docs.command_findings(FakePrograms(), "README.md", text))

    def test_commands_and_flags(self):
        self.assertEqual(self.commands("`runnel-central train --model x --insecure-network`"), [])
        self.assertEqual(self.commands("bin/runnel-central train \\\n --lr 1 | cat --no-flag"), [])
        self.assertEqual(self.commands("ssh pi ./runnel-worker --central a:1 &"), [])
        self.assertIn("no flag --speed", self.commands("`runnel-central train --speed 9`")[0])
        self.assertIn("no flag --name", self.commands("runnel-worker --name pi")[0])
        self.assertIn("no command", self.commands("`runnel-central fly`")[0])

    def test_links_and_files(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "other.md").write_text("# A heading: it's here\n")

            def found(text):
                return list(docs.link_findings(root, "page.md", text)) + \
                    list(docs.file_findings(root, "page.md", text))

            self.assertEqual(found("[a](other.md#a-heading-its-here) [b](https://x.org/y)"), [])
            self.assertIn("no such heading", found("[a](other.md#gone)")[0])
            self.assertIn("no such file", found("[a](gone.md)")[0])
            self.assertIn("not there", found("see `central/gone.h`")[0])
            sources = list(docs.page_findings(root, "a.h", "// other.md, and specs/gone.md 4.3"))
            self.assertEqual(len(sources), 1)
            self.assertIn("specs/gone.md", sources[0])

    def test_given_tables(self):
        known = {"ARCHITECTURE.md": "| `compress` | `codec.h`", "central/README.md": "| stage | `busy_share` | yes |",
                 "deploy/metrics/README.md": "| `runnel_stage_busy_ratio` | gauge | share | `stage`, `worker` |"}
        for page, tables in docs.TABLES.items():
            text = "".join(f"<!-- {name}: tests/tidy/docs.py --write -->\n<!-- end of {name} -->\n"
                           for name in tables)
            written = docs.with_tables(ROOT, page, text)
            self.assertIn(known[page], written)
            self.assertEqual(docs.with_tables(ROOT, page, written), written)
            with self.assertRaises(ValueError):
                docs.with_tables(ROOT, page, "")


if __name__ == "__main__":
    unittest.main()
