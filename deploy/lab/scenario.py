"""Scenario files as the lab reads them; `runnel-lab simulate --help` says what stands in them."""

import json
import math
import os

from sandbox import LabError

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "scenarios")


def path_of(name):
    """The file of a scenario that is given as a path or by its name."""
    if os.path.exists(name):
        return name
    path = os.path.join(FOLDER, name + ".json")
    if os.path.exists(path):
        return path
    known = sorted(entry[:-5] for entry in os.listdir(FOLDER) if entry.endswith(".json")) \
        if os.path.isdir(FOLDER) else []
    raise LabError(f"no scenario {name}: give a file or one of {', '.join(known) or 'none'}")


def load(name):
    path = path_of(name)
    try:
        with open(path, encoding="utf-8") as file:
            scenario = json.load(file)
        for key in ("name", "training", "hosts", "links"):
            if key not in scenario:
                raise ValueError(f"{key} is missing")
        if len(scenario["hosts"]) < 2:
            raise ValueError("needs two hosts at least")
        delays = {float(way["delay_ms"]) for way in _ways(scenario)}
        for host in scenario["hosts"]:
            if not isinstance(host.get("backend", ""), str):
                raise ValueError(f"host {host['name']}: backend must be a name, such as cpu:avx2")
        for change in scenario.get("changes", []):
            if float(change["seconds"]) < 0:
                raise ValueError("changes: seconds must be at least 0")
        if len(delays) > 1:
            raise ValueError("links of different delay_ms: the lab knows one for all")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LabError(f"scenario {path}: {error}") from error
    scenario["path"] = path
    return scenario


def _ways(scenario):
    return scenario["links"] + scenario.get("media", [])


def under_quotas(scenario, shares):
    """With no more threads than a host's share of processors has processors, 0 being no limit: threads
    that split less than a processor between them are all held back when one has used it up."""
    hosts = [dict(host, threads=min(host["threads"], math.ceil(share)) if share > 0
                  else host["threads"]) for host, share in zip(scenario["hosts"], shares)]
    return dict(scenario, hosts=hosts)


def train_flags(scenario, dataset=None, data_dir=None):
    """What central's train command is told."""
    training = scenario["training"]
    flags = {"model": training["model"], "dataset": dataset or training["dataset"],
             "batch-size": training["batch_size"], "micro-batches": training["micro_batches"],
             "schedule": training["schedule"], "worker-threads": scenario["hosts"][0]["threads"]}
    delay = max((float(way["delay_ms"]) for way in _ways(scenario)), default=0)
    if delay > 0:
        flags["link-delay-ms"] = delay
    if data_dir:
        flags["data-dir"] = data_dir
    return [word for key, value in flags.items() for word in (f"--{key}", str(value))]


def _speed(scenario, i, j):
    """SpeedBetween of partition/scenario.h: later entries win."""
    a, b = scenario["hosts"][i]["name"], scenario["hosts"][j]["name"]
    mbps = 0.0
    for link in scenario["links"]:
        # Between "*" and "*" the order of the hosts tells what is down.
        if link["from"] in ("*", a) and link["to"] in ("*", b) and \
                (link["from"] != link["to"] or i < j):
            mbps = float(link["down_mbps"])
        elif link["from"] in ("*", b) and link["to"] in ("*", a):
            mbps = float(link["up_mbps"])
    return mbps


def changes(scenario, mbps=None):
    """What becomes of the bandwidths while it trains: (seconds after the first plan, bandwidths), in
    order of time. A change is an entry of "links" that holds from its time on. `mbps`: of all links
    at first; changed ones stay in proportion to what the scenario says."""
    later = []
    links = list(scenario["links"])
    before = bandwidths(scenario)
    for change in sorted(scenario.get("changes", []), key=lambda one: one["seconds"]):
        links.append(change)
        after = bandwidths(dict(scenario, links=links))
        if mbps is not None:
            after = [[mbps * new / old if old > 0 else new for new, old in zip(*rows)]
                     for rows in zip(after, before)]
        later.append((float(change["seconds"]), after))
    return later


def media(scenario, mbps=None):
    """[{"hosts": numbers, "mbps": of all that they send together}] of each medium; `mbps`: of every
    medium's air. What is on the air twice gets half of it."""
    names = [host["name"] for host in scenario["hosts"]]
    return [{"hosts": [i for i, name in enumerate(names)
                       if name in medium["hosts"] or "*" in medium["hosts"]],
             "mbps": (float(medium["mbps"]) if mbps is None else mbps) /
                     (2 if medium["access_point"] else 1)}
            for medium in scenario.get("media", [])]


def bandwidths(scenario, mbps=None):
    """Megabits a second of what host i sends to host j while nobody else sends; `mbps`: the same
    everywhere."""
    count = len(scenario["hosts"])
    rates = [[0.0 if i == j else _speed(scenario, i, j) if mbps is None else mbps
              for j in range(count)] for i in range(count)]
    for medium in media(scenario, mbps):
        for i in medium["hosts"]:
            for j in medium["hosts"]:
                if i != j:
                    rates[i][j] = medium["mbps"]
    return rates
