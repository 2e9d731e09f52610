"""Reads the shared objects for the DSP of devices: what a loader there needs, and nothing that it would not find.

usage: object_test.py OBJECT...

Not verified on hardware: the demands are those of public backends that run there.
"""
import re
import struct
import sys

# What the system of a DSP offers to an unsigned module; those of the second line only on newer ones, so they must be weak.
KNOWN = {"HAP_mmap_get", "HAP_mmap_put", "HAP_power_set", "HAP_request_VTCM", "HAP_release_VTCM"}
KNOWN_WEAK = {"HAP_request_async_VTCM", "dspqueue_import", "dspqueue_close", "dspqueue_read_noblock", "dspqueue_write",
              "qurt_thread_create", "qurt_thread_join", "qurt_thread_exit", "qurt_thread_get_priority", "qurt_thread_get_id",
              "compute_resource_attr_init", "compute_resource_attr_set_vtcm_param_v2", "compute_resource_attr_set_cache_mode",
              "compute_resource_attr_set_release_callback", "compute_resource_attr_get_vtcm_ptr_v2", "compute_resource_acquire",
              "compute_resource_release", "compute_resource_acquire_cached", "compute_resource_release_cached"}
ENTRY = "runnel_dsp_skel_handle_invoke"
PAGE = 4096
HEXAGON, SHARED_OBJECT = 164, 3
DT_NEEDED, DT_STRTAB, DT_SYMTAB, DT_HASH, DT_INIT, DT_INIT_ARRAY, DT_TEXTREL = 1, 5, 6, 4, 12, 25, 22
SHF_ALLOC, SHT_DYNSYM, SHT_NOBITS = 2, 11, 8
PT_LOAD, PT_DYNAMIC = 1, 2
# R_HEX_32, GLOB_DAT, JMP_SLOT, RELATIVE.
RELOCATIONS = {6, 33, 34, 35}


def faults(path, elf):
    """What is wrong with the object, as lines."""
    if elf[:4] != b"\x7fELF" or elf[4:6] != b"\x01\x01":
        return ["is no little-endian 32-bit ELF file"]
    found = []
    kind, machine = struct.unpack_from("<HH", elf, 16)
    flags, = struct.unpack_from("<I", elf, 36)
    version = int(re.search(r"_v(\d+)\.so$", path).group(1), 16)
    if (kind, machine) != (SHARED_OBJECT, HEXAGON):
        found.append(f"has type {kind} and machine {machine}, not a shared object for Hexagon")
    if flags & 0xff != version:
        found.append(f"is for v{flags & 0xff:x}, not as its name says")
    phoff, shoff = struct.unpack_from("<II", elf, 28)
    phnum, = struct.unpack_from("<H", elf, 44)
    shnum, = struct.unpack_from("<H", elf, 48)
    segments = [struct.unpack_from("<8I", elf, phoff + i * 32) for i in range(phnum)]
    sections = [struct.unpack_from("<10I", elf, shoff + i * 40) for i in range(shnum)]
    for section in sections:
        if section[2] & SHF_ALLOC and section[3] % PAGE:
            found.append(f"has a section at 0x{section[3]:x}, not at the begin of a page")
        if section[2] & SHF_ALLOC and section[1] != SHT_NOBITS and section[4] % PAGE:
            found.append(f"has a section at byte 0x{section[4]:x} of the file, not at the begin of a page")
    for segment in segments:
        if segment[0] == PT_LOAD and segment[6] & 3 == 3:
            found.append("has a segment that is written and run")
    dynamic = next(segment for segment in segments if segment[0] == PT_DYNAMIC)
    tags = [struct.unpack_from("<II", elf, dynamic[1] + i) for i in range(0, dynamic[4], 8)]
    tags = {tag: value for tag, value in tags if tag}
    for tag, what in ((DT_NEEDED, "needs other libraries"), (DT_INIT, "has a constructor"),
                      (DT_INIT_ARRAY, "has constructors"), (DT_TEXTREL, "has relocations in its code")):
        if tag in tags:
            found.append(what)
    for tag, what in ((DT_HASH, "hash"), (DT_STRTAB, "string"), (DT_SYMTAB, "symbol")):
        if tag not in tags:
            found.append(f"has no {what} table for the loader")
    return found + symbol_faults(elf, sections) + relocation_faults(elf, tags, segments)


def symbol_faults(elf, sections):
    """Undefined symbols that a DSP does not have, and exports beside the entry."""
    found, exported = [], set()
    table = next(section for section in sections if section[1] == SHT_DYNSYM)
    strings = sections[table[6]][4]
    for at in range(table[4] + 16, table[4] + table[5], 16):
        name_at, _, _, info, _, index = struct.unpack_from("<IIIBBH", elf, at)
        name = elf[strings + name_at:elf.index(b"\0", strings + name_at)].decode()
        if index:
            exported.add(name)
        elif name in KNOWN_WEAK and info >> 4 != 2:
            found.append(f"demands {name}, which older systems lack")
        elif name not in KNOWN | KNOWN_WEAK:
            found.append(f"asks for {name}, which is not on the list")
    if exported != {ENTRY}:
        found.append(f"exports {sorted(exported)}, not {ENTRY} alone")
    return found


def relocation_faults(elf, tags, segments):
    found = []
    for table, size in ((7, 8), (23, 2)):  # DT_RELA, DT_JMPREL
        at = tags.get(table, 0)
        if not at:
            continue
        segment = next(s for s in segments if s[0] == PT_LOAD and s[2] <= at < s[2] + s[5])
        begin = segment[1] + at - segment[2]
        for place in range(begin, begin + tags[size], 12):
            kind = struct.unpack_from("<I", elf, place + 4)[0] & 255
            if kind not in RELOCATIONS:
                found.append(f"has a relocation of kind {kind}")
    return found


def check(path):
    with open(path, "rb") as file:
        elf = file.read()
    found = faults(path, elf)
    for fault in found:
        print(f"{path}: {fault}")
    if not found:
        print(f"{path}: {len(elf)} bytes, as a loader wants it")
    # The check can fail: one byte of a name on the list is another one.
    spoilt = elf.replace(b"HAP_mmap_put", b"HAP_mmap_pot")
    if not any("HAP_mmap_pot" in fault for fault in faults(path, spoilt)):
        found.append("an unknown symbol would not be found")
        print(found[-1])
    return not found


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(0 if all([check(path) for path in sys.argv[1:]]) else 1)


if __name__ == "__main__":
    main()
