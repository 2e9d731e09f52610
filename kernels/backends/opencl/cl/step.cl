// Loss, sums of gradients, update.

__kernel ELEMENTS void add_gradient(TENSOR(from), int is_wide, TENSOR(total), uint count, int first,
                                    __global ulong *targets) {
  __local ulong slots[GROUP];
  const int e_from = TAIL(from)->exponent, e_before = TAIL(total)->exponent;
  const long exponent = first ? e_from : max(e_from, e_before);
  ulong most = 0;
  FOR_ITEMS(i, count) {
    const long added = is_wide ? DATA(const long, from)[i] : (long)DATA(const int, from)[i];
    const long old = first ? 0 : divide_by_power(DATA(long, total)[i], exponent - e_before);
    const long sum = old + divide_by_power(added, exponent - e_from);
    DATA(long, total)[i] = sum;
    most = max(most, (ulong)abs(sum));
  }
  group_max_wide(most, slots, targets);
}

// After add_gradient, whose work-items all read the tail.
__kernel void finish_gradient(TENSOR(from), TENSOR(total), int first, __global const ulong *targets,
                              uint groups) {
  const int e_from = TAIL(from)->exponent;
  const int exponent = first ? e_from : max(e_from, TAIL(total)->exponent);
  write_tail(TAIL(total), exponent, (long)max_of_groups(targets, groups));
}

__kernel ELEMENTS void update(TENSOR(weight), TENSOR(gradient), int is_wide, TENSOR(y), uint count,
                              int gradient_bits, Rule rule) {
  const int b = bits_of(TAIL(gradient)->max_abs);
  const int shift = max(0, b - gradient_bits);
  FOR_QUADS(quad, count) {
    const uint4 draws = rounding_draws(rule, quad);
    FOR_LANES(lane, i, quad, count) {
      const long g = is_wide ? DATA(const long, gradient)[i] : (long)DATA(const int, gradient)[i];
      const long change =
          b == 0 ? 0 : saturate_mantissa(round_by(g, shift, rule, lane_of(draws, lane)));
      DATA(char, y)[i] = saturate_mantissa(DATA(const char, weight)[i] - change);
    }
  }
  if (get_global_id(0) == 0) {
    write_tail(TAIL(y), TAIL(weight)->exponent, TAIL(weight)->max_abs);
  }
}

// log2(e) * logit * 2^e, cut off: see kernels/ir/arithmetic/integer_loss.h.
long power_of_logit(int logit, int e) {
  const long s = logit * 47274 / 32768;
  return e >= 0 ? s * (1L << e) : s / (1L << -e);
}

long softmax_weight(int logit, int e, long largest) {
  if (e <= -7) return (1L << (1 - 2 * e)) + logit * (1L << (1 - e)) + logit * logit;
  const long power = power_of_logit(logit, e) - (largest - 10);
  return (1L << max(0L, power)) - 1;
}

// One work-item a sample.
__kernel ELEMENTS void loss_gradient(TENSOR(logits), TENSOR(labels), TENSOR(y), int samples,
                                     int classes, Rule rule) {
  const int e = clamp(TAIL(logits)->exponent, -24, 24);
  FOR_ITEMS(n, samples) {
    __global const char *row = DATA(const char, logits) + n * classes;
    const int label = DATA(const int, labels)[n];
    int most = row[0];
    for (int j = 1; j < classes; ++j) most = max(most, (int)row[j]);
    const long largest = e <= -7 ? 0 : power_of_logit(most, e);
    long sum = 0, floored = 0;
    for (int j = 0; j < classes; ++j) sum += softmax_weight(row[j], e, largest);
    for (int j = 0; j < classes; ++j) floored += 2048 * softmax_weight(row[j], e, largest) / sum;
    for (int j = 0; j < classes; ++j) {
      long p = 2048 * softmax_weight(row[j], e, largest) / sum;
      if (j == label) p -= floored;
      const uint element = n * classes + j;
      const uint4 draws = rounding_draws(rule, element / 4);
      DATA(char, y)[element] =
          saturate_mantissa(round_by(p, 4, rule, lane_of(draws, element % 4)));
    }
  }
  if (get_global_id(0) == 0) write_tail(TAIL(y), 0, 0);
}
