"""deploy/lab/run.sh: one training over several hosts made out of one."""

import argparse
import contextlib
import json
import math
import os
import sys
import tempfile
import time

import cpu_quota
import sandbox
import scenario as scenarios
from sandbox import Interrupted, LabError

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(os.path.dirname(HERE))
EFFICIENCY_STEPS = 100
# Why a run has no time of a batch (steady_seconds_per_batch).
TOO_QUICK = "too few batches between reports, of which workers send five a second"


def add_common_flags(parser):
    parser.add_argument("scenario", help="a scenario file, or the name of one in "
                        "deploy/lab/scenarios")
    parser.add_argument("--bin", default=os.path.join(REPOSITORY, "build/release/bin"),
                        help="folder of runnel-central and runnel-worker (default: %(default)s)")
    parser.add_argument("--batches", type=int, default=20, help="measured mini-batches")
    parser.add_argument("--warm-up", type=int, default=12,
                        help="mini-batches before those; at batch 10 those who re-plan look at their "
                             "first measurements, with the pipeline drained")
    parser.add_argument("--shared-control", action=argparse.BooleanOptionalAction, default=True,
                        help="control streams share the shaped links with the tensors, as they do where "
                             "people live; --no-shared-control gives them unshaped links of their own "
                             "(default: shared)")
    parser.add_argument("--cpu", help="CPU quota of each host in processors, e.g. 0.3,0.2,0.4 "
                        "(default: the scenario's; 0: none)")
    parser.add_argument("--dataset", help="instead of the scenario's; the times do not depend on it")
    parser.add_argument("--data-dir", help="the data set's files")
    parser.add_argument("--timeout-s", type=float, default=1800, help="of one run")
    parser.add_argument("--as-typed", action="store_true",
                        help="central gets the scenario's training and the flags after --, but neither "
                             "the links' rates nor fewer barriers: what someone who types it would see")


def parse_arguments(words):
    parser = argparse.ArgumentParser(
        prog="deploy/lab/run.sh", description="Trains a scenario on hosts made of network name "
        "spaces, with shaped links (tc tbf) and CPU quotas (cgroups). Needs root; what it makes is "
        "gone when it ends. Flags after -- go to runnel-central train.")
    add_common_flags(parser)
    parser.add_argument("--mbps", type=float, help="bandwidth of every link and direction "
                        "(default: the scenario's; 0: unlimited)")
    parser.add_argument("--summary", help="where central's summary and the lab's figures go")
    parser.add_argument("--logs", help="keep the processes' output in this folder")
    words, _, rest = (words, None, []) if "--" not in words else \
        (words[:words.index("--")], None, words[words.index("--") + 1:])
    arguments = parser.parse_args(words)
    arguments.train = rest
    return arguments


def binaries(folder, names=("runnel-central", "runnel-worker")):
    paths = [os.path.join(folder, name) for name in names]
    for path in paths:
        if not os.access(path, os.X_OK):
            raise LabError(f"{path} is not there: build it (cmake --build --preset release), or "
                           "name the folder with --bin")
    return [os.path.abspath(path) for path in paths]


def steady_seconds_per_batch(summary, warm_up, batches):
    """Between two completions at stage 0, so that neither start nor drain counts: the last
    batches in flight have the devices to themselves. None: too few (workers report five times a
    second, so of quick batches there are many between two points)."""
    in_flight = max(stage["cap"] for stage in summary["plan"]["stages"])
    last = min(warm_up + batches, summary["steps"] - in_flight)
    points = [point for point in summary.get("timeline", [])
              if warm_up <= point["batches"] <= last]
    if len(points) < 2 or points[-1]["batches"] - points[0]["batches"] < batches / 3:
        return None
    return (points[-1]["seconds"] - points[0]["seconds"]) / \
        (points[-1]["batches"] - points[0]["batches"])


def seconds_text(seconds):
    """Of a batch; or why there is no such figure."""
    return f"{seconds:.4f} s a batch" if seconds else f"{TOO_QUICK}: more --batches"


def stage_share(stage, quota, whole_device):
    """Of the training time, what a stage needs if nothing held it up. Under a quota the wall clock
    says too little (what was not used while waiting is caught up at full speed): there it is the
    processor time over what the device has of it, of computing or of all that the worker does."""
    if not 0 < quota < 1:
        return stage["busy_share"]
    return stage["processor_share" if whole_device else "busy_processor_share"] / quota


def bound_seconds_per_batch(summary, mbps, quotas, whole_device=True, media=()):
    """What the busiest device, direction of a link or medium needs for a mini-batch: no schedule can be
    quicker with this plan. Coding, frames, acknowledgements and central, which is on device 0, count
    unless only computation is asked for. None: nothing was trained."""
    stages, steps = summary["plan"]["stages"], summary["steps"]
    if not steps or not summary["samples_per_s"]:
        return None
    training_s = summary["samples"] / summary["samples_per_s"]
    central = summary["central_processor_share"] / quotas[0] \
        if whole_device and 0 < quotas[0] < 1 else 0
    needs = [(stage_share(stage, quotas[plan["device_number"]], whole_device) +
              (central if plan["device_number"] == 0 else 0)) * training_s / steps
             for stage, plan in zip(summary["stages"], stages)]
    on_air = [0.0] * len(media)
    for index, link in enumerate(summary["links"]):
        above, below = stages[index]["device_number"], stages[index + 1]["device_number"]
        for number, medium in enumerate(media):
            if above in medium["hosts"] and below in medium["hosts"]:
                on_air[number] += (link["bytes_forward"] + link["bytes_backward"]) * 8e-6 / \
                    medium["mbps"] / steps
        for direction, a, b in (("forward", above, below), ("backward", below, above)):
            if mbps[a][b] > 0:
                needs.append(link[f"bytes_{direction}"] * 8e-6 / mbps[a][b] / steps)
    return max(needs + on_air)


def efficiencies(summary, seconds, batch_size, bound, computation):
    """Bounds over what was measured. None of them for a short run: its first steps' page faults would
    count as work that every batch needs, and make it up to 1.4."""
    whole = {"efficiency_steady": None, "efficiency_computation": None,
             "efficiency_end_to_end": None}
    if not bound or summary["steps"] < EFFICIENCY_STEPS:
        return whole
    if seconds:
        whole["efficiency_steady"] = bound / seconds
        whole["efficiency_computation"] = computation / seconds
    whole["efficiency_end_to_end"] = bound * summary["samples_per_s"] / batch_size
    return whole


def prediction(summary, batch_size):
    """Seconds a mini-batch as central predicted them from the profiles; None: it did not."""
    rate = summary.get("predicted_samples_per_s")
    return batch_size / rate if rate else None


def without(given, defaults):
    """The defaults, a flag and its value each, but for those that are given."""
    return [word for at in range(0, len(defaults), 2) if defaults[at] not in given
            for word in defaults[at:at + 2]]


def link_errors(summary, mbps, hosts):
    """Measured against configured bandwidth, a row a link and direction."""
    rows = []
    stages = [stage["device_number"] for stage in summary["plan"]["stages"]]
    for index, link in enumerate(summary.get("links", [])):
        above, below = stages[index], stages[index + 1]
        for direction, a, b in (("forward", above, below), ("backward", below, above)):
            measured = link.get(f"bandwidth_{direction}_bytes_per_s")
            configured = mbps[a][b] * 1e6 / 8
            rows.append({"link": index, "direction": direction,
                         "configured_bytes_per_s": configured or None,
                         "measured_bytes_per_s": measured,
                         "error": measured / configured - 1 if measured and configured else None})
    return rows


def shares_of(case, cpu):
    """Each host's share of processors, 0 for all that it can get; `cpu`: as --cpu has it, or None."""
    try:
        shares = [float(word) for word in cpu.split(",")] if cpu else \
            [float(host["cpu_quota"]) for host in case["hosts"]]
    except ValueError as error:
        raise LabError(f"--cpu {cpu}: shares of processors, such as 0.3,0.2") from error
    if len(shares) != len(case["hosts"]):
        raise LabError(f"--cpu {cpu}: the scenario has {len(case['hosts'])} hosts")
    if not all(0 <= share < math.inf for share in shares):
        raise LabError(f"--cpu {cpu}: shares are 0 (no limit) or above")
    return shares


def run_once(case, arguments, train, mbps, folder):
    """One run of a loaded scenario; `train`: central's flags. The summary with "lab" added."""
    central, worker = binaries(arguments.bin)
    shares = shares_of(case, arguments.cpu)
    case = scenarios.under_quotas(case, shares)
    hosts = case["hosts"]
    total = arguments.warm_up + arguments.batches + len(hosts) + 2  # those drain, uncounted
    matrix = scenarios.bandwidths(case, mbps)
    media = scenarios.media(case, mbps)
    measuring = [] if arguments.as_typed else \
        ["--links", str(min(rate for i, row in enumerate(matrix)
                                for j, rate in enumerate(row) if i != j)),
         "--barrier-every", str(total)]
    job = {"central": central, "worker": worker, "hosts": hosts, "mbps": matrix,
           "media": media, "changes": scenarios.changes(case, mbps),
           "folder": folder, "timeout_s": arguments.timeout_s, "groups": None,
           "shared_control": arguments.shared_control,
           "train": without(train, scenarios.train_flags(case, arguments.dataset,
                                                         arguments.data_dir) +
                            measuring + ["--max-batches", str(total), "--eval-every", "-1"]) + train}
    quotas = cpu_quota.CpuQuotas(shares) if any(share > 0 for share in shares) else None
    try:
        if quotas:
            job["groups"] = [quotas.group(host) for host in range(len(hosts))]
        path = os.path.join(folder, "job.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(job, file, indent=1)
        begun, load = time.monotonic(), os.getloadavg()
        code = sandbox.run_inside([os.path.join(HERE, "one_run.py"), path])
        if code != 0:
            raise LabError(f"the run ended with {code}")
        with open(os.path.join(folder, "summary.json"), encoding="utf-8") as file:
            summary = json.load(file)
        seconds = steady_seconds_per_batch(summary, arguments.warm_up, arguments.batches)
        summary["samples"] = summary["steps"] * case["training"]["batch_size"]
        bound = bound_seconds_per_batch(summary, matrix, shares, media=media)
        computation = bound_seconds_per_batch(summary, matrix, shares, False, media)
        predicted = prediction(summary, case["training"]["batch_size"])
        summary["lab"] = {
            "scenario": case["name"], "mbps": mbps, "cpu": shares, "flags": job["train"],
            "warm_up": arguments.warm_up, "batches": arguments.batches,
            "seconds_per_batch": seconds,
            "predicted_seconds_per_batch": predicted,
            "prediction_error": predicted / seconds - 1 if predicted and seconds else None,
            "bound_seconds_per_batch": bound,
            **efficiencies(summary, seconds, case["training"]["batch_size"], bound, computation),
            "links": link_errors(summary, matrix, hosts),
            "cpu_statistics": [quotas.statistics(host) if quotas else {}
                               for host in range(len(hosts))],
            "load_average": [load, os.getloadavg()],
            "wall_s": time.monotonic() - begun}
        return summary
    finally:
        if quotas:
            quotas.remove()


def main(words):
    sandbox.interruptible()
    arguments = parse_arguments(words)
    why = sandbox.missing_for_lab()
    if why:
        raise LabError(why)
    cpu_quota.remove_stale()
    case = scenarios.load(arguments.scenario)
    # With a folder of the user's nothing else is made that a killed lab would leave behind.
    with contextlib.nullcontext(arguments.logs) if arguments.logs else \
            tempfile.TemporaryDirectory(prefix="runnel-lab-") as folder:
        os.makedirs(folder, exist_ok=True)
        summary = run_once(case, arguments, arguments.train, arguments.mbps, os.path.abspath(folder))
    text = json.dumps(summary, indent=2) + "\n"
    if arguments.summary:
        with open(arguments.summary, "w", encoding="utf-8") as file:
            file.write(text)
    lab = summary["lab"]
    print(f"{case['name']}: {summary['steps']} batches, {summary['samples_per_s']:.1f} samples/s, "
          f"steady {seconds_text(lab['seconds_per_batch'])}, "
          f"wall {lab['wall_s']:.1f} s")
    if lab["prediction_error"] is not None:
        print(f"predicted {lab['predicted_seconds_per_batch']:.4f} s a batch "
              f"({lab['prediction_error']:+.1%})")
    if lab["efficiency_steady"] is not None:
        print(f"efficiency: {lab['efficiency_steady']:.3f} between barriers, "
              f"{lab['efficiency_end_to_end']:.3f} from the first grant to the last barrier; "
              f"{lab['efficiency_computation']:.3f} by computation and links alone")
    else:
        print(f"efficiency: of {EFFICIENCY_STEPS} batches or more (--batches)")
    for row in lab["links"]:
        if row["error"] is not None:
            print(f"link {row['link']} {row['direction']}: measured "
                  f"{row['measured_bytes_per_s'] * 8e-6:.3f} Mbps of "
                  f"{row['configured_bytes_per_s'] * 8e-6:.3f} ({row['error']:+.1%})")
    return 0


def guarded(function, words):
    try:
        return function(words) or 0
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 2
    except Interrupted as interrupt:
        print("lab: stopped; everything it made is gone", file=sys.stderr)
        return 128 + interrupt.number


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
