"""Makes tests/golden/fixed.json: values of fixed points, by exact fractions, for recipes afp and wageubn.

usage: python3 tests/golden/fixed.py > tests/golden/fixed.json

All numbers are floats of 32 bits, written as such. Nothing of the C++ sources is used.
"""
import json
import math
import random
import struct
from fractions import Fraction


def f32(x):
    return struct.unpack("f", struct.pack("f", float(x)))[0]


def nearest(x):
    """The nearest integer of a fraction; halves to even."""
    below = math.floor(x)
    rest = x - below
    return below + (1 if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and below % 2) else 0)


def clip(x, top):
    return max(-top, min(top, x))


# Adaptive widths.

def exponent_of(largest, bits):
    if largest == 0:
        return -12
    s = -300
    while (2 ** (bits - 1) - 1) * Fraction(2) ** s < Fraction(largest):
        s += 1
    return s


def on_width(x, bits, s):
    return clip(nearest(Fraction(x) / Fraction(2) ** s), 2 ** (bits - 1) - 1) * Fraction(2) ** s


def error_of(values, bits, s):
    total = sum(abs(Fraction(x)) for x in values)
    if total == 0:
        return 0.0
    rounded = sum(abs(on_width(x, bits, s)) for x in values)
    return math.log2(1 + float(abs(total - rounded) / total))


def schedule(tensors):
    """The states behind each tensor: bits, exponent, moving, wait, error."""
    bits, s, moving, wait, measured, error = 0, 0, 0.0, 0, 0, 0.0
    states = []
    for values in tensors:
        top = (2 ** (bits - 1) - 1) * Fraction(2) ** s if bits else 0
        beyond = sum(abs(Fraction(x)) > top for x in values)
        if bits and wait and beyond * 1000 <= len(values):
            wait -= 1
        else:
            largest = max(abs(x) for x in values)
            old = moving + (bits - 8 if bits else 0)
            bits, s = 8, exponent_of(largest, 8)
            error = error_of(values, bits, s)
            while error > 0.03 and bits < 24:
                bits, s, old = bits + 8, s - 8, old - 8
                error = error_of(values, bits, s)
            if measured < 10:
                moving, interval = float(s), 1
            else:
                moving = old + 0.04 * (s - old)
                change = max(0.04 * abs(s - old), 100 * error * error)
                interval = 100 if change == 0 else min(100, max(1, round(0.1 / change - 2)))
            moving = f32(moving)
            measured += 1
            wait = interval - 1
        states.append([bits, s, moving, wait, error])
    return states


def tensors_of(rng, count, kind):
    """Values whose tails and range move."""
    result = []
    for step in range(count):
        scale = 2.0 ** (kind["rise"] * step / count)
        values = [rng.gauss(0, 1) for _ in range(kind["size"])]
        if "floor" in kind:  # all but one are less than half a step of 8 bits
            values = [rng.gauss(0, 0.0005) + kind["floor"] for _ in values] + [1 + rng.random()]
        result.append([f32(scale * math.copysign(abs(v) ** kind["tail"], v)) for v in values])
    return result


# WAGEUBN.

def q(x, bits):
    return nearest(Fraction(x) * 2 ** (bits - 1)) / Fraction(2) ** (bits - 1)


def power_of(values):
    largest = max(abs(x) for x in values)
    return Fraction(2) ** round(math.log2(largest)) if largest else None


def shift(values, bits):
    r = power_of(values)
    top = 1 - Fraction(1, 2 ** (bits - 1))
    return [f32(r * clip(q(Fraction(x) / r, bits), top)) for x in values] if r else values


def flag(values, bits):
    r = power_of(values)
    if not r:
        return values
    unit = r / 2 ** (bits - 1)

    def one(x):
        u = Fraction(x) / unit
        return q(u, bits) * unit if abs(u) < 1 else clip(nearest(u), 2 ** (bits - 1) - 1) * unit
    return [f32(one(x)) for x in values]


def constant(x, r, u):
    code = min(127, math.floor(abs(Fraction(x)) / r * 128 + Fraction(u)))
    return f32(math.copysign(code / 2 ** 14, x))


def norm(x, scale, shift_by, dy):
    """One channel: y, mean, 1 / s, dx, dscale, dshift."""
    n = len(x)
    mean = sum(map(Fraction, x)) / n
    variance = sum((Fraction(v) - mean) ** 2 for v in x) / n
    m = f32(q(mean, 16))
    inverse = f32(1 / (q(math.sqrt(variance), 16) + Fraction(1, 2 ** 15)))
    u = [(v - m) * inverse for v in x]
    y = [f32(float(q(scale, 8) * q(v, 8) + q(shift_by, 8))) for v in u]
    total = sum(dy)
    product = sum(a * b for a, b in zip(dy, u))
    factor = float(q(scale, 8)) * inverse
    dx = [factor * (a - total / n - b * product / n) for a, b in zip(dy, u)]
    dscale = float(q(sum(a * float(q(b, 8)) for a, b in zip(dy, u)), 15))
    return {"x": x, "dy": dy, "scale": scale, "shift": shift_by, "y": y, "mean": m,
            "inverse": inverse, "dx": dx, "dscale": dscale, "dshift": float(q(total, 15))}


def main():
    rng = random.Random(38)
    golden = {"exponents": [], "widths": [], "schedules": [], "points": [], "errors": [],
              "gradients": [], "norms": []}
    for bits in (8, 16, 24):
        for largest in (127, 127.01, 1, 1 / 127, 0, 1e-30, 3e30, 32767, 32768, 0.75):
            golden["exponents"].append([f32(largest), bits, exponent_of(f32(largest), bits)])
        top = 2 ** (bits - 1) - 1
        for s in (-12, -3, 2):
            reach = 128 if bits == 8 and s == -3 else 12
            halves = [k / 2 for k in range(-2 * reach, 2 * reach + 1)]
            halves += [top - 0.5, top, top + 0.5, 2 * top, -top - 3]
            values = [f32(h * 2.0 ** s) for h in halves]
            golden["widths"].append({"bits": bits, "exponent": s, "x": values,
                                     "y": [float(on_width(v, bits, s)) for v in values]})
    for kind in ({"size": 40, "tail": 1, "rise": 0}, {"size": 30, "tail": 5, "rise": 3},
                 {"size": 30, "tail": 9, "rise": -6}, {"size": 30, "tail": 14, "rise": 1},
                 {"size": 30, "tail": 1, "rise": 2, "floor": 0.003}):
        tensors = tensors_of(rng, 24, kind)
        golden["schedules"].append({"tensors": tensors, "states": schedule(tensors)})
    for bits in (8, 16):
        halves = range(-2 * 132, 2 * 132 + 1)
        values = [f32(h / 2 ** bits) for h in halves] + [f32(v) for v in (-3, 1, 0.999, 0.9961)]
        top = 1 - Fraction(1, 2 ** (bits - 1))
        golden["points"].append({"bits": bits, "x": values,
                                 "y": [float(clip(q(v, bits), top)) for v in values],
                                 "open": [float(q(v, bits)) for v in values]})
        for largest in (0.9, 1, 1.41, 1.42, 3e-4, 700):
            values = [f32(largest)] + [f32(rng.gauss(0, largest / 4)) for _ in range(60)]
            values = [values[0]] + [clip(v, values[0]) for v in values[1:]]
            unit = float(power_of(values)) / 2 ** (bits - 1)
            values += [f32(v * unit) for v in (0.999, 1, 0.5 / 128, 1.5 / 128, 1.5, 2.5, 127 / 128)]
            values = [clip(v, values[0]) for v in values]
            golden["errors"].append({"bits": bits, "x": values, "shift": shift(values, bits),
                                     "flag": flag(values, bits)})
    for x in (0, 0.003, -0.5, 0.7, 1, -1.41, 127 / 128, 64.5 / 128):
        for u in (0, 0.25, 0.5, 1 - 2.0 ** -20):
            golden["gradients"].append([f32(x), u, constant(f32(x), 1, u), constant(f32(4 * x), 4, u)])
    for size in (4, 48):
        x = [f32(rng.gauss(0.3, 0.5)) for _ in range(size)]
        dy = [f32(rng.gauss(0, 0.1)) for _ in range(size)]
        golden["norms"].append(norm(x, f32(0.77), f32(-0.21), dy))
    print("{" + ",\n".join(f'"{k}": ' + json.dumps(v) for k, v in golden.items()) + "}")


if __name__ == "__main__":
    main()
