"""Erasures and mixes by the text of central/data/augmentation.h, with a Philox of its own: the values of augmentation_test.cc."""

WORD, LONG = 2**32 - 1, 2**64 - 1
PURPOSE = 7  # kAugment


def philox(counter, key, rounds):
    """Salmon et al., SC'11."""
    a, b, c, d = counter
    k, l = key
    for _ in range(rounds):
        p, q = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = q >> 32 ^ b ^ k, q & WORD, p >> 32 ^ d ^ l, p & WORD
        k, l = k + 0x9E3779B9 & WORD, l + 0xBB67AE85 & WORD
    return a, b, c, d


def splitmix(z):
    z = z + 0x9E3779B97F4A7C15 & LONG
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & LONG
    z = (z ^ z >> 27) * 0x94D049BB133111EB & LONG
    return z ^ z >> 31


def bits(seed, epoch, sample, element):
    key = splitmix(splitmix(splitmix(seed) ^ PURPOSE) ^ epoch)
    counter = (element // 4, 0, sample & WORD, sample >> 32)
    return philox(counter, (key & WORD, key >> 32), 7)[element % 4]


def erasure(height, width, *stream):
    """Top, left, height, width."""
    if bits(*stream, 4) < 2**31:
        return 0, 0, 0, 0

    def below(element, bound):
        return bits(*stream, element) * bound >> 32

    def side(element, whole):
        least = max(whole // 8, 1)
        return least + below(element, max(whole // 2, least) - least + 1)

    tall, wide = side(5, height), side(6, width)
    return below(7, height - tall + 1), below(8, width - wide + 1), tall, wide


def mix(samples, *stream):
    return bits(*stream, 12) * samples >> 32, 1 + (bits(*stream, 13) * 511 >> 32)


if __name__ == "__main__":
    assert philox((0,) * 4, (0,) * 2, 10) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    for height, width, *stream in ((16, 40, 3, 5, 10), (7, 9, 2**40 + 5, 199, 50002),
                                   (224, 96, 9, 2**33, 2**32 + 4), (1, 1, 4, 0, 4), (5, 3, 4, 0, 9),
                                   (16, 40, 3, 5, 7)):
        print((height, width, *stream), erasure(height, width, *stream), mix(60000, *stream))
