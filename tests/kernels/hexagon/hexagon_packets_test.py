"""Reads the inner loops of the products from the DSP program: packets, and vrmpy a packet.

usage: hexagon_packets_test.py PROGRAM

Counts, not times: a packet holds at most two vrmpy, of 128 multiplications each.
"""
import re
import struct
import sys

# V6_vrmpybus_acc: Vx.w += vrmpy(Vu.ub, Rt.b).
VRMPY_MASK, VRMPY = 0xFFE020E0, 0x190020A0
# Panels x rows of a panel x vectors of a tile -> most packets of its loop. Of the last line no
# layer of VGG-11 has more than its last rows; (2, 6, 1) is its first one's weight-gradient.
MOST_PACKETS = {(1, 6, 4): 12, (1, 4, 4): 8, (1, 2, 4): 4, (2, 6, 2): 12, (1, 4, 2): 4, (2, 6, 1): 7,
                (1, 6, 2): 7, (1, 2, 2): 3, (1, 6, 1): 4}


def function_symbols(elf):
    """(name, address, offset in the file, size) of the functions."""
    shoff, = struct.unpack_from("<I", elf, 32)
    shentsize, shnum = struct.unpack_from("<HH", elf, 46)
    sections = [struct.unpack_from("<10I", elf, shoff + i * shentsize) for i in range(shnum)]
    for section in sections:
        if section[1] != 2:  # SHT_SYMTAB
            continue
        strings = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], 16):
            name, value, size, info, _, index = struct.unpack_from("<IIIBBH", elf, at)
            if info & 15 != 2 or index >= shnum:
                continue
            end = elf.index(b"\0", strings + name)
            offset = value - sections[index][3] + sections[index][4]
            yield elf[strings + name:end].decode(), value, offset, size


def addresses(elf):
    """(name, address) of the functions."""
    return [(name, address) for name, address, _, _ in function_symbols(elf)]


def packets(words):
    """Lists of words: bits 15:14 of a packet's last word are 3, or 0 if that word holds two."""
    packet = []
    for word in words:
        packet.append(word)
        if word >> 14 & 3 in (0, 3):
            yield packet
            packet = []


def is_loop_end(packet):
    """endloop0: the first word's bits are 2 and the second's are not."""
    return len(packet) > 1 and packet[0] >> 14 & 3 == 2 and packet[1] >> 14 & 3 != 2


def products_of(packet):
    return sum(word & VRMPY_MASK == VRMPY for word in packet)


def loop_start(packet, address):
    """The address that a loop0 in the packet sets, or None."""
    for before, word in zip([0] + packet, packet):
        if word & 0xFFE00000 not in (0x60000000, 0x69000000):  # J2_loop0r, J2_loop0i
            continue
        field = (word >> 8 & 31) << 2 | (word >> 3 & 3)
        if before and before >> 28 == 0:  # immext: its 26 bits, and the field's low 6
            return address + ((before >> 16 & 0xFFF) << 20 | (before & 0x3FFF) << 6 | field & 63)
        return address + field * 4
    return None


def inner_loop(words):
    """Packets of the hardware loop that has products, and the products in them."""
    address, start, listed = 0, None, []
    for packet in packets(words):
        listed.append((address, packet))
        begins = loop_start(packet, address)
        start = begins if begins is not None else start
        if start is not None and is_loop_end(packet):
            loop = [p for at, p in listed if at >= start]
            products = sum(products_of(p) for p in loop)
            if products:
                return len(loop), products
        address += 4 * len(packet)
    return 0, 0


def main():
    with open(sys.argv[1], "rb") as file:
        elf = file.read()
    failures, seen = 0, set()
    for name, _, offset, size in function_symbols(elf):
        match = re.search(r"PanelTileILi(\d)ELi(\d)ELi(\d)E", name)
        if not match:
            continue
        tile = (int(match[1]), int(match[2]), int(match[3]))
        if tile not in MOST_PACKETS:
            continue
        seen.add(tile)
        count, products = inner_loop(struct.unpack_from(f"<{size // 4}I", elf, offset))
        ratio = products / count if count else 0
        wanted = tile[0] * tile[1] * tile[2]
        print(f"tile {tile[0] * tile[1]}x{32 * tile[2]} of panels of {tile[1]}: "
              f"{products} vrmpy in {count} packets, {ratio:.2f} a packet")
        if products != wanted or count > MOST_PACKETS[tile]:
            print(f"  wanted {wanted} vrmpy in at most {MOST_PACKETS[tile]} packets")
            failures += 1
    for tile in MOST_PACKETS.keys() - seen:
        print(f"tile {tile} is not in the program")
        failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
