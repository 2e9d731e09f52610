"""Makes tests/golden/small_floats.json: what values become on the small floats of recipes fp8_chunk and mls.

usage: python3 tests/golden/small_floats.py > tests/golden/small_floats.json

Each format is a table of all its values, made from their codes. What is rounded are all floats of 32 bits that are neither negative nor
infinite, whose last 12 bits are zero, and for mls not above 1: with 9 bits of mantissa or fewer, all codes, all halfway points and the
quarters between are among them. A digest is FNV-1a of 64 bits over the bit patterns of the results, a word of 32 bits at a time, in ascending
order of the values. Nothing of the C++ sources is used.
"""
import bisect
import json
import struct

PATTERNS = range(0, 0x7F800000, 1 << 12)


def value_of(pattern):
    return struct.unpack("<f", struct.pack("<I", pattern))[0]


def table_of(exponents, mantissas, least_exponent):
    """All values: the first exponent field has numbers without the leading one."""
    count = 1 << mantissas
    values = [m / count * 2.0 ** least_exponent for m in range(count)]
    for field in range(1, exponents):
        values += [(1 + m / count) * 2.0 ** (least_exponent + field - 1) for m in range(count)]
    return values


def digest(table, most, halves_up):
    hashed = 0xcbf29ce484222325
    for pattern in PATTERNS:
        x = value_of(pattern)
        if x > most:
            break
        at = bisect.bisect_right(table, x) - 1
        if at + 1 < len(table):
            down, up = x - table[at], table[at + 1] - x
            if up < down or (up == down and (halves_up or at % 2 == 1)):
                at += 1
        hashed = (hashed ^ struct.unpack("<I", struct.pack("<f", table[at]))[0]) * 0x100000001b3 % 2 ** 64
    return f"{hashed:016x}"


def main():
    formats = []
    for exponent_bits, mantissa_bits in ((5, 2), (6, 9)):
        # Symmetric bias; the largest field is no number's. Halves to the even code.
        table = table_of((1 << exponent_bits) - 1, mantissa_bits, 2 - (1 << (exponent_bits - 1)))
        formats.append({"recipe": "fp8_chunk", "exponent_bits": exponent_bits, "mantissa_bits": mantissa_bits, "values": len(table),
                        "digest": digest(table, float("inf"), False)})
    for exponent_bits in range(1, 5):
        for mantissa_bits in range(1, 8):
            table = table_of(1 << exponent_bits, mantissa_bits, 1 - (1 << exponent_bits))
            formats.append({"recipe": "mls", "exponent_bits": exponent_bits, "mantissa_bits": mantissa_bits, "values": len(table),
                            "digest": digest(table, 1, True)})
    print(json.dumps(formats, indent=1))


if __name__ == "__main__":
    main()
