#!/usr/bin/env python3
"""Every OpenCL program of ours, with every dot product and tile, through Clang: as drivers of phones and GPUs read it.

    tests/kernels/opencl/compilers_test.py SOURCES.CC

SOURCES.CC is what the build makes of kernels/backends/opencl/cl. PoCL compiles one dot product in one standard; drivers are
mostly Clang of another age, so that what Clang refuses, or warns of, some device refuses. Products have no integer
division, counted in what a GPU of NVIDIA would run: there one takes as long as some twenty dot products.
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
            "product": ("Prelude", "Product")}
# What a driver's own header declares and Clang's does not know yet.
EXTENSIONS = """
int __attribute__((overloadable)) dot_4x8packed_ss_int(uint a, uint b);
int __attribute__((overloadable)) arm_dot(char4 a, char4 b);
"""
Case = collections.namedtuple("Case", "program standard target options")


def texts(sources):
    return dict(re.findall(r'k(\w+)Source = R"cl\((.*?)\)cl"', sources.read_text(), re.S))


def dots():
    """{name: option} of the table of dot products."""
    found = dict(re.findall(r'\{"(\w+)", "(-DDOT_\w+)"', (DEVICE / "device.cc").read_text()))
    assert len(found) >= 5, "the table of dot products looks otherwise"
    return found


def tiles():
    """Options of the table's tiles; the constants kLarge and kSmall are rows of it too."""
    rows = re.findall(r"\{(\d+), (\d+), (\d+), (\d+), (\d+), (\d+)(, true)?\}", (DEVICE / "tile.cc").read_text())
    names = ("TILE_ROWS", "TILE_COLUMNS", "SIDE_X", "SIDE_Y", "DEPTH", "VECTOR")
    found = [tuple(f"-D{name}={value}" for name, value in zip(names, row)) + (("-DIMAGE_WEIGHTS",) if row[6] else ())
             for row in rows]
    assert len(found) >= 18, "the table of tiles looks otherwise"
    return list(dict.fromkeys(found))


def cases():
    for standard in ("CL1.2", "CL3.0"):
        yield Case("integers", standard, SPIR, ())
        for halves in ((), ("-DHALF_ACTIVATIONS",)):
            yield Case("floats", standard, SPIR, halves)
    for kind in ((), ("-DCODES",), ("-DFLOATS",), ("-DFLOATS", "-DHALF_WEIGHTS", "-DHALF_ACTIVATIONS")):
        yield Case("product", "CL1.2", SPIR, tiles()[0] + ("-DDEPTHWISE",) + kind)
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
    tile = next(one for one in tiles() if one[:2] == ("-DTILE_ROWS=4", "-DTILE_COLUMNS=4"))
    whole = text_of(Case("product", "CL1.2", NVIDIA, ()), parts)
    # What the count has to find: the same products, with divisions.
    divided, changed = re.subn(r"(int quotient\(.*?\) \{ return ).*?; \}", r"\1x / d.by; }", whole)
    assert changed == 1, "quotient() looks otherwise"
    for kind, kernels in ((("-DDOT_NVIDIA",), 3), (("-DDOT_NVIDIA", "-DCODES"), 1), (("-DDOT_NVIDIA", "-DDEPTHWISE"), 1),
                          (("-DFLOATS",), 3)):
        for text, has_divisions in ((whole, False), (divided, True)):
            case = Case("product", "CL1.2", NVIDIA, tile + kind)
            found = divisions(clang(text, case, "-O3", "-S").stdout)
            products = {name: count for name, count in found.items() if name.startswith(("product_", "depthwise_"))}
            if len(products) != kernels or any((count > 0) != has_divisions for count in products.values()):
                failed += 1
                print(f"integer divisions of {' '.join(kind)}: {products}")
    print(f"{len(every)} programs, {failed} findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
