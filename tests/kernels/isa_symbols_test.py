#!/usr/bin/env python3
"""No two objects that hold code for an instruction set share a weak function.

The linker keeps one copy of a weak symbol, whichever it meets first. If an object that is compiled for AVX2 and the
portable one both define it, a machine without AVX2 may run the AVX2 copy and end with SIGILL.

Usage: isa_symbols_test.py NM ARCHIVE...
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


def main(nm, *archives):
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


if __name__ == "__main__":
    main(*sys.argv[1:])
