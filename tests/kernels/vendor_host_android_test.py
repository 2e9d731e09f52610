"""The vendor host as Android would load it: its interpreter, its libraries, and no function but those listed.

Builds it with deploy/cross/vendor_host.sh. Nothing runs: there is no Android here. Exit code 77, skipped: no cross compiler.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def listed():
    lines = (ROOT / "kernels/backends/vendor_host/android_symbols.txt").read_text().splitlines()
    return {tuple(line.split()) for line in lines if line and not line.startswith("#")}


def readelf(file, *options):
    return subprocess.run(["readelf", "-W", *options, file], check=True, capture_output=True, text=True).stdout


def check(file):
    """The complaints."""
    header, segments, dynamic = readelf(file, "-h"), readelf(file, "-l"), readelf(file, "-d")
    symbols = readelf(file, "--dyn-syms")
    wrong = []

    def expect(is_right, what):
        if not is_right:
            wrong.append(what)

    expect("AArch64" in header and re.search(r"Type:\s+DYN", header), "no position-independent program of arm64")
    expect("[Requesting program interpreter: /system/bin/linker64]" in segments, "another interpreter")
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    expect(sorted(needed) == sorted({library for library, _ in listed()}), f"needs {needed}")
    undefined = set(re.findall(r" UND (\S+)$", symbols, re.MULTILINE))
    expect(undefined == {name for _, name in listed()}, f"undefined: {sorted(undefined)}")
    expect(" TLS " not in segments, "has variables of threads, for which Android wants more room than glibc")
    aligned = re.findall(r"^\s+LOAD .* (0x[0-9a-f]+)$", segments, re.MULTILINE)
    expect(aligned and all(int(one, 16) >= 1 << 14 for one in aligned), f"pages of 16 KiB: {aligned}")
    stack = re.search(r"GNU_STACK .*", segments)
    expect(stack and "RWE" not in stack.group(), "an executable stack, which Android refuses")
    expect("TEXTREL" not in dynamic, "relocated text, which Android refuses")
    expect("RPATH" not in dynamic and "RUNPATH" not in dynamic, "a path of this machine")
    return wrong


def main():
    if shutil.which("aarch64-linux-gnu-gcc") is None or shutil.which("readelf") is None:
        print("skipped: no aarch64-linux-gnu-gcc")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "runnel-vendor-host")
        subprocess.run(["bash", str(ROOT / "deploy/cross/vendor_host.sh"), file], check=True)
        wrong = check(file)
        # A program of the system's C library is what the test has to tell apart.
        other = check(sys.executable) if Path(sys.executable).exists() else ["other"]
    for line in wrong:
        print("runnel-vendor-host:", line)
    if not other:
        print("a program that is none of Android's passes")
    return 1 if wrong or not other else 0


if __name__ == "__main__":
    sys.exit(main())
