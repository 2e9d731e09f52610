"""The house rules as a test: one line per finding, `file:line: what; fix: how`, exit code 1 if any.

    python3 tests/tidy/tidy.py [--root FOLDER]
"""

import argparse
import fnmatch
import pathlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True

import house
import scan


class Finding:
    def __init__(self, path, line, what, fix):
        self.path, self.line, self.what, self.fix = path, line, what, fix

    def __str__(self):
        return f"{self.path}:{self.line}: {self.what}; fix: {self.fix}"


def fits(path, patterns):
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def _git_paths(root, *options):
    """Paths that git names, or None where the tree is no git checkout."""
    if not (root / ".git").exists():
        return None
    command = ["git", "-c", f"safe.directory={root}", "-C", str(root), "ls-files", "-z", *options]
    try:
        listed = subprocess.run(command, capture_output=True, check=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return sorted(set(filter(None, listed.stdout.split("\0"))))


def _walk(root):
    found = []
    for entry in sorted(root.iterdir()):
        if entry.name in house.SKIPPED_FOLDERS:
            continue
        if entry.is_dir() and not entry.is_symlink():
            found += [f"{entry.name}/{path}" for path in _walk(entry)]
        else:
            found.append(entry.name)
    return found


def all_files(root):
    """Every file of the project: git's view (without what it ignores) or else the folder's."""
    listed = _git_paths(root, "--cached", "--others", "--exclude-standard")
    if listed is None:
        listed = _walk(root)
    return [path for path in listed if (root / path).is_file()]


def top_level(root):
    """Only what is committed counts where git knows; an editor's droppings are nobody's finding."""
    tracked = _git_paths(root)
    names = sorted({path.split("/")[0] for path in (_walk(root) if tracked is None else tracked)})
    for name in names:
        if name not in house.TOP_LEVEL:
            yield Finding(name, 1, "the top level is fixed",
                          "move it into one of the folders, or add it to TOP_LEVEL in house.py")


def allowed_targets(path):
    return next((allowed for who, allowed in house.ARROWS if fits(path, who)), None)


def include_arrows(root, path, text):
    row = allowed_targets(path)
    for line, quoted, target in scan.includes(text):
        if target.endswith(".pb.h"):
            continue
        ours = target.split("/")[0] in house.HOUSE_FOLDERS and "/" in target
        if ours and row is not None and not fits(target, row):
            yield Finding(path, line, f"forbidden arrow to {target}",
                          f"this folder may include only {', '.join(row)}")
        elif ours and fits(target, house.MAINS):
            yield Finding(path, line, f"includes the main {target}", "move the shared part out")
        elif quoted and not ours and ((root / path).parent / target).exists():
            yield Finding(path, line, f'relative include "{target}"',
                          "write the path from the repository root")


def room_of(path):
    """The room whose face PUBLIC_HEADERS names, or None: proto/base and the tests have none."""
    return next((room for room in house.PUBLIC_HEADERS if path.startswith(room + "/")), None)


def public_headers(root, path, text):
    row = allowed_targets(path)
    if fits(path, house.MAINS) or fits(path, house.TESTS) or row is None:
        return
    for line, _, target in scan.includes(text):
        room = room_of(target)
        if room in (None, room_of(path)) or target.endswith(".pb.h") or not fits(target, row):
            continue
        if target[len(room) + 1:] not in house.PUBLIC_HEADERS[room]:
            yield Finding(path, line, f"{target} is not a public header of {room}",
                          "include one of them, or add it to PUBLIC_HEADERS in tests/tidy/house.py")


def third_party_includes(root, path, text):
    for line, _, target in scan.includes(text):
        if target.split("/")[0] in house.HOUSE_FOLDERS and not target.endswith(".pb.h"):
            continue
        for names, allowed, why, fix in house.THIRD_PARTY:
            if fits(target, names) and not fits(path, allowed):
                yield Finding(path, line, f"includes {target}: {why}", fix)


def silent_folders(root, path, text):
    if not fits(path, house.SILENT) or fits(path, house.MAINS):
        return
    for line, _, target in scan.includes(text):
        if fits(target, house.LOGGING):
            yield Finding(path, line, f"includes {target}: this folder never logs",
                          "return absl::Status")


def header_form(root, path, text):
    if not path.endswith(house.HEADERS):
        return
    code = scan.mask(text)
    if not re.search(r"^#pragma once$", code, re.MULTILINE):
        yield Finding(path, 1, "header without #pragma once", "add it as the first directive")
    for match in re.finditer(r"\busing\s+namespace\b", code):
        yield Finding(path, scan.line_of(code, match.start()), "using namespace in a header",
                      "name what you use")


def file_length(root, path, text):
    lines = len(text.splitlines())
    if lines > house.MAX_FILE_LINES:
        yield Finding(path, lines, f"file of {lines} lines (limit {house.MAX_FILE_LINES})",
                      "split it by what it does")


def function_length(root, path, text):
    if path.endswith(house.C_LIKE):
        functions = scan.cpp_functions
    elif path.endswith(".py"):
        functions = scan.python_functions
    else:
        functions = scan.shell_functions
    try:
        found = functions(text)
    except (ValueError, SyntaxError) as error:
        yield Finding(path, 1, f"cannot be measured ({error})",
                      "balance the code in every branch of #if")
        return
    for first, last, name in found:
        lines = last - first + 1
        if lines > house.MAX_FUNCTION_LINES:
            yield Finding(path, first,
                          f"function {name} of {lines} lines (limit {house.MAX_FUNCTION_LINES})",
                          "split it")


def left_behind(root, path, text):
    words = re.compile(r"\b(" + "|".join(house.LEFT_BEHIND) + r")\b")
    for number, line in enumerate(text.splitlines(), 1):
        match = words.search(line)
        if match:
            yield Finding(path, number, f"{match[1]} left behind",
                          "do it, or say in plain words what does not work")


def white_space(root, path, text):
    for number, line in enumerate(text.split("\n"), 1):
        if line != line.rstrip():
            yield Finding(path, number, "trailing white space", "remove it")
        elif "\t" in line:
            yield Finding(path, number, "tab", "use spaces")


def _is_known_elsewhere(root, word, path):
    for other in all_files(root):
        if other == path or not is_text(other):
            continue
        if word in (root / other).read_text(encoding="utf-8", errors="replace"):
            return True
    return False


def variables_for_nobody(root, path, text):
    for number, line in enumerate(text.splitlines(), 1):
        for name in re.findall(r"(?<![\w$-])(RUNNEL_[A-Z_]+)=", line):
            if not _is_known_elsewhere(root, name, path):
                yield Finding(path, number, f"sets {name}, which no other file reads",
                              "use the name that its reader has, or remove it")


def is_text(path):
    return path.endswith(house.TEXT) or fits(path, house.TEXT_NAMES)


# Which files each rule reads, and the rule.
RULES = (
    (lambda path: path.endswith(house.C_LIKE), include_arrows),
    (lambda path: path.endswith(house.C_LIKE), public_headers),
    (lambda path: path.endswith(house.C_LIKE), third_party_includes),
    (lambda path: path.endswith(house.C_LIKE), silent_folders),
    (lambda path: path.endswith(house.C_LIKE), header_form),
    (lambda path: path.endswith(house.LENGTH_LIMITED) or fits(path, (".ci/*",)), file_length),
    (lambda path: path.endswith(house.C_LIKE + (".py", ".sh")) or fits(path, (".ci/*",)),
     function_length),
    (lambda path: path.endswith(".sh") or fits(path, (".ci/*",)), variables_for_nobody),
    (is_text, left_behind),
    (is_text, white_space),
)


def source_includes(root):
    """{file outside tests: [(line, included path)]}."""
    return {path: [(line, target) for line, _, target in
                   scan.includes((root / path).read_text(encoding="utf-8", errors="replace"))]
            for path in all_files(root)
            if path.endswith(house.C_LIKE) and not fits(path, house.TESTS + house.DATA)}


def dead_files(includes):
    """Headers that only tests, their own .cc and other dead files include: they belong to the tests."""
    includers = {}
    for path, targets in includes.items():
        for _, target in targets:
            includers.setdefault(target, []).append(path)
    stem = lambda path: path.rsplit(".", 1)[0]
    headers = [path for path in includes if path.endswith(house.INCLUDED)]
    dead, before = set(), None
    while before != len(dead):
        before = len(dead)
        stems = {stem(path) for path in dead}
        dead |= {path for path in headers
                 if all(stem(user) in stems | {stem(path)} for user in includers.get(path, ()))}
    for path in sorted(dead):
        yield Finding(path, 1, "no file outside tests includes it",
                      "remove it, or move it to tests/ with its .cc")


def _siblings(path, target):
    """The two folders, side by side, through which one file includes the other; None: none."""
    one, other = path.split("/")[:-1], target.split("/")[:-1]
    same = next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), None)
    return None if not same else ("/".join(one[:same + 1]), "/".join(other[:same + 1]))


def _reaches(arrows, begin, end):
    seen, left = set(), [begin]
    while left:
        folder = left.pop()
        if folder == end:
            return True
        if folder not in seen:
            seen.add(folder)
            left += arrows.get(folder, ())
    return False


def folder_circles(includes):
    """Folders of one parent that include each other, also by way of a third."""
    arrows = {}
    for path, targets in includes.items():
        for line, target in targets:
            pair = _siblings(path, target) if target in includes else None
            if pair is not None:
                arrows.setdefault(pair[0], {}).setdefault(pair[1], (path, line, target))
    for folder, others in sorted(arrows.items()):
        for other, (path, line, target) in sorted(others.items()):
            if {folder, other} not in house.FOLDER_CIRCLES and _reaches(arrows, other, folder):
                yield Finding(path, line, f"{target} closes a circle: {other} includes {folder} too",
                              "move what both need into the lower folder")


def check(root):
    """(number of files read, findings)."""
    includes = source_includes(root)
    findings = [*top_level(root), *dead_files(includes), *folder_circles(includes)]
    count = 0
    for path in all_files(root):
        if fits(path, house.DATA) or not is_text(path):
            continue
        count += 1
        try:
            text = (root / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            findings.append(Finding(path, 1, "is not UTF-8", "save it as UTF-8"))
            continue
        for applies, rule in RULES:
            if applies(path):
                findings += rule(root, path, text)
    return count, findings


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = pathlib.Path(__file__).resolve()
    parser.add_argument("--root", type=pathlib.Path, default=here.parents[2])
    root = parser.parse_args().root.resolve()
    count, findings = check(root)
    for finding in findings:
        print(finding)
    print(f"tidy: {count} files, {len(findings)} findings")
    if count == 0:
        print(f"tidy: no files under {root}: wrong --root?")
    return 1 if findings or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
