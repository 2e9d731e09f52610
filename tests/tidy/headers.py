"""Every header compiles alone: one line per header that does not, exit code 1 if any.

Alone is what the build has before each source: the few headers that it compiles once for all of
them. It takes minutes, so .ci/full runs it and .ci/run does not. What passed is remembered by
content (of the header and of all of ours that it pulls in), so a second run compiles only what
changed.

    python3 tests/tidy/headers.py --build build/dev [--root FOLDER] [--compiler g++]
"""

import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import re
import shlex
import subprocess
import sys

sys.dont_write_bytecode = True

import house
import scan
import tidy

CACHE_NAME = "tidy_headers.passed"
# The target whose sources have the headers that are compiled once, and nothing else.
LIBRARY_HEADERS = "library_headers.dir"
JOBS = 2


class Flags:
    """What a source of a library is compiled with, and the include folders of the whole build."""

    def __init__(self, build):
        self.folders, self.options = [], ["-std=c++20"]
        commands = build / "compile_commands.json"
        for entry in json.loads(commands.read_text()) if commands.exists() else []:
            words = shlex.split(entry.get("command", "")) or entry["arguments"]
            self._add_folders(words)
            if LIBRARY_HEADERS in entry["command"].split(" -o ")[-1]:
                self.options = words[1:words.index("-o")]

    def _add_folders(self, words):
        for at, word in enumerate(words):
            found = None
            if word in ("-I", "-isystem"):
                found = (word, words[at + 1])
            elif word.startswith("-I"):
                found = ("-I", word[2:])
            if found and found not in self.folders:
                self.folders.append(found)

    def words(self, root):
        found = [*self.options, "-w", "-I", str(root)]
        for option, folder in self.folders:
            found += [option, folder]
        return found


def content_key(root, flags, header, command):
    """A hash of the command and of every file of ours (or generated) that the header reaches."""
    folders = [root] + [pathlib.Path(f) for option, f in flags.folders if option == "-I"]
    digest, seen, waiting = hashlib.sha256(" ".join(command).encode()), set(), [header]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        path = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if path is None:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        digest.update(f"\n{name}\n{text}".encode())
        waiting += sorted(target for _, _, target in scan.includes(text))
    return digest.hexdigest()


def first_error(output):
    lines = [line for line in output.splitlines() if "error:" in line]
    return lines[0] if lines else (output.strip().splitlines() or ["no message"])[-1]


def compile_alone(root, header, command):
    """None, or the compiler's first error."""
    done = subprocess.run(command, input=f'#include "{header}"\n', cwd=root, text=True,
                          capture_output=True)
    return None if done.returncode == 0 else first_error(done.stderr)


def check(root, build, compiler):
    """(counts as text, findings)."""
    flags = Flags(build)
    headers = [path for path in tidy.all_files(root) if path.endswith(house.HEADERS)
               and not tidy.fits(path, house.FOREIGN_HEADERS + house.DATA)]
    command = [compiler, *flags.words(root), "-fsyntax-only", "-x", "c++", "-"]
    cache = build / CACHE_NAME
    passed = set(cache.read_text().split()) if cache.exists() else set()
    keys = {header: content_key(root, flags, header, command) for header in headers}
    waiting = [header for header in keys if keys[header] not in passed]
    findings = []
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        errors = pool.map(lambda header: compile_alone(root, header, command), waiting)
        for header, error in zip(waiting, errors):
            if error is not None:
                keys.pop(header)
                ungenerated = re.search(r"\.pb\.h: No such file", error)
                fix = "build first, it is generated" if ungenerated else "include what it uses"
                findings.append(tidy.Finding(header, 1, f"does not compile alone ({error})", fix))
    build.mkdir(parents=True, exist_ok=True)
    cache.write_text("\n".join(sorted(keys.values())) + "\n")
    counts = f"{len(headers)} headers, {len(waiting)} compiled, {len(findings)} findings"
    return counts, findings


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = pathlib.Path(__file__).resolve()
    parser.add_argument("--root", type=pathlib.Path, default=here.parents[2])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--compiler", default="g++")
    arguments = parser.parse_args()
    counts, findings = check(arguments.root.resolve(), arguments.build.resolve(),
                             arguments.compiler)
    for finding in findings:
        print(finding)
    print(f"tidy_headers: {counts}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
