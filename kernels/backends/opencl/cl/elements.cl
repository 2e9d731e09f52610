// Element-wise instructions of integer recipes. One work-item does four elements.

// A finite float as its magnitude: NaN counts as 0, an infinite value as the largest float.
uint finite_magnitude(uint bits) {
  const uint magnitude = MAGNITUDE(bits);
  if (magnitude > INFINITE) return 0;
  return min(magnitude, 0x7f7fffffu);
}

int ceil_log2(uint magnitude) {
  const uint mantissa = mantissa_of(magnitude);
  const int top = 31 - (int)clz(mantissa);
  const int power = exponent_of(magnitude) - 150 + top;
  return (mantissa & (mantissa - 1)) == 0 ? power : power + 1;
}

__kernel ELEMENTS void quantize_max(TENSOR(x), uint count, __global uint *largest) {
  __local uint slot;
  uint most = 0;
  FOR_ITEMS(i, count) most = max(most, finite_magnitude(DATA(const uint, x)[i]));
  group_max(most, &slot, largest);
}

// round(127 * x / largest), halves away from zero: the quotient of two integers. No float is
// computed with: devices may lack doubles, and may take small floats for zero.
uint scaled_full_range(uint magnitude, uint largest) {
  const int shift = exponent_of(largest) - exponent_of(magnitude);
  if (shift > 34) return 0;
  const ulong divisor = (ulong)mantissa_of(largest) << shift;
  return (uint)((254UL * mantissa_of(magnitude) + divisor) / (2 * divisor));
}

// round(x * 2^-exponent), likewise.
uint scaled_power_of_two(uint magnitude, int exponent) {
  const int shift = exponent - (exponent_of(magnitude) - 150);
  if (shift <= 0) return mantissa_of(magnitude) << -shift;
  return shift > 26 ? 0 : (mantissa_of(magnitude) + (1u << (shift - 1))) >> shift;
}

__kernel ELEMENTS void quantize(TENSOR(x), TENSOR(y), uint count, Rule rule,
                                __global const uint *largest_magnitude) {
  const uint largest = *largest_magnitude;
  const int exponent = largest == 0 ? 0 : ceil_log2(largest) - 7;
  FOR_ITEMS(i, count) {
    const uint bits = DATA(const uint, x)[i];
    const uint magnitude = finite_magnitude(bits);
    uint scaled = 0;
    if (largest != 0) {
      scaled = rule.power_of_two ? scaled_power_of_two(magnitude, exponent)
                                 : scaled_full_range(magnitude, largest);
    }
    const int mantissa = (int)min(scaled, 127u);
    DATA(char, y)[i] = (char)(bits >> 31 ? -mantissa : mantissa);
  }
  if (get_global_id(0) == 0) write_tail(TAIL(y), exponent, 0);
}

// mask: absent where has_mask is 0
__kernel ELEMENTS void rescale(TENSOR(sums), TENSOR(mask), int has_mask, TENSOR(y), uint count,
                               Rule rule) {
  int shift = max(0, bits_of(TAIL(sums)->max_abs) - 7);
  if (shift == 1 && rule.promote_one_to_two) shift = 2;
  FOR_QUADS(quad, count) {
    const uint4 draws = rounding_draws(rule, quad);
    FOR_LANES(lane, i, quad, count) {
      char value =
          saturate_mantissa(round_by(DATA(const int, sums)[i], shift, rule, lane_of(draws, lane)));
      if (rule.relu && value < 0) value = 0;
      if (has_mask && DATA(const char, mask)[i] <= 0) value = 0;
      DATA(char, y)[i] = value;
    }
  }
  if (get_global_id(0) == 0) write_tail(TAIL(y), TAIL(sums)->exponent + shift, 0);
}

__kernel ELEMENTS void relu(TENSOR(x), TENSOR(y), uint count) {
  FOR_ITEMS(i, count) DATA(char, y)[i] = max(DATA(const char, x)[i], (char)0);
  if (get_global_id(0) == 0) write_tail(TAIL(y), TAIL(x)->exponent, 0);
}

__kernel ELEMENTS void relu_gradient(TENSOR(dy), TENSOR(y), TENSOR(dx), uint count) {
  FOR_ITEMS(i, count) {
    DATA(char, dx)[i] = DATA(const char, y)[i] > 0 ? DATA(const char, dy)[i] : (char)0;
  }
  if (get_global_id(0) == 0) write_tail(TAIL(dx), TAIL(dy)->exponent, 0);
}

__kernel ELEMENTS void dropout(TENSOR(x), TENSOR(y), uint count, Rule rule) {
  FOR_QUADS(quad, count) {
    const uint4 draws = draws_of(rule, quad);
    FOR_LANES(lane, i, quad, count) {
      const bool kept = (lane_of(draws, lane) >> 8) >= rule.threshold;
      DATA(char, y)[i] = kept ? DATA(const char, x)[i] : (char)0;
    }
  }
  if (get_global_id(0) == 0) write_tail(TAIL(y), TAIL(x)->exponent + rule.added_exponent, 0);
}

// Sum of two tensors in four steps, since the sum may lie where an operand does: all that later
// steps need of the tails is kept in a plan.
typedef struct {
  uint max_a, max_b, max_sum;
  int exponent_a, exponent_b;
} AddPlan;

__kernel void add_begin(TENSOR(a), TENSOR(b), __global AddPlan *plan) {
  plan->max_a = plan->max_b = plan->max_sum = 0;
  plan->exponent_a = TAIL(a)->exponent;
  plan->exponent_b = TAIL(b)->exponent;
}

__kernel ELEMENTS void add_maxima(TENSOR(a), TENSOR(b), uint count, __global AddPlan *plan) {
  __local uint slot_a, slot_b;
  uint most_a = 0, most_b = 0;
  FOR_ITEMS(i, count) {
    most_a = max(most_a, (uint)abs((int)DATA(const char, a)[i]));
    most_b = max(most_b, (uint)abs((int)DATA(const char, b)[i]));
  }
  group_max(most_a, &slot_a, &plan->max_a);
  group_max(most_b, &slot_b, &plan->max_b);
}

// Of an operand of zeros the other one's exponent is taken.
int2 resolved_exponents(__global const AddPlan *plan) {
  int2 e = (int2)(plan->exponent_a, plan->exponent_b);
  if (plan->max_a == 0) e.x = e.y;
  if (plan->max_b == 0) e.y = e.x;
  return e;
}

// above: so many bits the operand's exponent lies above the other's
long aligned(long value, int above, const Rule rule, uint bits) {
  if (above == 1) return 2 * value;
  if (above < -1) return round_by(value, min(-above, 31), rule, bits);
  return value;
}

long sum_of(long a, long b, int difference, const Rule rule, uint bits) {
  return aligned(a, difference, rule, bits) + aligned(b, -difference, rule, bits);
}

__kernel ELEMENTS void add_sums(TENSOR(a), TENSOR(b), uint count, Rule rule,
                                __global AddPlan *plan) {
  __local uint slot;
  const int2 e = resolved_exponents(plan);
  uint most = 0;
  FOR_QUADS(quad, count) {
    const uint4 draws = rounding_draws(rule, quad);
    FOR_LANES(lane, i, quad, count) {
      const long sum = sum_of(DATA(const char, a)[i], DATA(const char, b)[i], e.x - e.y, rule,
                              lane_of(draws, lane));
      most = max(most, (uint)abs((int)sum));
    }
  }
  group_max(most, &slot, &plan->max_sum);
}

__kernel ELEMENTS void add_write(TENSOR(a), TENSOR(b), TENSOR(y), uint count, Rule rule,
                                 __global const AddPlan *plan) {
  const int2 e = resolved_exponents(plan);
  const int shift = plan->max_sum > 127 ? 2 : 0;
  FOR_QUADS(quad, count) {
    const uint4 draws = rounding_draws(rule, quad);
    FOR_LANES(lane, i, quad, count) {
      const uint bits = lane_of(draws, lane);
      const long sum =
          sum_of(DATA(const char, a)[i], DATA(const char, b)[i], e.x - e.y, rule, bits);
      DATA(char, y)[i] = saturate_mantissa(round_by(sum, shift, rule, bits));
    }
  }
  if (get_global_id(0) == 0) {
    const int exponent = abs(e.x - e.y) == 1 ? min(e.x, e.y) : max(e.x, e.y);
    write_tail(TAIL(y), exponent + shift, 0);
  }
}
