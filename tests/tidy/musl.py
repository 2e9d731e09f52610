#!/usr/bin/env python3
"""Every source of runnel-worker through Clang with libc++ and the headers of musl: no call of glibc's own, nothing of libstdc++.

    tests/tidy/musl.py --build FOLDER --headers FOLDER

FOLDER of --build is configured, its protobuf code generated. That of --headers has Debian's packages libc++-19-dev and
musl-dev unpacked (`.ci/full musl` does that). Syntax alone: the libraries of Debian are built with libstdc++, so nothing can
be linked here.
"""

import argparse
import concurrent.futures
import pathlib
import re
import shlex
import subprocess
import sys

# What other projects' packages put below /usr/include; beside it lie glibc's headers, which must not be found.
LIBRARIES = ("absl", "google", "grpc", "grpcpp", "grpc++", "upb", "utf8_range", "utf8_validity.h", "spdlog", "fmt", "nlohmann", "CLI",
             "CL", "zlib.h", "zconf.h", "libdeflate.h", "avahi-client", "avahi-common", "linux", "asm-generic", "asm")
SYSTEM = (pathlib.Path("/usr/include"), pathlib.Path("/usr/include/x86_64-linux-gnu"))
JOBS = 2


def others(folder):
    """A folder of links to the headers of LIBRARIES, and OpenSSL's, which lie in two places."""
    folder.mkdir(parents=True, exist_ok=True)
    for place in SYSTEM:
        for name in LIBRARIES:
            if (place / name).exists() and not (folder / name).is_symlink():
                (folder / name).symlink_to(place / name)
        (folder / "openssl").mkdir(exist_ok=True)
        for header in (place / "openssl").glob("*"):
            if not (folder / "openssl" / header.name).is_symlink():
                (folder / "openssl" / header.name).symlink_to(header)
    return folder


def units(build):
    """[(source, flags)] of the compiler's calls for runnel-worker; generated code is protobuf's, and LibTorch is no phone's."""
    commands = subprocess.run(["ninja", "-C", build, "-t", "commands", "runnel-worker"], capture_output=True, text=True, check=True).stdout
    found = []
    for line in commands.splitlines():
        source = re.search(r" -c (\S+\.(?:cc|cxx))(?:\s|$)", line)
        if source is None or "clang-19" in line or source[1].endswith((".pb.cc", "cmake_pch.hxx.cxx")) or "/torch/" in source[1]:
            continue
        flags = [flag for flag in shlex.split(line) if flag.startswith(("-D", "-I", "-m")) and not flag.startswith(("-D_GLIBCXX", "-I/usr"))]
        found.append((source[1], flags))
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--headers", type=pathlib.Path, required=True)
    options = parser.parse_args()
    libcxx = options.headers / "usr/lib/llvm-19/include/c++/v1"
    musl = options.headers / "usr/include/x86_64-linux-musl"
    for folder in (libcxx, musl):
        if not folder.is_dir():
            print(f"skipped: {folder} is not there")
            return 77
    system = [f"-isystem{folder.absolute()}" for folder in (libcxx, musl, others(options.headers / "others"), options.build / "generated")]
    command = ["clang++-19", "-fsyntax-only", "-std=c++20", "--target=x86_64-linux-musl", "-nostdinc++", "-nostdlibinc",
               "-D_LIBCPP_HAS_MUSL_LIBC", *system, "-w"]
    every = units(options.build)
    assert len(every) > 100, "the build's commands look otherwise"
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        done = list(pool.map(lambda one: (one[0], subprocess.run(command + one[1] + [one[0]], cwd=options.build, capture_output=True,
                                                                 text=True)), every))
    failed = [(source, result.stderr) for source, result in done if result.returncode != 0]
    for source, errors in failed:
        print(source, "\n".join(line for line in errors.splitlines() if "error" in line), sep="\n")
    print(f"{len(every)} units, {len(failed)} findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
