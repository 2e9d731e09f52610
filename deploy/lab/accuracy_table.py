"""Tables 1, 2, 3 and 5 of FracTrain and 8 of Mandheling in our form: what each recipe and precision reaches, and what it takes.

    deploy/accuracy_table.sh [--short] [--tables 1,2,3,5,m8] [--models resnet20,...] [--rows "SBM 8/8,FracTrain",...]
                             [--seeds 1,2] [--epochs N] [--data DIR] [--bin DIR] [--out DIR] [--jobs N] [-- FLAGS OF runnel-central train]

A row trains a model of the zoo on one device; its multiply-adds count those of all layers of the whole run, an A by B bit product as
A/32 * B/32 (the summary's `effective_macs`), beside seconds and joules. The paper's share of its own base row is printed beside
ours. "to an accuracy" are the multiply-adds of a run until its first evaluation no more than a point below the base row's end, over those of
the base row's whole run. Full length is the paper's 64,000 steps of 128 samples, 160 epochs; --short has a twentieth of it, one seed. PFQ's EVERY is a
160th of a run. ImageNet and CIFAR-100 are no data sets here: table 4 and those rows are left out, ResNet-20 stands beside
ResNet-38 as the cheap one. Gates of "(lstm)" rows are those of the paper; "(ff)" rows read a block's input alone, and the paper has none.
--rows takes a name without what stands in brackets too, for both.

Each run leaves OUT/NAME.json and NAME.log; what is there is not run again, and a run that was interrupted goes on from its last
check-point (its time is then not told). Flags after -- make runs of their own. OUT/table.md and OUT/table.json have what is there; a run
that diverged is a result too. Exit codes: 0 done, 1 a run failed, 2 wrong input, 130 stopped by Ctrl-C.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import json
import pathlib
import statistics
import subprocess
import sys
import threading

EPOCHS, SHORT_EPOCHS = 160, 8
BATCH = 128
STEPS_A_TURN = 160  # PFQ: a run has as many turns' worth of losses
LONGEST_NAME = 200  # of a run: file systems take 255 bytes, of which endings have a few
STOPPED = 130  # exit code
POINTS_BELOW = 1  # of the base row's accuracy
DIVERGED = "training diverged"  # as the worker says it
# Samples of an epoch, to say PFQ's EVERY in steps.
SAMPLES = {"cifar10": 50_000, "mnist": 60_000, "wikitext2": 84_000}
PFQ8, PFQ12, PFQ16 = "pfq:{a}/6,6,8,8@0.05,0.3,{every}", "pfq:{a}/6,8,10,12@0.05,0.3,{every}", "pfq:{a}/6,8,12,16@0.05,0.3,{every}"
# The released options of ResNets on CIFAR; and zero bits beside them. Released weights have 4 bits whatever the option, ours the bits of the
# option's activations: an option's multiply-adds are 1.46, 2.08, 2.60, 4.30 and 5.86 % of FP32's where theirs are 1.76 to 4.69.
OPTIONS = "3,4,4,6,6/6,6,8,8,12"
SKIPPING = "0,3,4,4,6,6/6,6,6,8,8,12"
TARGETS = "1.5,2,2.5,3@0.05,0.3,{every}"


class Row:
    """A line of a table: `paper` are its accuracy in % and its multiply-adds, `base` the row that both compare with."""

    def __init__(self, name, flags, base=None, paper=None, before=None):
        self.name, self.flags, self.base, self.paper, self.before = name, flags, base, paper, before


def table1():
    rows = []
    for bits, pfq, accuracy, saved in (("8/8", PFQ8, 93.77, 17.16), ("8/12", PFQ12, 93.69, 27.30), ("8/16", PFQ16, 93.90, 21.96)):
        gradient = bits.split("/")[1]
        rows.append(Row(f"SBM {bits}", ["--recipe", f"sbm:8,8,{gradient}"]))
        rows.append(Row(f"PFQ to {bits}", ["--recipe", f"sbm:8,8,{gradient}", "--precision", pfq.replace("{a}", "4,4,6,8")],
                        f"SBM {bits}", (accuracy, 1 - saved / 100)))
    return {"mobilenet_v2": rows}


def table2():
    return {"transformer_tiny": [
        Row("SBM 8/16", ["--recipe", "sbm:8,8,16"]),
        Row("PFQ to 8/16", ["--recipe", "sbm:8,8,16", "--precision", PFQ16.replace("{a}", "3,4,6,8")], "SBM 8/16", (None, 1 - 0.44))]}


def gated(name, options, target, paper=None):
    """The rows of both kinds of gates, of which FracTrain's are LSTMs."""
    return [Row(f"{name} ({gate})", ["--recipe", "sbm:8,8,8", "--gates", f"{gate}:{options}", "--cost-target", target], "SBM 8/8",
                paper if gate == "lstm" else None) for gate in ("lstm", "ff")]


def table3():
    # Of ResNet-38 and CIFAR-10, over SBM's 1.18e14.
    sbm = 1.18e14
    rows = [
        Row("FP32", ["--recipe", "fp32"]),
        Row("WAGEUBN", ["--recipe", "wageubn"], "SBM 8/8", (91.81, 1.11e14 / sbm)),
        Row("DoReFa 8/8", ["--recipe", "dorefa:8,8,8"], "SBM 8/8", (92.02, 1.21e14 / sbm)),
        Row("SBM 8/8", ["--recipe", "sbm:8,8,8"], None, (92.66, 1)),
        Row("SBM 8/16", ["--recipe", "sbm:8,8,16"]),
        Row("PFQ to 8/8", ["--recipe", "sbm:8,8,8", "--precision", PFQ8.replace("{a}", "3,4,6,8")], "SBM 8/8"),
        Row("PFQ to 8/16", ["--recipe", "sbm:8,8,16", "--precision", PFQ16.replace("{a}", "3,4,6,8")], "SBM 8/16"),
        Row("CPT 3-8/8", ["--recipe", "sbm:8,8,8", "--precision", "cpt:3,8/8"], "SBM 8/8"),
        *gated("DFQ cp 3", OPTIONS, "3", (92.49, 4.96e13 / sbm)),
        *gated("FracTrain", OPTIONS, TARGETS, (92.54, 3.97e13 / sbm)),
        *gated("FracTrain that skips", SKIPPING, TARGETS)]
    return {"resnet20": rows, "resnet38": rows}


def table5():
    """Half of the classes first; then the other half (adaptation) or all (fine-tuning)."""
    models = {}
    for model in ("resnet20", "resnet38"):
        models[model] = rows = []
        for task, classes, papers in (("adaptation", "5-9", (77.44, 9.96e13, 77.76, 7.87e13, 78.08, 4.96e13, 77.52, 3.12e13)),
                                      ("fine-tuning", "0-9", (64.83, 1.22e14, 64.72, 8.68e13, 65.01, 3.95e13, 64.53, 4.45e13))):
            methods = [("SBM 8/8", [], 0), ("PFQ to 8/8", ["--precision", PFQ8.replace("{a}", "3,4,6,8")], 2)]
            for gate in ("lstm", "ff"):
                methods += [(f"DFQ cp 3 ({gate})", ["--gates", f"{gate}:{OPTIONS}", "--cost-target", "3"], 4),
                            (f"FracTrain ({gate})", ["--gates", f"{gate}:{OPTIONS}", "--cost-target", TARGETS], 6)]
            for name, flags, i in methods:
                gates = flags[:2] if flags[:1] == ["--gates"] else []
                rows.append(Row(f"{name}, {task}", ["--recipe", "sbm:8,8,8", "--classes", classes, *flags],
                                None if i == 0 else f"SBM 8/8, {task}", None if "(ff)" in name else (papers[i], papers[i + 1] / papers[1]),
                                ["--recipe", "sbm:8,8,8", "--classes", "0-4", *gates]))
    return models


def mandheling8():
    def rows(accuracy):
        return [Row("FP32", ["--recipe", "fp32"]), Row("NITI", ["--recipe", "niti"], "FP32", (accuracy, None))]
    return {"vgg11": rows(None), "vgg16": rows(87.17), "resnet18_nobn": rows(90.40)}


TABLES = {"1": ("FracTrain, table 1", "cifar10", table1), "2": ("FracTrain, table 2", "wikitext2", table2),
          "3": ("FracTrain, table 3", "cifar10", table3), "5": ("FracTrain, table 5", "cifar10", table5),
          "m8": ("Mandheling, table 8", "cifar10", mandheling8)}


def fail(text):
    sys.exit(print(f"accuracy_table.sh: {text}", file=sys.stderr) or 2)


def words():
    parser = argparse.ArgumentParser(prog="accuracy_table.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--models", default="")
    parser.add_argument("--rows", default="")
    parser.add_argument("--seeds", default="")
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--data", default=str(pathlib.Path.home() / "data"))
    parser.add_argument("--bin", default=str(pathlib.Path(__file__).resolve().parents[2] / "build/release/bin"))
    parser.add_argument("--out", default="build/accuracy_table")
    parser.add_argument("--jobs", type=int, default=1)
    own = sys.argv[1:]
    more = own.index("--") if "--" in own else len(own)
    given = parser.parse_args(own[:more])
    given.flags = own[more + 1:]
    given.tables = given.tables.split(",")
    for name in given.tables:
        if name not in TABLES:
            fail(f"--tables {name}: there are {', '.join(TABLES)}")
    given.seeds = given.seeds.split(",") if given.seeds else (["1"] if given.short else ["1", "2"])
    if not all(seed.isdigit() for seed in given.seeds) or given.epochs < 0 or given.jobs < 1:
        fail("--seeds, --epochs and --jobs are whole numbers")
    given.epochs = given.epochs or (SHORT_EPOCHS if given.short else EPOCHS)
    given.models = chosen_models(given)
    given.rows = chosen_rows(given)
    if not pathlib.Path(given.bin, "runnel-central").exists():
        fail(f"--bin {given.bin}: no runnel-central; deploy/quickstart.sh builds it")
    for folder in sorted({pathlib.Path(given.data, TABLES[name][1]) for name in given.tables}):
        if not folder.is_dir():
            fail(f"--data {given.data}: no folder {folder.name} with that data set's files in it")
    return given


def chosen_models(given):
    """The models of --models; all without it."""
    known = {model for name in given.tables for model in TABLES[name][2]()}
    models = given.models.split(",") if given.models else sorted(known)
    for model in models:
        if model not in known:
            fail(f"--models {model}: tables {','.join(given.tables)} have {', '.join(sorted(known))}")
    return models


def chosen_rows(given):
    """The names of the rows of --rows, in which commas may be; all without it."""
    known = [row.name for name in given.tables for model, rows in TABLES[name][2]().items() if model in given.models for row in rows]
    if not given.rows:
        return known
    rows, parts = [], given.rows.split(",")
    while parts:
        for count in range(len(parts), 0, -1):
            asked = ",".join(parts[:count]).strip()
            found = [name for name in known if asked in (name, name.replace(" (lstm)", "").replace(" (ff)", ""))]
            if found:
                rows, parts = rows + found, parts[count:]
                break
        else:
            fail(f"--rows {parts[0]}: there are {'; '.join(dict.fromkeys(known))}")
    return rows


def slug(text):
    return "".join(c if c.isalnum() else "_" for c in text)


def effective_share(run):
    """Of a summary: the run's effective multiply-adds over FP32's, or None. Those of the run's start count too where it was resumed."""
    precision = run.get("precision") or {}
    share = precision.get("gates", precision).get("effective_share")
    if share is None and precision.get("macs_in_full") and "resumed" not in run and run.get("effective_macs"):
        return run["effective_macs"] / precision["macs_in_full"]  # gates, before the first barrier
    return share


class Campaign:
    def __init__(self, given):
        self.given = given
        self.out = pathlib.Path(given.out)
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            fail(f"--out {given.out}: {error.strerror}")
        self.is_stopped = False
        self.names = collections.defaultdict(threading.Lock)  # a run that others begin with is trained once

    def runs(self):
        """(table, model, row, seed) of all that was asked for."""
        for name in self.given.tables:
            for model, rows in TABLES[name][2]().items():
                for row in rows:
                    chosen = model in self.given.models and row.name in self.given.rows
                    for seed in self.given.seeds if chosen else []:
                        yield name, model, row, seed

    def name_of(self, model, flags, seed):
        name = f"{slug(model)}-{slug(' '.join(flags + self.given.flags))}-{self.given.epochs}-{seed}"
        digest = hashlib.sha256(name.encode()).hexdigest()[:12]
        return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME - 13]}-{digest}"

    def flags_of(self, row, dataset):
        steps = max(1, self.given.epochs * SAMPLES[dataset] // BATCH)
        every = max(1, steps // STEPS_A_TURN)
        flags = [flag.replace("{every}", str(every)) for flag in row.flags]
        return flags + ["--barrier-every", str(every)] if any("{every}" in flag for flag in row.flags) else flags

    def train(self, model, dataset, flags, seed):
        """Trains, if that was not done yet; whether there is a result."""
        name = self.name_of(model, flags, seed)
        with self.names[name]:
            return self.train_named(name, model, dataset, flags, seed)

    def train_named(self, name, model, dataset, flags, seed):
        summary, partial = self.out / f"{name}.json", self.out / f"{name}.partial"
        if summary.exists() and summary.stat().st_size:
            return True
        if self.is_stopped:
            return False
        weights, log_path = self.out / f"{name}.weights", self.out / f"{name}.log"
        is_resumed = any(weights.glob("*.runnel"))
        partial.unlink(missing_ok=True)
        command = [str(pathlib.Path(self.given.bin, "runnel-central"))]
        if is_resumed:
            command += ["resume"]
        else:
            command += ["train", "--quick", "--local-workers", "1", "--model", model, "--dataset", dataset, "--data-dir",
                        str(pathlib.Path(self.given.data, dataset)), "--optimizer", "sgd", "--batch-size", str(BATCH), "--epochs",
                        str(self.given.epochs), "--rate", "multi_step:0.5,0.75", "--seed", seed, *flags, *self.given.flags]
        command += ["--checkpoint-dir", str(weights), "--summary", str(partial)]
        with open(log_path, "a" if is_resumed else "w") as log:
            code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log).returncode
        last = (log_path.read_text().strip().splitlines() or ["nothing was printed"])[-1]
        if code == 0:
            run = json.loads(partial.read_text())
        elif DIVERGED in last:
            run = {"diverged": last}
        else:
            print(f"{name}: exit code {code}: {last}; {log_path}", file=sys.stderr)
            return False
        partial.write_text(json.dumps({**run, "resumed": True} if is_resumed else run))
        partial.rename(summary)
        return True

    def run(self, name, model, row, seed):
        dataset = TABLES[name][1]
        flags = self.flags_of(row, dataset)
        if row.before is not None:
            if not self.train(model, dataset, row.before, seed):
                return False
            flags = flags + ["--init-from", str(self.out / f"{self.name_of(model, row.before, seed)}.weights")]
        return self.train(model, dataset, flags, seed)

    def result(self, name, model, row):
        """Of the seeds that are there: accuracies in %, share of FP32's multiply-adds, multiply-adds, seconds and joules of a run."""
        accuracies, macs, shares, seconds, joules, reached, count, diverged = [], [], [], [], [], [], 0, 0
        for seed in self.given.seeds:
            flags = self.flags_of(row, TABLES[name][1])
            if row.before is not None:
                flags = flags + ["--init-from", str(self.out / f"{self.name_of(model, row.before, seed)}.weights")]
            path = self.out / f"{self.name_of(model, flags, seed)}.json"
            if not path.exists():
                continue
            run = json.loads(path.read_text())
            if "diverged" in run:
                diverged += 1
                continue
            if run.get("accuracy") is not None:
                accuracies.append(100 * run["accuracy"])
            share, full = effective_share(run), (run.get("precision") or {}).get("macs_in_full")
            if share and full:
                shares.append(share)
                macs.append(share * full)
            elif "--recipe fp32" in " ".join(row.flags):
                shares.append(1.0)
            if "resumed" not in run:
                reached.append([(100 * one["accuracy"], one["effective_macs"]) for one in run.get("evaluations", [])
                                if one.get("accuracy") is not None and "effective_macs" in one])
                seconds.append(run["wall_s"])
            if run.get("joules_per_sample"):
                joules.append(run["joules_per_sample"] * run["steps"] * BATCH)
            count += 1
        mean = lambda values: statistics.mean(values) if values else None  # noqa: E731
        return {"seeds": count, "diverged": diverged, "accuracy": mean(accuracies), "deviation": statistics.stdev(accuracies) if len(accuracies) > 1 else None,
                "share": mean(shares), "macs": mean(macs), "seconds": mean(seconds), "joules": mean(joules), "evaluations": reached}


def macs_to(accuracy, runs):
    """The mean of the runs' multiply-adds until their first evaluation of this accuracy; None if one of them does not reach it."""
    firsts = [next((macs for reached, macs in run if reached >= accuracy), None) for run in runs]
    return statistics.mean(firsts) if firsts and None not in firsts else None


def tables_of(campaign):
    chosen = {}
    for name, model, row, _ in campaign.runs():
        rows = chosen.setdefault((name, model), [])
        if row not in rows:
            rows.append(row)
    for (name, model), rows in chosen.items():
        results = {row.name: campaign.result(name, model, row) for row in rows}
        lines = []
        for row in rows:
            ours = results[row.name]
            if ours["seeds"] + ours["diverged"] == 0:
                continue
            base = results.get(row.base) if row.base else None
            ratio = ours["share"] / base["share"] if base and base["share"] and ours["share"] else None
            gap = ours["accuracy"] - base["accuracy"] if base and None not in (base["accuracy"], ours["accuracy"]) else None
            goal = base or ours
            to_goal = macs_to(goal["accuracy"] - POINTS_BELOW, ours["evaluations"]) if goal["accuracy"] is not None and goal["macs"] else None
            paper_accuracy, paper_ratio = row.paper or (None, None)
            name_shown = row.name + (f", {ours['diverged']} diverged" if ours["diverged"] else "")
            lines.append([name_shown, ours["seeds"], ours["accuracy"], gap, ours["share"] and 100 * ours["share"], ratio, paper_ratio, paper_accuracy,
                          ours["seconds"], ours["joules"], to_goal and to_goal / goal["macs"]])
        yield name, model, lines


COLUMNS = [("row", None, 0), ("seeds", None, 0), ("accuracy", "%", 2), ("to the base row", "points", 2), ("multiply-adds of FP32's", "%", 2),
           ("of the base row's", "ratio", 3), ("paper's", "ratio", 3), ("paper's accuracy", "%", 2), ("time", "s", 0), ("energy by the model", "J", 1), ("to an accuracy", "ratio", 3)]


def write(campaign):
    texts, stored = [], []
    for name, model, lines in tables_of(campaign):
        title, dataset, _ = TABLES[name]
        caption = f"{title}: {model} on {dataset}, {campaign.given.epochs} epochs, seeds {','.join(campaign.given.seeds)}"
        texts += [caption, "", "| " + " | ".join(f"{c}{f' ({unit})' if unit else ''}" for c, unit, _ in COLUMNS) + " |",
                  "|---" * len(COLUMNS) + "|"]
        for line in lines:
            cells = ["-" if value is None else value if isinstance(value, str) else f"{value:.{decimals}f}"
                     for value, (_, _, decimals) in zip(line, COLUMNS)]
            texts.append("| " + " | ".join(cells) + " |")
        texts.append("")
        columns = [{"name": c, **({"unit": unit, "decimals": decimals} if unit else {})} for c, unit, decimals in COLUMNS]
        rows = [[str(v) if i == 1 else v for i, v in enumerate(line)] for line in lines]
        stored.append({"caption": caption, "columns": columns, "rows": rows})
    (campaign.out / "table.md").write_text("\n".join(texts) + "\n")
    (campaign.out / "table.json").write_text(json.dumps(stored, indent=1) + "\n")
    print("\n".join(texts))


def main():
    given = words()
    campaign = Campaign(given)
    runs = list(campaign.runs())
    if not runs:
        fail("no row has this model and name; without --models and --rows all are run")
    done, is_good = 0, True
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        try:
            for run, good in zip(runs, pool.map(lambda run: campaign.run(*run), runs)):
                done += 1
                is_good = is_good and good
                print(f"{done} of {len(runs)}: {run[1]}, {run[2].name}, seed {run[3]}{'' if good else ': failed'}", file=sys.stderr)
        except KeyboardInterrupt:
            campaign.is_stopped = True
            print("accuracy_table.sh: stopping; the same command goes on from the last check-points", file=sys.stderr)
    write(campaign)
    return STOPPED if campaign.is_stopped else 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
