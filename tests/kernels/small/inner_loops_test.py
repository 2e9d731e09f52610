"""The primitives of backend small compile without a library, and their inner loops have the loads and
multiply-adds of the paper: counted from the disassembly, for cores without vectors.

    python3 inner_loops_test.py SOURCE_FOLDER WORK_FOLDER COMPILER...
    python3 inner_loops_test.py . /tmp/loops g++ aarch64-linux-gnu-g++

A compiler that is not there is left out. Prints a table.
"""

import pathlib
import re
import shutil
import subprocess
import sys

FLAGS = ["-std=c++20", "-O2", "-fno-tree-vectorize", "-fno-tree-slp-vectorize", "-ffp-contract=off",
         "-fno-math-errno", "-ffreestanding", "-nostdlib", "-fno-exceptions", "-fno-rtti",
         "-fno-stack-protector", "-Wall", "-Wextra", "-Werror"]
# A compiler may make these of a loop; every freestanding C++ has them.
ALLOWED = {"memcpy", "memset", "memmove"}

# (what, rule, the kernel's template arguments, loads, multiply-adds) of an iteration; fp16 in pairs.
F32 = "Float32Rule"
F16 = "NarrowRule<F16>"
LOOPS = [
    ("fp32 MM naive", F32, "false, 1, 1, 1, 1", 2, 1),
    ("fp32 MM 1x4", F32, "false, 1, 4, 1, 1", 5, 4),
    ("fp32 MM 2x2", F32, "false, 2, 2, 1, 1", 4, 4),
    ("fp32 MM 2x4", F32, "false, 2, 4, 1, 1", 6, 8),
    ("fp32 MM_T 2x4", F32, "true, 2, 4, 1, 1", 6, 8),
    ("fp16 MM_T 1x2", F16, "true, 1, 2, 2, 2", 3, 2),
    ("fp16 MM_T 2x4", F16, "true, 2, 4, 2, 2", 6, 8),
]


class Target:
    def __init__(self, compiler, objdump, options, loads, multiplies, has_fp16):
        self.compiler, self.objdump, self.options = compiler, objdump, options
        self.loads, self.multiplies, self.has_fp16 = loads, multiplies, has_fp16


# Loads of single floats into registers, or as operands; pairs of registers count twice.
X86_LOADS = {r"\b(movss|mulss|addss)\s+[^,]*\(.*\),%xmm": 1}
ARM_LOADS = {r"\bldu?r\s+[sw]\d+,": 1, r"\bldp\s+s\d+, s\d+,": 2, r"\bld1\s+\{v\d+\.s\}": 1}
TARGETS = {
    "g++": Target("g++", "objdump", [], X86_LOADS, r"\bmulss\b", False),
    "aarch64-linux-gnu-g++": Target(
        "aarch64-linux-gnu-g++", "aarch64-linux-gnu-objdump", ["-march=armv8.2-a+fp16"], ARM_LOADS,
        r"\b(fmadd\s+s|fmla\s+v\d+\.4h)", True),
}


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def functions(listing):
    """(name, lines) of each function of a disassembly."""
    for block in re.split(r"\n(?=[0-9a-f]+ <)", listing):
        head, _, body = block.partition("\n")
        yield head, body.splitlines()


def inner_loops(lines):
    """Instructions of the loops that hold no other one."""
    at, spans = {}, []
    for number, line in enumerate(lines):
        match = re.match(r"\s*([0-9a-f]+):", line)
        if match:
            at[int(match[1], 16)] = number
    for number, line in enumerate(lines):
        jump = re.search(r":\s+(?:j\w+|b\.\w+|cbn?z\s+\w+,|tbn?z\s+[^<]*,)\s*([0-9a-f]+) <", line)
        target = at.get(int(jump[1], 16)) if jump else None
        if target is not None and target <= number:
            spans.append((target, number))
    for begin, end in spans:
        if not any(begin <= b and e <= end and (b, e) != (begin, end) for b, e in spans):
            yield lines[begin:end + 1]


def is_of(name, rule, kernel):
    """Whether a function is the kernel, or a part of it that was not inlined."""
    name = name.replace("runnel::small::", "")
    transposed, rows, columns, depth, _ = kernel.split(", ")
    return any(part in name for part in (
        f"MultiplyByRows<{rule}, {kernel}>", f"SumLanes<{rule}, {rows}, {columns}>",
        f"SumBlock<{rule}, {transposed}, {rows}, {columns}, {depth}>"))


def count(target, loop):
    loads = sum(times for line in loop for pattern, times in target.loads.items()
                if re.search(pattern, line))
    return loads, sum(1 for line in loop if re.search(target.multiplies, line))


def freestanding(target, sources, work):
    """What an object needs that no freestanding C++ has."""
    for source in sorted((sources / "kernels/backends/small/primitives").glob("*.cc")):
        made = work / f"{target.compiler}_{source.stem}.o"
        # Without optimisation: quick, and no call is left out.
        run(target.compiler, *FLAGS, *target.options, "-O0", f"-I{sources}", "-c", source, "-o", made)
        for line in run(target.objdump.replace("objdump", "nm"), "-u", made).splitlines():
            name = line.split()[-1]
            if name not in ALLOWED and "runnel5small" not in name:
                yield f"{source.name} ({target.compiler}) needs {name}"


def loops(target, sources, work):
    rows = [row for row in LOOPS if row[1] != F16 or target.has_fp16]
    probe, made = work / "probe.cc", work / f"{target.compiler}_probe.o"
    probe.write_text(
        '#include "kernels/backends/small/primitives/matrix_body.h"\nnamespace runnel::small {\n'
        + "".join(f"template void MultiplyByRows<{rule}, {kernel}>(const MatrixCall<{rule}>&);\n"
                  for _, rule, kernel, _, _ in rows) + "}\n")
    run(target.compiler, *FLAGS, *target.options, f"-I{sources}", "-c", probe, "-o", made)
    parts = list(functions(run(target.objdump, "-d", "-C", "--no-show-raw-insn", made)))
    for what, rule, kernel, loads, multiplies in rows:
        counts = [count(target, loop) for name, lines in parts if is_of(name, rule, kernel)
                  for loop in inner_loops(lines)]
        found = max(counts, key=lambda pair: pair[1], default=(0, 0))
        print(f"{target.compiler:24} {what:16} {found[0]:2} loads {found[1]:2} multiply-adds")
        if found != (loads, multiplies):
            yield f"{what} ({target.compiler}): {found}, the paper has {(loads, multiplies)}"


def main():
    sources, work = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    work.mkdir(parents=True, exist_ok=True)
    errors, checked = [], 0
    for name in sys.argv[3:]:
        target = TARGETS[name]
        if not shutil.which(target.compiler) or not shutil.which(target.objdump):
            print(f"{name} is not here")
            continue
        errors += [*freestanding(target, sources, work), *loops(target, sources, work)]
        checked += 1
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors or checked == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
