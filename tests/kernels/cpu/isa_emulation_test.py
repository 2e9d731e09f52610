#!/usr/bin/env python3
"""Runs tests of kernels and codecs on emulated x86-64 processors, each without the next better instruction set.

A row that holds an instruction which the processor lacks ends with SIGILL there; on the host it would pass. Rows for which
QEMU emulates no processor (AVX-512, AVX-VNNI) are read by isa_symbols_test.py instead.

Usage: isa_emulation_test.py BINARY...
Ends with 77 (skipped) where qemu-x86_64 is not installed.
"""

import os
import re
import shutil
import subprocess
import sys

# Processor, and the rows that it lacks. Westmere has no AVX at all.
PROCESSORS = (
    ("Westmere", {"avx2", "avx_vnni", "avx512", "avx512_vnni"}),
    ("Haswell", {"avx_vnni", "avx512", "avx512_vnni"}),
)
# QEMU 7.2, the first with AVX2, computes the AVX2 row of MBQ wrongly; real processors pass the same test.
LEFT_OUT = {("Haswell", "compress_test")}
# Emulated code is some twenty times slower: the largest shapes stay out, tables of all codes, and what threads and caches decide.
FILTER = ("*:-*hexagon*:*opencl*:*WidePassesInt32*:*WideWeightGradient*:*RandomShapes*:*Large*:*AtScale*:*EveryCode*:*WhateverTheCache*"
          ":*_threads2:*_threads3:*cpu_*_2")
ENVIRONMENT = {**os.environ, "RUNNEL_CASES_PERCENT": "25"}
ROW = re.compile(r"(?<![a-z0-9])(portable|avx2|avx_vnni|avx512_vnni|avx512)(?![a-z0-9_])")


def rows_of(*command):
    listing = subprocess.run([*command, "--gtest_list_tests"], check=True, capture_output=True, text=True).stdout
    return set(ROW.findall(re.sub(r"_(threads)?\d+\b|#.*", "", listing)))


def check(emulator, processor, lacks, binary):
    """What is wrong with one binary on one processor; None if nothing is."""
    rows, native = rows_of(emulator, "-cpu", processor, binary), rows_of(binary)
    if rows & lacks or not native - lacks <= rows:
        return f"has tests of {sorted(rows)}, the host of {sorted(native)}"
    run = subprocess.run([emulator, "-cpu", processor, binary, f"--gtest_filter={FILTER}", "--gtest_brief=1"],
                         capture_output=True, text=True, env=ENVIRONMENT)
    if run.returncode == 0:
        return None
    return f"ended with {run.returncode}\n{run.stdout[-4000:]}{run.stderr[-4000:]}"


def main(*binaries):
    emulator = shutil.which("qemu-x86_64")
    if emulator is None:
        print("skipped: qemu-x86_64 is not installed")
        sys.exit(77)
    failures = []
    for processor, lacks in PROCESSORS:
        for binary in binaries:
            if (processor, os.path.basename(binary)) in LEFT_OUT:
                continue
            problem = check(emulator, processor, lacks, binary)
            print(f"{processor} {os.path.basename(binary)}: {problem or 'passed'}", flush=True)
            failures += [binary] if problem else []
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
