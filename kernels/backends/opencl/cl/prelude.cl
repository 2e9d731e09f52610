// What all kernels share: operands, exponents, rounding, draws. The arithmetic is that of
// kernels/ir/arithmetic/integer_math.h and proto/base/random.h, in integers alone, so that each device gives the
// same bytes.

typedef struct {
  int exponent;
  int reserved;
  long max_abs;
  long padding[6];
} Tail;

// Of an operator: input images, output images, window. The host lays it out alike.
typedef struct {
  int n, c, h, w;
  int oc, oh, ow;
  int kh, kw, sh, sw, ph, pw;
  int groups;
} Geometry;

typedef struct {
  int rounding;
  int promote_one_to_two;
  int relu;
  int power_of_two;
  uint key0, key1, sequence0, sequence1;
  uint threshold;
  int added_exponent;
} Rule;

#define PSEUDO_STOCHASTIC 0
#define HALF_AWAY 1
#define STOCHASTIC 2

// An operand: the area that it lies in, the offsets of its elements and of its tail.
#define TENSOR(name) __global uchar *name##_area, ulong2 name##_at
#define DATA(type, name) ((__global type *)(name##_area + name##_at.x))
#define TAIL(name) ((__global Tail *)(name##_area + (name##_at.y & ~1UL)))

// Codes (n, c, inner) may lie packed (kernels/backends/opencl/packing.h), as (n, c / 4, inner, 4): the second offset is odd.
#define IS_PACKED(name) ((int)(name##_at.y & 1))
// Where element i of them lies, which is at position `at` of channel c.
uint place_of_code(int is_packed, uint i, int c, int inner, int at) {
  const int lane = c & 3;
  return is_packed ? i + 3 * at + lane - lane * inner : i;
}

// Floats have no tail: their second offset says how they lie beside the first (the host's Staging).
#define AS_HALVES 1   // FP16
#define AS_ROUNDED 2  // FP32 that gets the values of halves
#define STORED(name) ((int)(name##_at.y - name##_at.x))

#ifdef HALF_ACTIVATIONS
// Of core OpenCL C: a device needs no arithmetic of halves for them.
float read_float(__global const void *data, ulong i, int stored) {
  return stored == AS_HALVES ? vload_half(i, (__global const half *)data)
                             : ((__global const float *)data)[i];
}

// To the nearest, ties to even; beyond 65504 infinite.
void write_float(__global void *data, ulong i, float value, int stored) {
  if (stored == AS_HALVES) {
    vstore_half_rte(value, i, (__global half *)data);
    return;
  }
  if (stored == AS_ROUNDED) {
    ushort bits;
    vstore_half_rte(value, 0, (half *)&bits);
    value = vload_half(0, (const half *)&bits);
  }
  ((__global float *)data)[i] = value;
}
#else
#define read_float(data, i, stored) (((__global const float *)(data))[i])
#define write_float(data, i, value, stored) (((__global float *)(data))[i] = (value))
#endif
// An activation's element.
#define READ(name, i) read_float(DATA(const void, name), (i), STORED(name))
#define WRITE(name, i, value) write_float(DATA(void, name), (i), (value), STORED(name))

#define GROUP 64
#define ELEMENTS __attribute__((reqd_work_group_size(GROUP, 1, 1)))
#define FOR_ITEMS(i, count) \
  for (uint i = get_global_id(0); i < (uint)(count); i += get_global_size(0))
// Four elements that share a block of draws.
#define FOR_QUADS(quad, count) FOR_ITEMS(quad, ((uint)(count) + 3u) / 4u)
#define FOR_LANES(lane, i, quad, count) \
  for (uint lane = 0, i = 4 * quad; lane < 4 && i < (uint)(count); ++lane, ++i)

void write_tail(__global Tail *tail, int exponent, long max_abs) {
  tail->exponent = exponent;
  tail->reserved = 0;
  tail->max_abs = max_abs;
  for (int i = 0; i < 6; ++i) tail->padding[i] = 0;
}

// A float's bits without its sign: magnitude = mantissa * 2^(exponent - 150); a NaN's are above
// INFINITE.
#define MAGNITUDE(bits) ((bits) & 0x7fffffffu)
#define INFINITE 0x7f800000u
uint mantissa_of(uint magnitude) {
  const uint fraction = magnitude & 0x7fffffu;
  return magnitude >> 23 == 0 ? fraction : fraction | 0x800000u;
}
int exponent_of(uint magnitude) { return max((int)(magnitude >> 23), 1); }

int bits_of(long max_abs) { return max_abs <= 1 ? 0 : 64 - (int)clz((ulong)(max_abs - 1)); }

char saturate_mantissa(long value) { return (char)clamp(value, -127L, 127L); }

long divide_by_power(long x, long s) { return s > 62 ? 0 : x / (1L << s); }

uint4 draws_of(const Rule rule, uint block) {
  uint4 counter = (uint4)(block, 0, rule.sequence0, rule.sequence1);
  uint key0 = rule.key0, key1 = rule.key1;
  for (int round = 0; round < 7; ++round) {
    const uint high0 = mul_hi(0xD2511F53u, counter.x), low0 = 0xD2511F53u * counter.x;
    const uint high1 = mul_hi(0xCD9E8D57u, counter.z), low1 = 0xCD9E8D57u * counter.z;
    counter = (uint4)(high1 ^ counter.y ^ key0, low1, high0 ^ counter.w ^ key1, low0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

uint lane_of(uint4 values, uint lane) {
  return lane == 0 ? values.x : lane == 1 ? values.y : lane == 2 ? values.z : values.w;
}

// Draws of a quad, where the rule needs them.
uint4 rounding_draws(const Rule rule, uint quad) {
  return rule.rounding == STOCHASTIC ? draws_of(rule, quad) : (uint4)(0);
}

long round_by(long x, int shift, const Rule rule, uint bits) {
  if (shift == 0) return x;
  const ulong magnitude = x < 0 ? -(ulong)x : (ulong)x;
  const ulong residue = magnitude & ((1UL << shift) - 1);
  ulong away;
  if (rule.rounding == PSEUDO_STOCHASTIC) {
    const int half_bits = shift / 2;
    const ulong low = (residue & ((1UL << half_bits) - 1)) << (shift % 2);
    away = (residue >> half_bits) > low;
  } else if (rule.rounding == HALF_AWAY) {
    away = residue >> (shift - 1);
  } else {
    const ulong draw = shift <= 32 ? (ulong)(bits >> (32 - shift)) : (ulong)bits << (shift - 32);
    away = residue > draw;
  }
  const long quotient = (long)((magnitude >> shift) + away);
  return x < 0 ? -quotient : quotient;
}

// Codes of INT8 inference: kernels/ir/arithmetic/code_rule.h.
typedef struct {
  long zero_a, zero_b, factor_a, factor_b, shift, zero, lowest, highest;
} CodeRule;
typedef struct {
  long offset, multiplier, shift, weight_zero;
} CodeChannel;

char clamp_code(long code, const CodeRule rule) {
  return (char)clamp(code + rule.zero, rule.lowest, rule.highest);
}

long round_half_away(long x, int shift) {
  const ulong magnitude = x < 0 ? -(ulong)x : (ulong)x;
  const long quotient = (long)((magnitude + (1UL << (shift - 1))) >> shift);
  return x < 0 ? -quotient : quotient;
}

// What is added up: sums, or codes. What is given: codes, or sums.
#define CODES_IN 1
#define SUMS_OUT 2
#define ONE_CHANNEL 4
#define ROW_SUMS 8

// Element i of `y`, in channel c. The channels lie behind the rule. row_sum: 0 without ROW_SUMS.
void write_requantized(__global char *y, ulong i, long sum, long row_sum,
                       __global const CodeRule *rule, int c, int flags) {
  const CodeChannel channel =
      ((__global const CodeChannel *)(rule + 1))[flags & ONE_CHANNEL ? 0 : c];
  sum += channel.offset - channel.weight_zero * row_sum;
  sum = clamp(sum, -2147483647L, 2147483647L);
  if (flags & SUMS_OUT) {
    ((__global int *)y)[i] = (int)sum;
  } else {
    y[i] = clamp_code(round_half_away(sum * channel.multiplier, (int)channel.shift), *rule);
  }
}

// Products read the exponents of what they multiply.
#define FINISH_CODES(name)                                                   \
  if (get_global_id(0) + get_global_id(1) + get_global_id(2) == 0 &&         \
      name##_at.x != name##_at.y)                                            \
  write_tail(TAIL(name), 0, 0)

// The largest value of a work-group goes to `target`; `slot` is the group's.
void group_max(uint value, __local uint *slot, __global uint *target) {
  if (get_local_id(0) + get_local_id(1) == 0) *slot = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  atomic_max(slot, value);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (get_local_id(0) + get_local_id(1) == 0) atomic_max((volatile __global uint *)target, *slot);
}

// Likewise of 64 bits, for which devices need not have atomics: each group has its own target.
void group_max_wide(ulong value, __local ulong *slots, __global ulong *targets) {
  const uint at = get_local_id(0);
  slots[at] = value;
  for (uint half_size = GROUP / 2; half_size > 0; half_size /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (at < half_size) slots[at] = max(slots[at], slots[at + half_size]);
  }
  if (at == 0) targets[get_group_id(0)] = slots[0];
}

ulong max_of_groups(__global const ulong *targets, uint groups) {
  ulong largest = 0;
  for (uint i = 0; i < groups; ++i) largest = max(largest, targets[i]);
  return largest;
}
