// Instructions of INT8 inference, as kernels/ir/arithmetic/code_rule.h says, in integers alone.

#define MOST_REAL 1000000L

// round((float)(x * factor)) of two floats' bits, factor >= 0: devices may take small floats for
// zero, and may round otherwise.
long encode_real(uint x, uint factor) {
  const uint magnitude = MAGNITUDE(x);
  const bool is_nan = magnitude > INFINITE || factor > INFINITE ||
                      (magnitude == INFINITE && factor == 0) ||
                      (factor == INFINITE && magnitude == 0);
  if (is_nan) return -MOST_REAL;
  long rounded = MOST_REAL;
  if (magnitude < INFINITE && factor < INFINITE) {
    ulong product = (ulong)mantissa_of(magnitude) * mantissa_of(factor);
    int exponent = exponent_of(magnitude) + exponent_of(factor) - 300;
    const int dropped = product == 0 ? 0 : 40 - (int)clz(product);
    if (dropped > 0) {
      product = (product + (1UL << (dropped - 1)) - 1 + (product >> dropped & 1)) >> dropped;
      exponent += dropped;
    }
    if (exponent >= 0) {
      rounded = exponent > 20 && product != 0 ? MOST_REAL : (long)(product << min(exponent, 20));
    } else {
      rounded = exponent < -40 ? 0 : (long)((product + (1UL << (-exponent - 1))) >> -exponent);
    }
    rounded = min(rounded, MOST_REAL);
  }
  return x >> 31 ? -rounded : rounded;
}

__kernel ELEMENTS void encode_codes(TENSOR(x), TENSOR(rule), TENSOR(y), uint count) {
  const CodeRule rule = *DATA(const CodeRule, rule);
  FOR_ITEMS(i, count) {
    DATA(char, y)[i] =
        clamp_code(encode_real(DATA(const uint, x)[i], (uint)rule.factor_a), rule);
  }
  FINISH_CODES(y);
}

// (n, c, spatial...) as n images of c x inner, which are read in `groups`.
typedef struct {
  int c, inner, groups;
} CodePlanes;

__kernel ELEMENTS void requantize_codes(TENSOR(x), TENSOR(rule), TENSOR(rows), TENSOR(y),
                                        uint count, CodePlanes p, int flags) {
  __global const CodeRule *rule = DATA(const CodeRule, rule);
  FOR_ITEMS(i, count) {
    const int at = i % p.inner, c = i / p.inner % p.c, n = i / p.inner / p.c;
    const int row = (n * p.groups + c / (p.c / p.groups)) * p.inner + at;
    const long sum = flags & CODES_IN
                         ? DATA(const char, x)[place_of_code(IS_PACKED(x), i, c, p.inner, at)]
                         : DATA(const int, x)[i];
    const long row_sum = flags & ROW_SUMS ? DATA(const int, rows)[row] : 0;
    write_requantized(DATA(char, y), place_of_code(IS_PACKED(y), i, c, p.inner, at), sum, row_sum,
                      rule, c, flags);
  }
  FINISH_CODES(y);
}

// Either all packed or none.
__kernel ELEMENTS void add_codes(TENSOR(a), TENSOR(b), TENSOR(rule), TENSOR(y), uint count) {
  const CodeRule rule = *DATA(const CodeRule, rule);
  FOR_ITEMS(i, count) {
    const long sum = (DATA(const char, a)[i] - rule.zero_a) * rule.factor_a +
                     (DATA(const char, b)[i] - rule.zero_b) * rule.factor_b;
    DATA(char, y)[i] = clamp_code(round_half_away(sum, (int)rule.shift), rule);
  }
  FINISH_CODES(y);
}

__kernel ELEMENTS void pad_codes(TENSOR(x), TENSOR(rule), TENSOR(y), uint count, int h, int w,
                                 int top, int left) {
  const char border = (char)DATA(const CodeRule, rule)->zero_a;
  const int rows = h + 2 * top, columns = w + 2 * left;
  FOR_ITEMS(i, count) {
    const int column = i % columns - left, row = i / columns % rows - top;
    const int plane = i / columns / rows;
    const bool inside = row >= 0 && row < h && column >= 0 && column < w;
    // Packed channels fill their cells: a plane's number tells its lane.
    const uint from = place_of_code(IS_PACKED(x), (plane * h + row) * w + column, plane, h * w,
                                    row * w + column);
    const uint to = place_of_code(IS_PACKED(y), i, plane, rows * columns, i % (rows * columns));
    DATA(char, y)[to] = inside ? DATA(const char, x)[from] : border;
  }
  FINISH_CODES(y);
}

// p: of the channels-first side.
__kernel ELEMENTS void codes_to_channels_first(TENSOR(x), TENSOR(y), uint count, CodePlanes p) {
  FOR_ITEMS(i, count) {
    const int at = i % p.inner, c = i / p.inner % p.c, n = i / p.inner / p.c;
    DATA(char, y)[place_of_code(IS_PACKED(y), i, c, p.inner, at)] =
        DATA(const char, x)[(n * p.inner + at) * p.c + c];
  }
  FINISH_CODES(y);
}

__kernel ELEMENTS void codes_to_channels_last(TENSOR(x), TENSOR(y), uint count, CodePlanes p) {
  FOR_ITEMS(i, count) {
    const int c = i % p.c, at = i / p.c % p.inner, n = i / p.c / p.inner;
    DATA(char, y)[i] = DATA(
        const char, x)[place_of_code(IS_PACKED(x), (n * p.c + c) * p.inner + at, c, p.inner, at)];
  }
  FINISH_CODES(y);
}
