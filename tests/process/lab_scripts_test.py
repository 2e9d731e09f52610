"""What deploy/lab computes without a lab: bandwidths, steady times, reports, what a sweep repeats.

    python3 tests/process/lab_scripts_test.py
"""

import argparse
import copy
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from xml.etree import ElementTree

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(REPOSITORY, "deploy/lab"))
sys.dont_write_bytecode = True

import accuracy_table  # noqa: E402
import confusion  # noqa: E402
import curves  # noqa: E402
import network  # noqa: E402
import one_run  # noqa: E402
import report  # noqa: E402
import run  # noqa: E402
import scenario  # noqa: E402
import sweep  # noqa: E402
import time_to_accuracy  # noqa: E402
from sandbox import LabError  # noqa: E402


def link(source, target, down, up):
    return {"from": source, "to": target, "down_mbps": down, "up_mbps": up, "delay_ms": 0}


def summary_of(seconds_each, steps, caps):
    return {"steps": steps,
            "plan": {"stages": [{"device": f"host-{i}", "device_number": i, "first_layer": i, "last_layer": i, "cap": cap}
                                for i, cap in enumerate(caps)]},
            "links": [{"codec_forward": "identity", "codec_backward": "identity"}
                      for _ in caps[1:]],
            "timeline": [{"batches": i, "seconds": seconds_each(i)} for i in range(1, steps + 1)]}


# Stands in for runnel-central: leaves its arguments in a file, and what each test says beside it.
STAND_IN = """#!/usr/bin/env python3
import json, os, pathlib, sys
folder = pathlib.Path(sys.argv[0]).parent
with open(folder / "calls", "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
value = lambda flag: sys.argv[sys.argv.index(flag) + 1]
weights = pathlib.Path(value("--checkpoint-dir"))
weights.mkdir(exist_ok=True)
says = json.loads((folder / "says").read_text())
if says.get("checkpoint"):
    (weights / "checkpoint-000000000010.runnel").touch()
if "summary" in says:
    pathlib.Path(value("--summary")).write_text(json.dumps(says["summary"]))
print(says.get("line", ""))
sys.exit(says.get("code", 0))
"""


class TimesToAccuracy(unittest.TestCase):
    def test_between_evaluations_accuracy_is_a_line(self):
        self.assertEqual(time_to_accuracy.epochs_to([0.25, 0.5, 0.75], 0.5), 2)
        self.assertEqual(time_to_accuracy.epochs_to([0.25, 0.5, 0.75], 0.625), 2.5)
        self.assertEqual(time_to_accuracy.epochs_to([0.5], 0.25), 0.5)
        self.assertIsNone(time_to_accuracy.epochs_to([0.25, 0.5], 0.75))
        self.assertEqual(time_to_accuracy.seconds_of([[0.5, 1.0], [0.25, 0.5]], 0.5, 10, 0.5), 1.5 * 10 * 0.5)
        self.assertIsNone(time_to_accuracy.seconds_of([[0.5], [0.25]], 0.5, 10, 0.5))

    def test_what_is_trained_for_a_plan(self):
        stage = lambda cap: {"cap": cap}  # noqa: E731
        link = lambda forward: {"codec_forward": forward, "codec_backward": "eden:4"}  # noqa: E731
        self.assertEqual(time_to_accuracy.way_of({"stages": [stage(1)], "links": []}), ((1,), ("identity", "identity")))
        plan = {"stages": [stage(3), stage(2), stage(1)], "links": [link("eden:4"), link("eden:4")]}
        self.assertEqual(time_to_accuracy.way_of(plan), ((3, 2, 1), ("eden:4", "eden:4")))
        for other, trained in (("eden:2", "eden:2"), ("identity", "eden:4"), ("int8", "eden:4")):
            plan["links"][1] = link(other)
            self.assertEqual(time_to_accuracy.way_of(plan), ((3, 2, 1), (trained, "eden:4")), other)

    def test_another_training_is_another_run(self):
        training = {"model": "lenet", "dataset": "mnist", "schedule": "async_1f1b", "batch_size": 64}
        way = ((2, 1), ("eden:4", "eden:4"))
        others = [({**training, "batch_size": 32}, way, 3, "1"), ({**training, "schedule": "sync_1f1b"}, way, 3, "1"),
                  ({**training, "dataset": "synthetic_digits"}, way, 3, "1"), (training, ((2, 2), way[1]), 3, "1"),
                  (training, (way[0], ("eden:4", "eden:2")), 3, "1"), (training, way, 4, "1"), (training, way, 3, "2")]
        names = {time_to_accuracy.name_of(*run) for run in [(training, way, 3, "1"), *others]}
        self.assertEqual(len(names), 1 + len(others))

    def test_the_quickest_host_is_alone(self):
        case = {"training": {"batch_size": 128}, "profiles": [{"name": "p", "batch_size": 64, "layer_ms": [10, 20]}],
                "hosts": [{"profile": "p", "speed": 0.5}, {"profile": "p", "speed": 2}]}
        self.assertAlmostEqual(time_to_accuracy.alone(case), 0.03)


class AccuracyTables(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def campaign(self, **flags):
        given = {"tables": ["3"], "models": ["resnet20"], "rows": ["SBM 8/8"], "seeds": ["1"], "epochs": 16, "out": self.folder.name,
                 "flags": [], "data": self.folder.name, "bin": self.folder.name}
        return accuracy_table.Campaign(argparse.Namespace(**{**given, **flags}))

    def stand_in(self, **says):
        central = os.path.join(self.folder.name, "runnel-central")
        with open(central, "w", encoding="utf-8") as file:
            file.write(STAND_IN)
        os.chmod(central, 0o755)
        with open(os.path.join(self.folder.name, "says"), "w", encoding="utf-8") as file:
            json.dump(says, file)

    def calls(self):
        with open(os.path.join(self.folder.name, "calls"), encoding="utf-8") as file:
            return file.read().splitlines()

    def typed(self, *words):
        return subprocess.run([os.path.join(REPOSITORY, "deploy/accuracy_table.sh"), "--bin", self.folder.name, "--out",
                               os.path.join(self.folder.name, "out"), *words], capture_output=True, text=True, check=False)

    def test_rows_compare_with_their_base_over_the_seeds_that_are_there(self):
        campaign = self.campaign(rows=["SBM 8/8", "DFQ cp 3 (lstm)"], seeds=["1", "2"])
        runs = list(campaign.runs())
        self.assertEqual([(run[2].name, run[3]) for run in runs],
                         [(name, seed) for name in ("SBM 8/8", "DFQ cp 3 (lstm)") for seed in ("1", "2")])

        def leave(run, accuracy, precision, evaluations=()):
            name = campaign.name_of(run[1], campaign.flags_of(run[2], "cifar10"), run[3])
            # The figure of the run counts since its last plan alone.
            summary = {"accuracy": accuracy, "effective_macs": 1.0, "steps": 10, "wall_s": 5.0, "joules_per_sample": 0.5,
                       "precision": {"macs_in_full": 1000.0, **precision},
                       "evaluations": [{"step": 1, "accuracy": reached, "effective_macs": macs} for reached, macs in evaluations]}
            with open(os.path.join(self.folder.name, f"{name}.json"), "w", encoding="utf-8") as file:
                json.dump(summary, file)
        leave(runs[0], 0.90, {"effective_share": 0.060})
        leave(runs[1], 0.92, {"effective_share": 0.064})
        leave(runs[2], 0.89, {"gates": {"effective_share": 0.031}}, [(0.8, 9.3), (0.901, 15.5), (0.89, 31)])  # seed 2 is not there yet
        (table, model, lines), = accuracy_table.tables_of(campaign)
        self.assertEqual((table, model), ("3", "resnet20"))
        self.assertEqual(lines[0][:4], ["SBM 8/8", 2, 91.0, None])
        self.assertEqual(lines[1][:2], ["DFQ cp 3 (lstm)", 1])
        self.assertAlmostEqual(lines[1][3], -2)
        self.assertAlmostEqual(lines[1][4], 3.1)
        self.assertAlmostEqual(lines[1][5], 0.5)
        self.assertAlmostEqual(lines[1][6], 4.96e13 / 1.18e14)
        self.assertEqual(lines[1][9], 0.5 * 10 * 128)
        self.assertIsNone(lines[0][10])
        self.assertAlmostEqual(lines[1][10], 0.25)  # 90 % are a point below the base row's 91

    def test_a_turn_comes_after_the_same_share_of_each_run(self):
        for epochs, every in ((160, "390"), (8, "19")):
            campaign = self.campaign(epochs=epochs)
            row, = (row for row in accuracy_table.table3()["resnet20"] if row.name == "PFQ to 8/8")
            self.assertEqual(campaign.flags_of(row, "cifar10")[-3:], [f"pfq:3,4,6,8/6,6,8,8@0.05,0.3,{every}", "--barrier-every", every])

    def test_each_base_is_a_row_of_its_table(self):
        for _, _, make in accuracy_table.TABLES.values():
            for rows in make().values():
                names = [row.name for row in rows]
                self.assertEqual(len(names), len(set(names)))
                self.assertLessEqual({row.base for row in rows} - {None}, set(names))

    def test_only_rows_with_the_gates_of_the_paper_have_its_figures(self):
        for _, _, make in accuracy_table.TABLES.values():
            for row in (row for rows in make().values() for row in rows if "--gates" in row.flags):
                gate = row.flags[row.flags.index("--gates") + 1].split(":")[0]
                self.assertIn(f"({gate})", row.name)
                self.assertTrue(gate == "lstm" or row.paper is None, row.name)

    def test_a_run_that_was_stopped_is_no_result_and_goes_on(self):
        run, = self.campaign().runs()
        self.stand_in(code=130, line="stopped by the user after 10 of 200 steps", checkpoint=True, summary={"accuracy": None, "wall_s": 1})
        self.assertFalse(self.campaign().run(*run))
        self.assertEqual(list(accuracy_table.tables_of(self.campaign())), [("3", "resnet20", [])])
        self.stand_in(summary={"accuracy": 0.9, "steps": 200, "wall_s": 1, "precision": {"macs_in_full": 1, "effective_share": 0.0625}})
        self.assertTrue(self.campaign().run(*run))
        self.assertEqual([call.split()[0] for call in self.calls()], ["train", "resume"])
        (_, _, (line,)), = accuracy_table.tables_of(self.campaign())
        self.assertEqual((line[2], line[4], line[8]), (90, 6.25, None))  # seconds are of the last part alone
        self.assertTrue(self.campaign().run(*run))
        self.assertEqual(len(self.calls()), 2)

    def test_a_run_that_diverged_is_a_result(self):
        run, = self.campaign().runs()
        self.stand_in(code=1, line="stage 0: the loss is not finite at step 2: training diverged; try a smaller --lr")
        self.assertTrue(self.campaign().run(*run))
        (_, _, (line,)), = accuracy_table.tables_of(self.campaign())
        self.assertEqual(line[:3], ["SBM 8/8, 1 diverged", 0, None])

    def test_more_flags_are_runs_of_their_own_and_names_fit_a_file(self):
        run, = self.campaign().runs()
        names = {self.campaign(flags=flags).name_of("resnet20", run[2].flags, "1") for flags in ([], ["--lr", "0.1"], ["--lr", "0.2"], ["x" * 300])}
        self.assertEqual(len(names), 4)
        self.assertLess(max(len(name + ".weights") for name in names), 255)

    def test_what_is_wrong_is_one_line(self):
        self.stand_in()
        os.mkdir(os.path.join(self.folder.name, "cifar10"))
        data = ("--data", self.folder.name)
        for words, why in ((("--tables", "3", "--data", "/no-such"), "no folder cifar10"), (("--tables", "3", "--models", "resnet20,vgg", *data), "vgg"),
                           (("--tables", "3", "--rows", "SBM 8/8,SBM", *data), "--rows SBM: there are FP32"),
                           (("--tables", "3", *data, "--out", "/proc/none"), "--out /proc/none")):
            ended = self.typed(*words)
            self.assertEqual((ended.returncode, len(ended.stderr.splitlines())), (2, 1), ended.stderr)
            self.assertIn(why, ended.stderr)
        self.assertEqual(accuracy_table.chosen_rows(argparse.Namespace(tables=["5"], models=["resnet20"], rows="FracTrain, adaptation,SBM 8/8, fine-tuning")),
                         ["FracTrain (lstm), adaptation", "FracTrain (ff), adaptation", "SBM 8/8, fine-tuning"])


class Scenarios(unittest.TestCase):
    def test_later_links_win_and_each_direction_is_apart(self):
        case = {"hosts": [{"name": name} for name in "abc"],
                "links": [link("*", "*", 4, 2), link("a", "b", 10, 1), link("c", "*", 7, 8)]}
        self.assertEqual(scenario.bandwidths(case),
                         [[0, 10, 8], [1, 0, 8], [7, 7, 0]])
        self.assertEqual(scenario.bandwidths(case, 0.5),
                         [[0, .5, .5], [.5, 0, .5], [.5, .5, 0]])

    def test_hosts_of_a_medium_share_its_air(self):
        medium = {"name": "wifi", "hosts": ["a", "c"], "mbps": 20, "delay_ms": 0,
                  "access_point": True}
        case = {"hosts": [{"name": name} for name in "abc"], "links": [link("*", "*", 4, 2)],
                "media": [medium]}
        self.assertEqual(scenario.media(case), [{"hosts": [0, 2], "mbps": 10}])
        self.assertEqual(scenario.media(case, 3), [{"hosts": [0, 2], "mbps": 1.5}])
        self.assertEqual(scenario.bandwidths(case), [[0, 4, 10], [2, 0, 4], [10, 2, 0]])
        everybody = dict(case, media=[dict(medium, hosts=["*"], access_point=False)])
        self.assertEqual(scenario.media(everybody), [{"hosts": [0, 1, 2], "mbps": 20}])
        # Two links with 1 MB each way a batch: 4 MB on the air of 20 Mbps.
        summary = {"steps": 1, "samples": 1, "samples_per_s": 1, "central_processor_share": 0,
                   "plan": {"stages": [{"device_number": i} for i in range(3)]},
                   "stages": [{"device_number": i, "busy_share": 0.1} for i in range(3)],
                   "links": [{"bytes_forward": 1e6, "bytes_backward": 1e6}] * 2}
        matrix = scenario.bandwidths(everybody)
        self.assertAlmostEqual(run.bound_seconds_per_batch(
            summary, matrix, [0, 0, 0], media=scenario.media(everybody)), 1.6)
        self.assertAlmostEqual(run.bound_seconds_per_batch(summary, matrix, [0, 0, 0]), 0.4)

    def test_shipped_scenarios_load(self):
        names = [name[:-5] for name in os.listdir(scenario.FOLDER) if name.endswith(".json")]
        self.assertIn("three-pis", names)
        for name in names:
            case = scenario.load(name)
            self.assertEqual(len(scenario.bandwidths(case)), len(case["hosts"]))
            self.assertIn("--model", scenario.train_flags(case))

    def test_less_than_a_processor_has_one_thread(self):
        case = {"name": "x", "hosts": [{"name": name, "threads": 3} for name in "abcd"]}
        limited = scenario.under_quotas(case, [0.44, 1.5, 0, 4])
        self.assertEqual([host["threads"] for host in limited["hosts"]], [1, 2, 3, 3])
        self.assertEqual(case["hosts"][0]["threads"], 3)
        for cpu, why in (("0.3,x,1,1", "shares of processors"), ("1,1", "has 4 hosts"),
                         ("1,1,-1,1", "or above"), ("1,1,nan,1", "or above")):
            with self.assertRaisesRegex(LabError, why):
                run.shares_of(case, cpu)

    def test_what_is_wrong_is_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            for text in ("", "{}", '{"name": "x", "training": {}, "hosts": [], "links": []}'):
                path = os.path.join(folder, "bad.json")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                with self.assertRaisesRegex(LabError, "bad.json"):
                    scenario.load(path)
        with self.assertRaisesRegex(LabError, "three-pis"):
            scenario.load("no-such-scenario")


class SteadyTime(unittest.TestCase):
    def test_neither_start_nor_drain_counts(self):
        # A slow start, two seconds each, and a quick drain of the three batches in flight.
        def seconds(i):
            return 100 + 2 * min(i, 27) + 0.1 * max(i - 27, 0)
        summary = summary_of(seconds, 30, [3, 2, 1])
        self.assertAlmostEqual(run.steady_seconds_per_batch(summary, 5, 20), 2)
        self.assertAlmostEqual(run.steady_seconds_per_batch(summary, 5, 25), 2)
        self.assertIsNone(run.steady_seconds_per_batch(summary, 26, 20))


def ten_seconds(first_worker_share):
    """Of a run of ten batches on two stages."""
    summary = summary_of(lambda i: i, 10, [2, 1])
    summary.update(samples=640, samples_per_s=64, central_processor_share=0.0125,
                   stages=[{"busy_share": 0.5, "busy_processor_share": 0.2,
                            "processor_share": first_worker_share},
                           {"busy_share": 0.8, "busy_processor_share": 0.7,
                            "processor_share": 0.75}])
    return summary


class Bounds(unittest.TestCase):
    def test_the_busiest_stage_or_direction_counts(self):
        summary = ten_seconds(0.25)
        summary["links"][0].update(bytes_forward=1_000_000, bytes_backward=500_000)
        rates = [[0, 1], [1, 0]]
        for quotas in ([0, 0], [1, 2]):  # all that there is
            def bound(mbps, **more):
                return run.bound_seconds_per_batch(summary, mbps, quotas, **more)
            self.assertAlmostEqual(bound([[0, 0], [0, 0]]), 0.8)
            self.assertAlmostEqual(bound(rates), 0.8)
            self.assertAlmostEqual(bound(rates, whole_device=False), 0.8)
            self.assertAlmostEqual(bound([[0, 0.5], [1, 0]]), 1.6)
            self.assertAlmostEqual(bound([[0, 1], [0.1, 0]]), 4)
        self.assertIsNone(run.bound_seconds_per_batch(dict(summary, steps=0), rates, [0, 0]))

    def test_under_a_quota_processor_time_is_the_bound(self):
        summary = ten_seconds(0.2125)  # and central beside it
        summary["links"][0].update(bytes_forward=0, bytes_backward=0)
        rates = [[0, 0], [0, 0]]
        self.assertAlmostEqual(run.bound_seconds_per_batch(summary, rates, [0.25, 0]), 0.9)
        self.assertAlmostEqual(
            run.bound_seconds_per_batch(summary, rates, [0.25, 0], whole_device=False), 0.8)
        for stage, device in zip(summary["plan"]["stages"], (1, 0)):  # central goes with device 0
            stage["device_number"] = device
        self.assertAlmostEqual(run.bound_seconds_per_batch(summary, rates, [0.75, 0.25]), 1.0167, 4)

    def test_predictions_are_seconds_a_batch(self):
        self.assertEqual(run.prediction({"predicted_samples_per_s": 32}, 64), 2)
        self.assertIsNone(run.prediction({}, 64))

    def test_short_runs_have_no_efficiency(self):
        summary = {"steps": 200, "samples_per_s": 32}
        self.assertEqual(run.efficiencies(summary, 1.0, 64, 0.9, 0.8),
                         {"efficiency_steady": 0.9, "efficiency_computation": 0.8,
                          "efficiency_end_to_end": 0.45})
        self.assertEqual(set(run.efficiencies(summary, None, 64, 0.9, 0.8).values()), {None, 0.45})
        for one, bound in ((dict(summary, steps=99), 0.9), (summary, None)):
            self.assertEqual(set(run.efficiencies(one, 1.0, 64, bound, 0.8).values()), {None})


class Flags(unittest.TestCase):
    def test_what_the_user_gives_is_no_default(self):
        self.assertEqual(run.without(["--b", "3"], ["--a", "1", "--b", "2"]), ["--a", "1"])
        self.assertEqual(run.without([], ["--a", "-1"]), ["--a", "-1"])


class Reports(unittest.TestCase):
    def results(self):
        rows = []
        for policy, factor in (("ftpipehd", 4.0), ("runnel", 1.0)):
            for mbps in (0.25, 4):
                runs = []
                for repeat in range(3):
                    one = summary_of(lambda i: i, 9, [2, 1])
                    one["plan"]["stages"][1]["last_layer"] = 7 + repeat
                    one["lab"] = {"seconds_per_batch": factor / mbps + repeat,
                                  "predicted_seconds_per_batch": factor / mbps + 3}
                    runs.append(one)
                rows.append(sweep.result_of(policy, mbps, 64, runs))
        sweep.add_speedups(rows)
        return rows

    def test_medians_and_speedups(self):
        row = report.cell(self.results(), "runnel", 0.25)
        self.assertAlmostEqual(row["seconds_per_batch"], 5)
        self.assertAlmostEqual(row["speedup_vs_ftpipehd"], 17 / 5)
        self.assertAlmostEqual(row["samples_per_s"], 64 / 5)
        self.assertAlmostEqual(row["predicted_samples_per_s"], 64 / 7)

    def test_a_plan_stands_beside_the_time_that_it_gave(self):
        row = report.cell(self.results(), "runnel", 0.25)
        self.assertEqual(report.plan_text(row["plan"]), "0:0-0 1:1-8")
        self.assertEqual(row["plan_text"], "0:0-0 1:1-8")
        self.assertEqual(row["run_plans"], ["0:0-0 1:1-7", "0:0-0 1:1-8", "0:0-0 1:1-9"])

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            files = report.write({"mode": "measured", "results": [
                {"scenario": "tiny", "cells": self.results()}]}, folder)
            with open(files[0], encoding="utf-8") as file:
                text = file.read()
            self.assertIn("| runnel | 3.40 | 1.60 |", text)
            self.assertIn("| runnel | 9.1, 12.8 | 19.7, 51.2 |", text)
            with open(files[1], encoding="utf-8", newline="") as file:
                self.assertEqual(len(list(csv.DictReader(file))), 4)
            self.assertEqual(len(files), 4 if shutil.which("gnuplot") else 2)
            for path in files[2:]:
                with open(path, encoding="utf-8") as file:
                    self.assertIn("</svg>", file.read())

    def test_runs_too_short_to_time_are_gaps(self):
        rows = self.results()
        short = summary_of(lambda i: i, 9, [2, 1])
        short["lab"] = {"seconds_per_batch": None, "load_average": [[1.5, 0, 0], [2, 0, 0]]}
        rows.append(sweep.result_of("accept", 4, 64, [short]))
        self.assertEqual((rows[-1]["runs"], rows[-1]["run_plans"]), ([], []))
        sweep.add_speedups(rows)
        with tempfile.TemporaryDirectory() as folder:
            summary = {"mode": "measured", "results": [{"scenario": "tiny", "cells": rows}], "version": "central 1", "commit": "1a2b-dirty"}
            files = report.write(summary, folder)
            with open(files[0], encoding="utf-8") as file:
                self.assertIn("| accept | - | - |", file.read())
            with open(files[1], encoding="utf-8", newline="") as file:
                last = list(csv.DictReader(file))[-1]
            self.assertEqual((last["seconds_per_batch"], last["version"], last["load_average"]), ("", "central 1", "1.5"))
            self.assertEqual(last["commit"], "1a2b-dirty")
            self.assertIn("too few batches", last["no_seconds_because"])
            json.dumps(summary, allow_nan=False)


class Commits(unittest.TestCase):
    def test_of_a_checkout(self):
        self.assertRegex(sweep.commit_of_checkout(), r"^([0-9a-f]{12,40}(-dirty)?)?$")


class Curves(unittest.TestCase):
    def test_a_picture_that_cannot_be_written_is_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            log = f"{folder}/a.csv"
            with open(log, "w", encoding="utf-8") as file:
                file.write("step,loss\n10,2.5\n")
            with self.assertRaisesRegex(curves.Wrong, f"{folder}/none/c.svg: No such file"):
                curves.draw([log], f"{folder}/none/c.svg", "step", "loss")

    def test_points_and_what_is_wrong(self):
        with tempfile.TemporaryDirectory() as folder:
            log, lines = f"{folder}/a.csv", f"{folder}/b.jsonl"
            with open(log, "w", encoding="utf-8") as file:
                file.write("step,seconds,loss,test_accuracy\n10,1,2.5,\n20,2,1.5,\n20,2,,0.5\n")
            with open(lines, "w", encoding="utf-8") as file:
                file.write('{"step": 5, "loss": 3}\n{"step": 9, "test_accuracy": 0.25}\n')
            self.assertEqual(curves.points_of(log, "step", "loss", 1), [(10, 2.5), (20, 1.5)])
            self.assertEqual(curves.points_of(log, "seconds", "loss", 2), [(1, 2.5), (2, 2)])
            self.assertEqual(curves.points_of(lines, "step", "test_accuracy", 1), [(9, 0.25)])
            for x, y, message in (("step", "speed", "no column speed; it has step"),
                                  ("epoch", "loss", "no row has both epoch and loss")):
                with self.assertRaisesRegex(curves.Wrong, message):
                    curves.points_of(log, x, y, 1)
            with self.assertRaisesRegex(curves.Wrong, "none.csv"):
                curves.points_of(f"{folder}/none.csv", "step", "loss", 1)
            if shutil.which("gnuplot"):
                curves.draw([log, lines], f"{folder}/c.svg", "step", "loss")
                with open(f"{folder}/c.svg", encoding="utf-8") as file:
                    self.assertIn("</svg>", file.read())


class Confusion(unittest.TestCase):
    def test_a_cell_a_pair_of_classes_and_what_is_wrong(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/s.json"

            def write(summary):
                with open(path, "w", encoding="utf-8") as file:
                    json.dump(summary, file)

            figures = {"accuracy": 0.75, "classes": [{"name": "<cat>"}, {"name": "../d\x1bg"}],
                       "confusion": [[1, 1], [0, 2]]}
            write(figures)
            dog = "../d\N{REPLACEMENT CHARACTER}g"
            names, matrix, accuracy = confusion.matrix_of(path)
            self.assertEqual((names, matrix), (["<cat>", dog], [[1, 1], [0, 2]]))
            root = ElementTree.fromstring(confusion.draw(names, matrix, accuracy))
            titles = [one.text for one in root.iter("{http://www.w3.org/2000/svg}title")]
            self.assertEqual(titles, ["<cat> as <cat>: 1 of 2", f"<cat> as {dog}: 1 of 2",
                                      f"{dog} as <cat>: 0 of 2", f"{dog} as {dog}: 2 of 2"])
            with self.assertRaisesRegex(confusion.Wrong, "no figures of a test set"):
                confusion.matrix_of(path, of_test=True)
            write({"test": figures, "accuracy": 0.5})
            self.assertEqual(confusion.matrix_of(path, of_test=True)[2], 0.75)
            with self.assertRaisesRegex(confusion.Wrong, "has no matrix"):
                confusion.matrix_of(path)
            with self.assertRaisesRegex(confusion.Wrong, "none.json"):
                confusion.matrix_of(f"{folder}/none.json")


class SharedControl(unittest.TestCase):
    def test_control_streams_share_the_links_unless_told(self):
        for words, shared in (([], True), (["--no-shared-control"], False)):
            arguments = run.parse_arguments(["three-pis"] + words)
            self.assertEqual(arguments.shared_control, shared)
            job = {"shared_control": shared, "central": "c", "worker": "w", "folder": "f", "train": [],
                   "hosts": [{"name": "a", "threads": 1}, {"name": "b", "threads": 1}]}
            address = network.data_address(0) if shared else network.control_address(0)
            for _, _, command in one_run.commands(job):
                self.assertIn(f"{address}:{one_run.CENTRAL_PORT}", command)


class Backends(unittest.TestCase):
    def test_a_host_may_compute_with_a_backend_of_its_own(self):
        case = scenario.load("four-backends")
        self.assertEqual([host["backend"] for host in case["hosts"]],
                         ["cpu", "cpu:portable", "cpu:avx2", "torch"])
        with tempfile.TemporaryDirectory() as folder:
            job = {"shared_control": True, "central": "c", "worker": "/bin/echo", "folder": folder,
                   "train": [], "hosts": case["hosts"]}
            words = {name: command for name, _, command in one_run.commands(job)}
            self.assertNotIn("--backend", words["central"])
            self.assertEqual(words["worker-3"][-2:], ["--backend", "torch"])
            program = one_run.local_worker(job)
            said = subprocess.run([program, "--name", "a b"], capture_output=True, text=True,
                                  check=True)
            self.assertEqual(said.stdout, "--backend cpu --name a b\n")
            plain = dict(job, hosts=[{"name": "a"}])
            self.assertEqual(one_run.local_worker(plain), "/bin/echo")
            path = os.path.join(folder, "bad.json")
            case["hosts"][1]["backend"] = 7
            with open(path, "w", encoding="utf-8") as file:
                json.dump(case, file)
            with self.assertRaisesRegex(LabError, "host portable: backend must be a name"):
                scenario.load(path)

    def test_a_worker_that_ends_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            children = one_run.Children(folder)
            worker = children.start("worker-1", ["sh", "-c", "echo no such backend; exit 2"], None,
                                    None)
            worker.wait()
            central = children.start("central", ["sleep", "60"], None, None)
            try:
                with self.assertRaisesRegex(LabError, "worker-1 ended: no such backend"):
                    one_run._await(central, {"timeout_s": 60, "changes": [], "mbps": [],
                                             "folder": folder}, children)
            finally:
                children.stop()


class Resuming(unittest.TestCase):
    def test_a_cell_counts_only_for_what_it_was_run_with(self):
        case = scenario.load("three-pis")
        arguments = argparse.Namespace(cpu=None, batches=20, warm_up=5, shared_control=False,
                                       dataset=None, train=[],
                                       methods={"accept": ["--policy", "accept"]})
        mark = sweep.fingerprint(case, arguments, "accept")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "cell.json")
            self.assertIsNone(sweep.finished(path, mark))
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"lab": {"fingerprint": mark}}, file)
            self.assertIsNotNone(sweep.finished(path, mark))
        other = copy.deepcopy(case)
        other["hosts"][1]["cpu_quota"] = 0.3
        longer = argparse.Namespace(**dict(vars(arguments), batches=40))
        for changed in (sweep.fingerprint(other, arguments, "accept"),
                        sweep.fingerprint(case, longer, "accept"),
                        sweep.fingerprint(case, arguments, "predictor")):
            self.assertNotEqual(changed, mark)


if __name__ == "__main__":
    unittest.main()
