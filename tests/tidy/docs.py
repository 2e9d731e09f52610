"""The pages for people as a test: they say nothing that the repository or the programs deny.

    python3 tests/tidy/docs.py [--root FOLDER] [--bin FOLDER] [--write]

Links and named files exist; sources name no page that is not here; README.md is short and has every builtin name;
proto/README.md has every frame, message and version, deploy/OPERATORS.md the code's times; FIGURES.md and the lab books are
what the stored results give; the table of public headers in ARCHITECTURE.md is that of house.py, those of figures and metrics are the sources' (--write renews them); YAML files can be
read, and what a kustomization names is there. With --bin every command and flag that the pages mention is one of the programs'.
One line a finding, exit code 1 if any.
"""

import argparse
import math
import pathlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True

try:
    import yaml
except ImportError:  # Debian's python3-yaml
    yaml = None

import figures
import house
import tidy

MAX_README_LINES = 120
CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# A path of ours that a page names in code.
NAMED_FILE = re.compile(r"(?<![\w/.~-])((?:%s)/[\w./-]*\w\.(?:sh|py|h|cc|inc|json|proto|md|profile))\b"
                        % "|".join(house.HOUSE_FOLDERS))
# A page that a source file names: it must be in the repository, or its reader has nothing to read.
NAMED_PAGE = re.compile(r"[\w./-]*\w\.md\b")
PROGRAM = re.compile(r"(?:^|[\s/`])(runnel-(?:central|worker|predictor|lab))\s+([^|&;#\n`]*)")
# A row of a table of builtin things: its name is the first text. Every name stands in README.md;
# of a model's, the name without what README.md explains once.
TABLES_OF_NAMES = ("partition/zoo/models.inc", "partition/zoo/rewrites/rewrites.cc",
                   "partition/policies/builtin_policies.cc",
                   "partition/schedules/builtin_schedules.cc", "central/data/builtin_datasets.cc",
                   "compress/builtin_codecs.cc", "kernels/backends/builtin_backends.cc",
                   "proto/base/training/recipe_families.inc", "proto/base/training/optimizers.inc")
ROW = re.compile(r'^\s+\{\{?(?:\.family = )?"([a-z0-9_]+)"|\.(?:name = |choice = \{)"([a-z0-9_]+)"', re.MULTILINE)
EXPLAINED = re.compile(r"(_bn|_nobn)?(_imagenet)?$")

WIRE_PAGE = "proto/README.md"
# Numbers that the page of the wire has, by source.
WIRE_VERSIONS = {"proto/transport/control/control.h": "kProtocolVersion", "proto/transport/link/frame.h": "kFrameVersion",
                 "central/records/checkpoint.h": "kCheckpointVersion", "central/records/journal.h": "kJournalVersion"}

# Of the page for operators, the row that says how long something waits: where that is said in the code, in ns or ms.
TIMES_PAGE = "deploy/OPERATORS.md"
LOSSES = "central/run/machines/losses/"
TIMES = {"anything to move in the run": (LOSSES + "standstill.h", "kLimitNs"),
         "a worker of its own host that ends again": (LOSSES + "start_attempts.h", "kPatienceMs"),
         "more workers, once": ("central/run/machines/gathering.h", "kGraceNs"),
         "room for check-points": ("central/run/checkpoints/checkpoint_failures.h", "kPatienceNs"),
         "a link that does not come back": ("worker/host/stage_links.cc", "kNeighbourPatienceNs"),
         "a feed that does not come back": ("proto/transport/link/redial_policy.h", "lost_ns"),
         "central, once its connection broke": ("proto/transport/grpc/control/grpc_control.h", "resume_ms"),
         "a hello, a handshake": ("proto/transport/link/link_shell.h", "kHelloPatienceNs"),
         "a ping of gRPC": ("proto/transport/grpc/control/grpc_control.h", "keepalive_ms"),
         "the other end to close in order": ("proto/transport/grpc/control/grpc_control.h", "close_timeout_ms"),
         "| `status`, `drain`": ("central/cli/command_main.cc", "kTimeoutMs"),
         "| stuck |": (LOSSES + "detector.h", "kStuckNs"), "| stopped |": (LOSSES + "detector.h", "kStoppedNs")}


def pages(root):
    return [path for path in tidy.all_files(root) if path.endswith(".md")]


def anchors(text):
    """The anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", CODE_BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 _-]", "", head.lower()).replace(" ", "-") for head in heads}


def link_findings(root, path, text):
    for target in LINK.findall(CODE_BLOCK.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (root / path).parent / name if name else root / path
        if not file.exists():
            yield f"{path}: link to {target}: no such file"
        elif anchor and anchor not in anchors(file.read_text(encoding="utf-8")):
            yield f"{path}: link to {target}: no such heading"


def file_findings(root, path, text):
    for name in sorted(set(NAMED_FILE.findall(text))):
        # NAME stands for a file that the reader adds.
        if "NAME" not in name and not (root / name).exists():
            yield f"{path}: names {name}, which is not there"


def page_findings(root, path, text):
    for name in sorted(set(NAMED_PAGE.findall(text))):
        if not (root / name).exists() and not (root / path).parent.joinpath(name).exists():
            yield f"{path}: names {name}, which is not in the repository; say the fact itself"


def length_findings(root):
    lines = len((root / "README.md").read_text(encoding="utf-8").splitlines())
    if lines > MAX_README_LINES:
        yield f"README.md: {lines} lines (limit {MAX_README_LINES}); move what is not for everybody"


def figure_findings(root):
    script = root / "deploy/figures/make_figures.py"
    result = subprocess.run([sys.executable, "-B", str(script), "--check", "--root", str(root)],
                            capture_output=True, text=True)
    if result.returncode != 0:
        yield (result.stdout + result.stderr).strip()


def watch_findings(root):
    """What alerts and dashboard read is a metric of the table."""
    known = {line.split("`")[1] for line in figures.metric_table(root)[2:]}
    for path in sorted(path for path in (root / "deploy/metrics").iterdir() if path.is_file()):
        read = set(re.findall(r"\b(?:runnel|hw|process)_\w+", path.read_text(encoding="utf-8")))
        for name in sorted(name for name in read if name not in known and re.sub(r"_(bucket|sum|count)$", "", name) not in known):
            yield f"{path.relative_to(root)}: {name} is no metric of {figures.METRICS} or {figures.FIELDS}"


def wire_findings(root):
    """The page of the wire has every kind of frame, every control message and the versions."""
    page = (root / WIRE_PAGE).read_text(encoding="utf-8")

    def source(path):
        return (root / path).read_text(encoding="utf-8")

    frames = "proto/transport/link/frame.h"
    names = [(frames, name) for name in re.findall(r"^  (k[A-Z]\w+) =", source(frames), re.MULTILINE)]
    control = "proto/control.proto"
    for message in re.findall(r"oneof message \{(.*?)\}", source(control), re.DOTALL):
        names += [(control, name) for name in re.findall(r"(\w+) = \d+;", message)]
    members = "proto/members.proto"
    names += [(members, name) for name in re.findall(r"^  rpc (\w+)", source(members), re.MULTILINE)]
    for path, name in names:
        if f"`{name}`" not in page:
            yield f"{WIRE_PAGE}: lacks {name} of {path}"
    for path, name in WIRE_VERSIONS.items():
        number = re.search(rf"{name} = (\d+);", source(path))[1]
        if not re.search(rf"^\|[^|]*\| {number}\b[^|]*\| `{re.escape(path.removeprefix('proto/'))}` \|", page, re.MULTILINE):
            yield f"{WIRE_PAGE}: {name} of {path} is {number}"


def time_findings(root):
    rows = [line for line in (root / TIMES_PAGE).read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    for what, (path, name) in TIMES.items():
        said = re.search(rf"\b{name} = ([^;]*);", (root / path).read_text(encoding="utf-8"))[1]
        amount = math.prod(int(part) for part in re.findall(r"(?<!int)\b\d+", said.replace("'", "").replace("int64_t", "")))
        seconds = f"{amount / (1e3 if name.lower().endswith('ms') else 1e9):g} s"
        row = [line for line in rows if what in line]
        if len(row) != 1 or not re.search(rf"\b{seconds}\b", row[0]):
            yield f"{TIMES_PAGE}: '{what}': {name} of {path} is {seconds}"


def manifest_findings(root):
    """YAML files can be read; those of Kubernetes are objects, and what a kustomization names is there."""
    if yaml is None:
        return
    for name in tidy.all_files(root):
        if not name.endswith((".yaml", ".yml")):
            continue
        path = root / name
        try:
            objects = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
        except yaml.YAMLError as error:
            yield f"{name}: is no YAML: {' '.join(str(error).split())}"
            continue
        if not name.startswith("deploy/kubernetes/"):
            continue
        for one in objects:
            if not isinstance(one, dict) or not one.get("kind") or not one.get("apiVersion"):
                yield f"{name}: an object without kind or apiVersion"
                continue
            files = [*one.get("resources", []), *(file for made in one.get("configMapGenerator", []) for file in made["files"])]
            for file in files if one["kind"] == "Kustomization" else []:
                if not (path.parent / file).exists():
                    yield f"{name}: names {file}, which is not there"


def codes(patterns):
    return ", ".join(f"`{pattern}`" for pattern in patterns)


def header_table():
    lines = ["| room | headers that other rooms may include |", "|---|---|"]
    for room, headers in house.PUBLIC_HEADERS.items():
        lines.append(f"| `{room}` | {codes(headers) or 'none'} |")
    return lines


# Tables that are given elsewhere, by page.
TABLES = {"ARCHITECTURE.md": {"public headers": lambda root: header_table()},
          "central/README.md": {"figures": figures.key_table},
          "deploy/metrics/README.md": {"metrics": figures.metric_table}}


def with_tables(root, page, text):
    """The page with its given tables; ValueError without a place for one."""
    for name, table in TABLES[page].items():
        begin, end = f"<!-- {name}: tests/tidy/docs.py --write -->", f"<!-- end of {name} -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise ValueError(f"{page}: needs one line '{begin}' and one line '{end}'")
        before, after = text.split(begin)[0], text.split(end)[1]
        text = "\n".join([before + begin, *table(root), end + after])
    return text


def table_findings(root, write):
    for page in TABLES:
        path = root / page
        text = path.read_text(encoding="utf-8")
        try:
            wanted = with_tables(root, page, text)
        except ValueError as error:
            yield str(error)
            continue
        if write:
            path.write_text(wanted, encoding="utf-8")
        elif wanted != text:
            yield f"{page}: a given table is out of date; run python3 tests/tidy/docs.py --write"


class Programs:
    """What --help of the built programs says, asked once for each command."""

    def __init__(self, folder):
        self._folder, self._helps = folder, {}

    def help(self, *words):
        if words not in self._helps:
            self._helps[words] = self._ask(words, "--help")
            if "--help-all" in (self._helps[words] or ""):
                self._helps[words] = self._ask(words, "--help-all")
        return self._helps[words]

    def _ask(self, words, flag):
        command = [str(self._folder / words[0]), *words[1:], flag]
        result = subprocess.run(command, capture_output=True, text=True)
        return result.stdout if result.returncode == 0 else None

    def built(self, program):
        return (self._folder / program).exists()


def command_findings(programs, path, text):
    text = text.replace("\\\n", " ")
    for program, rest in PROGRAM.findall(text):
        # A build without LibTorch has no runnel-predictor.
        if program == "runnel-predictor" and not programs.built(program):
            continue
        words = rest.split()
        if program != "runnel-worker" or words[:1] in (["program"], ["tune"]):
            if not words or not re.fullmatch(r"[a-z][a-z-]+", words[0]):
                continue
            words, command = words[1:], (program, words[0])
        else:
            command = (program,)
        said = programs.help(*command)
        if said is None:
            if any(word.startswith("--") for word in words) or path == "README.md":
                yield f"{path}: `{' '.join(command)}` is no command"
            continue
        known = f"{said} {programs.help(program) or str()}"
        for flag in sorted({word.split("=")[0] for word in words if word.startswith("--")}):
            if not re.search(re.escape(flag) + r"(?![\w-])", known):
                yield f"{path}: `{' '.join(command)}` has no flag {flag}"


def name_findings(root):
    readme = (root / "README.md").read_text(encoding="utf-8")
    # A rate is a file.
    rates = sorted(path for path in (root / "proto/base/training/rates").glob("*.cc") if path.name != "rate.cc")
    for path in (*TABLES_OF_NAMES, *(str(path.relative_to(root)) for path in rates)):
        names = [a or b for a, b in ROW.findall((root / path).read_text(encoding="utf-8"))]
        if not names:
            yield f"{path}: no row like {{\"name\", ...}}: tests/tidy/docs.py cannot read it"
        for name in names:
            if not re.search(f"`{EXPLAINED.sub('', name)}[`:]", readme):
                yield f"README.md: its tables lack {name} of {path}"


def program_findings(root, folder):
    programs = Programs(folder)
    for program in ("runnel-central", "runnel-lab", "runnel-worker"):
        if not programs.built(program):
            yield f"{folder / program}: not built"
            return
    for path in pages(root):
        yield from command_findings(programs, path, (root / path).read_text(encoding="utf-8"))


def findings(root, folder, write):
    yield from table_findings(root, write)
    for path in pages(root):
        text = (root / path).read_text(encoding="utf-8")
        yield from link_findings(root, path, text)
        yield from file_findings(root, path, text)
    for path in tidy.all_files(root):
        if path.endswith(house.C_LIKE + (".proto",)):
            yield from page_findings(root, path, (root / path).read_text(encoding="utf-8"))
    yield from length_findings(root)
    yield from name_findings(root)
    yield from figure_findings(root)
    yield from watch_findings(root)
    yield from wire_findings(root)
    yield from time_findings(root)
    yield from manifest_findings(root)
    if folder is not None:
        yield from program_findings(root, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--bin", type=pathlib.Path)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    found = list(findings(arguments.root.resolve(), arguments.bin, arguments.write))
    for finding in found:
        print(finding)
    print(f"docs: {len(pages(arguments.root.resolve()))} pages, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
