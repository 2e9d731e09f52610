#!/usr/bin/env python3
"""Every OpenCL program of ours, with every dot product and tile, through Clang: as drivers of phones and GPUs read it.

    tests/kernels/opencl/compilers_test.py SOURCES.CC

SOURCES.CC is what the build makes of kernels/backends/opencl/cl. PoCL compiles one dot product in one standard; drivers are
mostly Clang of another age, so that what Clang refuses, or warns of, some device refuses. Products have no integer
division, counted in what a GPU of NVIDIA would run: there one takes as long as some twenty dot products. Likewise counted,
and bounded: what a dot product loads, of local and of global memory.
"""

import collections
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
DEVICE = ROOT / "kernels/backends/opencl/device"
JOBS = 2
COMPILER = shutil.which("clang-19") or shutil.which("clang")
SPIR, NVIDIA = "spir64", "nvptx64-nvidia-nvcl"
# As kernels/backends/opencl/device/session.cc joins them.
PROGRAMS = {"integers": ("Prelude", "Elements", "Codes", "Pools", "Step"), "floats": ("Prelude", "Floats", "Grids"),
            "product": ("Prelude", "Product"), "depthwise": ("Prelude", "Product", "Depthwise"),
            "winograd": ("Prelude", "Product", "Winograd")}
# What a driver's own header declares and Clang's does not know yet.
EXTENSIONS = """
int __attribute__((overloadable)) dot_4x8packed_ss_int(uint a, uint b);
int __attribute__((overloadable)) arm_dot(char4 a, char4 b);
"""
Case = collections.namedtuple("Case", "program standard target options")
# What a kernel loads for one dot product: bytes of local memory, bytes and loads of global memory; at most. `fixed`: what the
# plan says at run time, as text to replace, so that one way is left to count. The first is what all products did before.
Loads = collections.namedtuple("Loads", "name program kernel options fixed local_bytes global_bytes global_loads")
PLANAR, CELLS = ("IS_PACKED(name) ((int)(name##_at.y & 1))", "IS_PACKED(name) 0"), ("IS_PACKED(name) ((int)(name##_at.y & 1))", "IS_PACKED(name) 1")
WINDOW, POINT = ("if (plan.is_point)", "if (0)"), ("if (plan.is_point)", "if (1)")
BYTES, FILTERS = ("if (taps * ic % 4 == 0)", "if (0)"), ("if (taps * ic % 4 == 0)", "if (1)")
DOT = ("-DDOT_NVIDIA",)
LOADS = (
    Loads("3x3, planes", "product", "product_forward", DOT, (PLANAR, WINDOW, BYTES), 2, 8 / 32, 8 / 32),
    Loads("3x3, planes, filters of cells", "product", "product_forward", DOT, (PLANAR, WINDOW, FILTERS), 2, 8 / 32, 5 / 32),
    Loads("3x3, packed", "product", "product_forward", DOT, (CELLS, FILTERS), 2, 8 / 32, 2 / 32),
    Loads("1x1, planes", "product", "product_forward", DOT, (PLANAR, POINT, FILTERS), 2, 8 / 32, 5 / 32),
    Loads("fp32, 3x3", "product", "product_forward", ("-DFLOATS",), (WINDOW,), 2, 8 / 32, 2 / 32),
    Loads("winograd", "winograd", "winograd_forward", DOT + ("-DWINOGRAD",), (), 2, 8 / 16, 2 / 16))


def texts(sources):
    return dict(re.findall(r'k(\w+)Source = R"cl\((.*?)\)cl"', sources.read_text(), re.S))


def dots():
    """{name: option} of the table of dot products."""
    found = dict(re.findall(r'\{"(\w+)", "(-DDOT_\w+)"', (DEVICE / "device.cc").read_text()))
    assert len(found) >= 5, "the table of dot products looks otherwise"
    return found


def options_of(text):
    rows = re.findall(r"\{(\d+), (\d+), (\d+), (\d+), (\d+), (\d+)(, true)?\}", text)
    names = ("TILE_ROWS", "TILE_COLUMNS", "SIDE_X", "SIDE_Y", "DEPTH", "VECTOR")
    return list(dict.fromkeys(tuple(f"-D{name}={value}" for name, value in zip(names, row)) +
                              (("-DIMAGE_WEIGHTS",) if row[6] else ()) for row in rows))


def tiles():
    """Options of the table's tiles; the constants kLarge and kSmall are rows of it too."""
    text = (DEVICE / "tile.cc").read_text()
    found = [tile for tile in options_of(text) if tile not in winograd_tiles()]
    assert len(found) >= 18, "the table of tiles looks otherwise"
    return found


def winograd_tiles():
    """Likewise, of WinogradTileFor."""
    table = re.search(r"kWinogradTiles\[\] = \{(.*?)\};", (DEVICE / "tile.cc").read_text(), re.S).group(1)
    return options_of(table)


def cases():
    for standard in ("CL1.2", "CL3.0"):
        yield Case("integers", standard, SPIR, ())
        for halves in ((), ("-DHALF_ACTIVATIONS",)):
            yield Case("floats", standard, SPIR, halves)
    for kind in ((), ("-DCODES",), ("-DFLOATS",), ("-DFLOATS", "-DHALF_WEIGHTS", "-DHALF_ACTIVATIONS")):
        yield Case("depthwise", "CL1.2", SPIR, tiles()[0] + ("-DDEPTHWISE",) + kind)
    for tile in winograd_tiles():
        for name, option in dots().items():
            for codes in ((), ("-DCODES",)):
                target = NVIDIA if name == "nvidia" else SPIR
                yield Case("winograd", "CL1.2", target, tile + ("-DWINOGRAD", option) + codes)
    for at, tile in enumerate(tiles()):
        for name, option in dots().items():
            # NVIDIA's assembler is in core OpenCL C 1.2; the others' languages are what a device lists.
            standards = ("CL1.2",) if name == "nvidia" else ("CL1.2", "CL3.0")[at % 2:][:1]
            for standard in standards:
                for codes in ((), ("-DCODES",)) if at < 2 else ((),):
                    yield Case("product", standard, NVIDIA if name == "nvidia" else SPIR, tile + (option,) + codes)
        for halves in ((), ("-DHALF_WEIGHTS", "-DHALF_ACTIVATIONS")):
            yield Case("product", "CL1.2", SPIR, tile + ("-DFLOATS",) + halves)


def clang(text, case, *more):
    command = [COMPILER, "-x", "cl", "-cl-std=" + case.standard, "-target", case.target, "-Xclang", "-finclude-default-header",
               "-Xclang", "-cl-ext=+all", "-Wno-ignored-pragmas", "-Dasm=__asm__", *case.options, *more, "-o", "-", "-"]
    return subprocess.run(command, input=text, text=True, capture_output=True)


def text_of(case, parts):
    return EXTENSIONS + "".join(parts[name] for name in PROGRAMS[case.program])


def divisions(ptx):
    """{kernel: integer divisions and remainders of it and of all that it calls}: Clang's driver leaves functions whole."""
    whole = re.findall(r"\.(?:entry|func)\s*(?:\([^)]*\))?\s+(\w+)\s*\([^)]*\)\s*\{\n(.*?)\n\}", ptx, re.S)
    bodies = dict(whole)
    own = {name: len(re.findall(r"\b(?:div|rem)\.[su](?:16|32|64)\b", body)) for name, body in bodies.items()}
    calls = {name: set(re.findall(r"call\S*\s+(?:\([^)]*\),\s+)?(\w+)", body)) & set(bodies) for name, body in bodies.items()}
    found = {}
    for kernel in re.findall(r"\.entry (\w+)\(", ptx):
        reached, ahead = set(), [kernel]
        while ahead:
            name = ahead.pop()
            if name not in reached:
                reached.add(name)
                ahead += calls[name]
        found[kernel] = sum(own[name] for name in reached)
    return found


def count_divisions(parts):
    failed = 0
    for program, kind, kernels in (("product", DOT, 3), ("product", DOT + ("-DCODES",), 1), ("product", ("-DFLOATS",), 3),
                                   ("depthwise", DOT + ("-DDEPTHWISE",), 3),
                                   ("depthwise", DOT + ("-DDEPTHWISE", "-DCODES"), 1),
                                   ("depthwise", ("-DFLOATS", "-DDEPTHWISE"), 3),
                                   ("winograd", DOT + ("-DWINOGRAD",), 3), ("winograd", DOT + ("-DWINOGRAD", "-DCODES"), 3)):
        tile = next(one for one in (winograd_tiles() if program == "winograd" else tiles())
                    if one[:2] == ("-DTILE_ROWS=4", "-DTILE_COLUMNS=4"))
        case = Case(program, "CL1.2", NVIDIA, tile + kind)
        whole = text_of(case, parts)
        # What the count has to find: the same products, with divisions.
        divided, changed = re.subn(r"(int quotient\(.*?\) \{ return ).*?; \}", r"\1x / d.by; }", whole)
        assert changed == 1, "quotient() looks otherwise"
        for text, has_divisions in ((whole, False), (divided, True)):
            found = divisions(clang(text, case, "-O3", "-S").stdout)
            products = {name: count for name, count in found.items() if name.startswith(("product_", "depthwise_", "winograd_"))}
            if len(products) != kernels or any((count > 0) != has_divisions for count in products.values()):
                failed += 1
                print(f"integer divisions of {program} {' '.join(kind)}: {products}")
    return failed


def blocks(body):
    """{label: (lines, labels that may follow)} of a function's lines."""
    found, label, lines = {}, "", []
    for line in body + ["$L__end:"]:
        if not (start := re.match(r"(\$L\w+):", line)):
            lines.append(line)
            continue
        ends = any(re.match(r"\s*(bra\.uni|ret)\b", one) for one in lines)
        targets = re.findall(r"\bbra\S*\s+(\$L\w+)", "\n".join(lines))
        found[label] = (lines, targets + ([] if ends else [start.group(1)]))
        label, lines = start.group(1), []
    found[label] = (lines, [])
    return found


def reached(edges, begin):
    seen, ahead = set(), [begin]
    while ahead:
        for label in edges.get(ahead.pop(), ()):
            if label not in seen:
                seen.add(label)
                ahead.append(label)
    return seen


def loads_per_dot(ptx, kernel, rows_of_group):
    """(bytes of local memory, bytes of global memory, loads of global memory) for one dot product. The loop over depth loads
    one cell of each operand in an iteration of the loops in it: as many cells as there are rows or columns, for rows x columns
    dot products."""
    dot = re.compile(r"dp4a\.|\bmul(?:\.rn)?\.f32")
    all_blocks = blocks(re.search(rf"\.entry {kernel}\(.*?\n\}}", ptx, re.S).group(0).split("\n"))
    onward = {label: following for label, (_, following) in all_blocks.items()}
    back = collections.defaultdict(list)
    for label, following in onward.items():
        for other in following:
            back[other].append(label)
    has_dots = next(label for label, (lines, _) in all_blocks.items() if any(dot.search(line) for line in lines))
    loop = "\n".join(line for label in reached(onward, has_dots) & reached(back, has_dots) for line in all_blocks[label][0])
    sizes = {space: [int(bits) // 8 for bits in re.findall(rf"ld\.{space}\.[a-z](\d+)", loop)] for space in ("shared", "global")}
    return (sum(sizes["shared"]) / len(dot.findall(loop)), sum(sizes["global"]) / rows_of_group,
            len(sizes["global"]) / rows_of_group)


def count_loads(parts):
    failed = 0
    print("loads of a dot product: local bytes, global bytes, global loads")
    for row in LOADS:
        # Cells that are read one by one, which Clang does not leave to functions of OpenCL's.
        tile = next(one for one in (winograd_tiles() if row.program == "winograd" else tiles())
                    if one[:2] == ("-DTILE_ROWS=4", "-DTILE_COLUMNS=4"))
        tile = tuple("-DVECTOR=1" if option.startswith("-DVECTOR") else option for option in tile)
        side = int(tile[2].split("=")[1]) * 4
        case = Case(row.program, "CL1.2", NVIDIA, tile + row.options)
        text = text_of(case, parts)
        for old, new in row.fixed:
            assert text.count(old) == 1, f"{old} is not there once"
            text = text.replace(old, new)
        done = clang(text, case, "-O3", "-S", "-mllvm", "-inline-threshold=1000000")
        found = loads_per_dot(done.stdout, row.kernel, side)
        print(f"  {row.name}: {found[0]:g}, {found[1]:g}, {found[2]:g}")
        if any(is_there > most or is_there <= 0 for is_there, most in zip(found, row[5:])):
            failed += 1
            print(f"{row.name}: over {row[5:]}")
    return failed


def main():
    if COMPILER is None:
        print("skipped: no clang-19 and no clang")
        return 77
    parts = texts(pathlib.Path(sys.argv[1]))
    every = list(cases())
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        done = list(pool.map(lambda case: clang(text_of(case, parts), case, "-fsyntax-only"), every))
    failed = 0
    for case, result in zip(every, done):
        if result.returncode != 0 or result.stderr:
            failed += 1
            print(case.program, case.standard, case.target, " ".join(case.options))
            print(result.stderr[:2000])
    failed += count_divisions(parts) + count_loads(parts)
    print(f"{len(every)} programs, {failed} findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
