"""Seconds until a scenario's training has an accuracy, by method and bandwidth.

    deploy/lab/time_to_accuracy.sh three-pis --data-dir DIR [--mbps 100,20,4,1] [--policies uniform,ftpipehd,...] [--share 0.9]
                                   [--epochs 60] [--seeds 1,2] [--bin DIR] [--out DIR] [--summary FILE.json]

`runnel-lab simulate` says how each method cuts the model at each bandwidth and how long a mini-batch takes. What is learned by
then is trained by the defaults, with workers of this host: as many stages, the same caps and codecs, one evaluation an epoch, each
seed once for all cells that are alike. Where the cut itself lies is left out of that: layers are divided evenly. Where a plan's links
have different codecs, all are trained with that of the fewest bits, so that too little is learned rather than too much. The mark is
--share of the accuracy that the quickest host alone has after --epochs, the mean over the seeds; between two evaluations accuracy is
a line. `one device` is that host alone, which holds the data. A training that is in OUT is not run again.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys

import run
import scenario as scenarios
from sandbox import LabError

ONE_DEVICE = "one device"


def parse_arguments(words):
    parser = argparse.ArgumentParser(prog="deploy/lab/time_to_accuracy.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", help="a scenario file, or the name of one in deploy/lab/scenarios")
    parser.add_argument("--data-dir", required=True, help="the data set's files")
    parser.add_argument("--bin", default=os.path.join(run.REPOSITORY, "build/release/bin"))
    parser.add_argument("--mbps", default="100,20,4,1")
    parser.add_argument("--policies", default="uniform,ftpipehd,measured_compression,runnel")
    parser.add_argument("--share", type=float, default=0.9)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seeds", default="1,2")
    parser.add_argument("--out", default="build/time_to_accuracy")
    parser.add_argument("--summary", help="JSON with the cells")
    given = parser.parse_args(words)
    given.mbps, given.seeds = given.mbps.split(","), given.seeds.split(",")
    if not 0 < given.share <= 1 or given.epochs < 1:
        raise LabError("--share is above 0 and at most 1, --epochs at least 1")
    return given


def simulated(given):
    """The cells of `runnel-lab simulate`, which has more methods to compare with than it was asked for."""
    [lab] = run.binaries(given.bin, ["runnel-lab"])
    policies = given.policies.split(",")
    done = subprocess.run([lab, "simulate", scenarios.path_of(given.scenario), "--mbps", *given.mbps, "--policies",
                           *policies, "--summary", "-"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(done.stderr.strip())
    return [cell for cell in json.loads(done.stdout)["results"][0]["cells"] if cell["method"] in policies]


def alone(case):
    """Seconds a mini-batch of the quickest host, which needs no link."""
    batch = case["training"]["batch_size"]
    profiles = {profile["name"]: sum(profile["layer_ms"]) * batch / profile["batch_size"] for profile in case["profiles"]}
    return min(1e-3 * profiles[host["profile"]] / host["speed"] for host in case["hosts"])


def fewest_bits(codecs):
    """Of codecs whose names end with their bits; `identity` has all."""
    return min(codecs, key=lambda codec: int(re.search(r"\d*$", codec)[0] or 32))


def way_of(plan):
    """What is trained for a plan: caps and codecs, on all links those of the link with the fewest bits."""
    caps = tuple(stage["cap"] for stage in plan["stages"])
    links = plan["links"] or [{"codec_forward": "identity", "codec_backward": "identity"}]
    return caps, tuple(fewest_bits([link[name] for link in links]) for name in ("codec_forward", "codec_backward"))


def name_of(training, way, epochs, seed):
    """Of a run's files: whatever makes it another run is in it."""
    caps, codecs = way
    words = [training["model"], training["dataset"], training["schedule"], training["batch_size"], "_".join(map(str, caps)), *codecs,
             epochs, seed]
    return "-".join(map(str, words)).replace(":", "_")


def train(given, case, way, seed):
    """Accuracies by epoch."""
    caps, (forward, backward) = way
    training = case["training"]
    name = name_of(training, way, given.epochs, seed)
    path = os.path.join(given.out, name + ".json")
    if not os.path.exists(path):
        [central] = run.binaries(given.bin, ["runnel-central"])
        flags = ["--codec-forward", forward, "--codec-backward", backward, "--caps", ",".join(map(str, caps))] if len(caps) > 1 else []
        command = [central, "train", "--quick", "--model", training["model"], "--dataset", training["dataset"], "--data-dir", given.data_dir,
                   "--batch-size", str(training["batch_size"]), "--schedule", training["schedule"], "--local-workers", str(len(caps)),
                   "--epochs", str(given.epochs), "--eval-every", "1", "--seed", seed, *flags, "--summary", path + ".part"]
        with open(os.path.join(given.out, name + ".log"), "w", encoding="utf-8") as log:
            code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False).returncode
        if code != 0:
            raise LabError(f"{name}: runnel-central ended with {code}; see {given.out}/{name}.log")
        os.replace(path + ".part", path)
    with open(path, encoding="utf-8") as file:
        return [at["accuracy"] for at in json.load(file)["evaluations"]]


def epochs_to(accuracies, mark):
    """Between two evaluations along a straight line; None: never."""
    before = 0.0
    for epoch, accuracy in enumerate(accuracies, 1):
        if accuracy >= mark:
            return epoch - 1 + (mark - before) / (accuracy - before)
        before = accuracy
    return None


def seconds_of(curves, mark, steps, seconds_per_batch):
    """The mean over the seeds; None where one of them never gets there."""
    epochs = [epochs_to(curve, mark) for curve in curves]
    if None in epochs:
        return None
    return statistics.mean(epochs) * steps * seconds_per_batch


def table_of(given, case):
    """The mark and rows of (method, Mbps, plan's text, seconds a mini-batch, best accuracy, seconds to the mark)."""
    trained = {}

    def curves_of(way):
        if way not in trained:
            trained[way] = [train(given, case, way, seed) for seed in given.seeds]
        return trained[way]

    steps = case["training"]["steps_per_epoch"]
    one = curves_of(((1,), ("identity", "identity")))
    mark = given.share * statistics.mean(curve[-1] for curve in one)
    best = lambda curves: statistics.mean(max(curve) for curve in curves)  # noqa: E731
    rows = [[ONE_DEVICE, None, "", alone(case), best(one), seconds_of(one, mark, steps, alone(case))]]
    for cell in simulated(given):
        curves = curves_of(way_of(cell["plan"]))
        rows.append([cell["method"], cell["mbps"], cell["plan_text"], cell["seconds_per_batch"], best(curves),
                     seconds_of(curves, mark, steps, cell["seconds_per_batch"])])
    return mark, rows


def main(words):
    given = parse_arguments(words)
    case = scenarios.load(given.scenario)
    os.makedirs(given.out, exist_ok=True)
    mark, rows = table_of(given, case)
    print(f"{case['name']}: seconds to {100 * mark:.2f} % ({given.share:g} of one device after {given.epochs} epochs, seeds "
          f"{','.join(given.seeds)})")
    print(f"{'method':22}{'Mbps':>6}{'s/batch':>10}{'best %':>8}{'seconds':>10}  plan")
    for method, mbps, plan, batch, accuracy, seconds in rows:
        print(f"{method:22}{'' if mbps is None else f'{mbps:g}':>6}{batch:10.4f}{100 * accuracy:8.2f}"
              f"{'never' if seconds is None else f'{seconds:.1f}':>10}  {plan}")
    if given.summary:
        with open(given.summary, "w", encoding="utf-8") as file:
            json.dump({"mark": mark, "rows": rows}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(run.guarded(main, sys.argv[1:]))
