"""Where the packets of whole kernels go, as the emulator logs them: the inner loops of the products,
the packing of operands, and the epilogue, which begins and stores sums.

usage: [RUNNEL_DSP_COUNTS_BATCH=N] hexagon_shares.py FOLDER [FILTER]

FOLDER has hexagon_test and runnel-dsp (build/dev/bin). Counts, not times. A row a kernel of
hexagon_counts_test, which the filter may choose from.
"""
import bisect
import collections
import os
import re
import subprocess
import sys
import tempfile

import hexagon_packets_test as program

EXECUTED = re.compile(r"Trace \d+: \S+ \[[0-9a-f]+/([0-9a-f]+)/")
WORD = re.compile(r"0x([0-9a-f]+):  0x([0-9a-f]+)")
# Functions by what they do; what stands nowhere is "other".
PACKING = ("Pack", "LaneQuads", "GatherRows", "LayOut", "MakeReads", "memcpy", "TileMasks")
WEIGHT_GRADIENT = "ConvWeightGradient"  # its packing of x is inlined into it
EPILOGUE = ("PanelTile", "StorePanel", "Store")


class Program:
    def __init__(self, path):
        with open(path, "rb") as file:
            elf = file.read()
        self.functions = sorted((address, name) for name, address in program.addresses(elf))
        self.starts = [address for address, _ in self.functions]

    def function_at(self, address):
        at = bisect.bisect_right(self.starts, address) - 1
        return self.functions[at][1] if at >= 0 else ""

    def kind_of(self, address, products):
        """Of a block of code that has so many vrmpy of its own."""
        name = self.function_at(address)
        if "PanelTile" in name:
            return "loop" if products else "epilogue"
        if any(word in name for word in EPILOGUE):
            return "epilogue"
        if any(word in name for word in PACKING + (WEIGHT_GRADIENT,)):
            return "packing"
        return "other"


def operations(log, dsp):
    """The packets of each operation by kind, and its vrmpy: between two readings of the counters."""
    blocks, words, counts = {}, [], collections.Counter()
    readings = 0

    def finish_block():
        if words:
            packets = list(program.packets([word for _, word in words]))
            products = sum(program.products_of(packet) for packet in packets)
            address = words[0][0]
            blocks[address] = (len(packets), products, dsp.kind_of(address, products))
        words.clear()

    reading = next(address for address, name in dsp.functions if "ReadCounts" in name)
    for line in log:
        if executed := EXECUTED.match(line):
            finish_block()
            address = int(executed[1], 16)
            if address == reading:
                readings += 1
                if readings % 2 == 0:
                    yield counts
                counts = collections.Counter()
                continue
            packets, products, kind = blocks[address]
            counts[kind] += packets
            counts["vrmpy"] += products
        elif word := WORD.match(line):
            words.append((int(word[1], 16), int(word[2], 16)))
        elif line.startswith("IN:"):
            finish_block()


def measured(test, dsp, case):
    """(counts of the operation that the test measures, what it prints of it). Its ratio is of the
    vrmpy that the layer needs, without those of lanes that are not used."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        os.mkfifo(log)
        environment = dict(os.environ, QEMU_LOG="in_asm,exec,nochain", QEMU_LOG_FILENAME=log)
        run = subprocess.Popen([test, f"--gtest_filter={case}"], env=environment, text=True,
                               stdout=subprocess.PIPE)
        with open(log) as lines:
            found = list(operations(lines, dsp))
        output = run.communicate()[0]
    # The first two are of one sample: with packing of the weights, and without.
    return found[2], re.search(r"batch (\d+): (\d+) packets emulated and (\d+) to pack "
                               r"weights, (\S+) vrmpy a packet", output)


def main():
    folder = sys.argv[1]
    test = os.path.join(folder, "hexagon_test")
    dsp = Program(os.path.join(folder, "runnel-dsp"))
    only = sys.argv[2] if len(sys.argv) > 2 else "*"
    listed = subprocess.run([test, "--gtest_list_tests", f"--gtest_filter=*HexagonCounts.*{only}*"],
                            stdout=subprocess.PIPE, text=True, check=True).stdout
    print("| kernel | batch | packets | vrmpy | vrmpy a packet | loops % | packing % | epilogue % |"
          " other % | packets to pack weights |\n|---|" + "---:|" * 9)
    for line in listed.splitlines():
        match = re.match(r"\s+(PacketsDoNotRise/(\S+))", line)
        if not match:
            continue
        counts, said = measured(test, dsp, "Layers/HexagonCounts." + match[1])
        packets = sum(counts[kind] for kind in ("loop", "packing", "epilogue", "other"))
        shares = [f"{100 * counts[kind] / packets:.1f}"
                  for kind in ("loop", "packing", "epilogue", "other")]
        print(f"| {match[2]} | {said[1]} | {said[2]} | {counts['vrmpy']} | "
              f"{said[4]} | {' | '.join(shares)} | {said[3]} |", flush=True)


if __name__ == "__main__":
    main()
