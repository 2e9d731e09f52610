#!/usr/bin/env python3
"""No two objects that hold code for an instruction set share a weak function.

The linker keeps one copy of a weak symbol, whichever it meets first. If an object that is compiled for AVX2 and the
portable one both define it, a machine without AVX2 may run the AVX2 copy and end with SIGILL.

And no such object holds an instruction of a better set than its own: no emulator runs all of them.

Usage: isa_symbols_test.py NM OBJDUMP ARCHIVE...
"""

import collections
import re
import subprocess
import sys

# Sources that get flags of their own: kernels_avx2.cc, loops_portable.cc, codec_kernels_avx512.cc, ...
ISA_OBJECT = re.compile(r"(avx|neon|portable)[a-z0-9_]*\.cc\.o$")


def weak_functions(nm, archive):
    """(object, symbol) of each weak definition in the code sections of an archive."""
    listing = subprocess.run([nm, "--print-file-name", "--defined-only", "--demangle", archive],
                             check=True, capture_output=True, text=True).stdout
    for line in listing.splitlines():
        match = re.match(r"(?:.*:)?([^:]+\.o):[0-9a-f]+ ([Ww]) (.*)", line)
        if match:
            yield match[1], match[3]


# By the end of an object's name, what its instructions must not have. A dot product of AVX-VNNI is written {vex}; zmm and
# masks are AVX-512's.
DOT, WIDE = r"vpdpbusds?\b", r"%zmm|\{%k\d\}|%[xyz]mm(1[6-9]|2\d|3[01])"
FORBIDDEN = (
    ("avx512_vnni.cc.o", None),
    ("avx512.cc.o", DOT),
    ("avx_vnni.cc.o", WIDE),
    ("avx2.cc.o", WIDE + "|" + DOT),
    ("portable.cc.o", WIDE + "|" + DOT + r"|%ymm|\bv[a-z0-9]+\s"),
)


def instructions(objdump, archive):
    """(object, line of disassembly) of each instruction of an archive."""
    listing = subprocess.run([objdump, "--disassemble", "--no-show-raw-insn", archive], check=True, capture_output=True,
                             text=True).stdout
    name = ""
    for line in listing.splitlines():
        header = re.match(r"(\S+\.o):\s+file format", line)
        if header:
            name = header[1]
        elif name:
            yield name, line


def foreign_instructions(objdump, archive):
    """The first instruction in each object that its instruction set does not have, and the objects that were read."""
    found, read = {}, set()
    for name, line in instructions(objdump, archive):
        forbidden = next((what for end, what in FORBIDDEN if name.endswith(end)), None)
        if forbidden is None or name in found:
            continue
        read.add(name)
        if re.search(forbidden, line):
            found[name] = line.strip()
    return found, read


def main(nm, objdump, *archives):
    owners = collections.defaultdict(set)
    objects = set()
    for archive in archives:
        for name, symbol in weak_functions(nm, archive):
            owners[symbol].add(name)
            objects.add(name)
    if not any(ISA_OBJECT.search(name) for name in objects):
        sys.exit("no object of an instruction set has a weak symbol: the pattern of names is out of date")
    shared = {symbol: names for symbol, names in owners.items()
              if len(names) > 1 and any(ISA_OBJECT.search(name) for name in names)}
    for symbol, names in sorted(shared.items()):
        print(f"{symbol}: in {', '.join(sorted(names))}")
    if shared:
        sys.exit(f"{len(shared)} weak functions are shared: put them into an anonymous namespace")
    failed = False
    for archive in archives:
        found, read = foreign_instructions(objdump, archive)
        if not read:
            sys.exit(f"{archive}: no object of an instruction set was read: the pattern of names is out of date")
        for name, line in sorted(found.items()):
            print(f"{name}: {line}")
            failed = True
    if failed:
        sys.exit("an object holds an instruction that its instruction set does not have")


if __name__ == "__main__":
    main(*sys.argv[1:])
