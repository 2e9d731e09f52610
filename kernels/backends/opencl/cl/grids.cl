// Fake quantisation, as kernels/ir/arithmetic/fake_quantize.h says of single values. Codes are ref's. The largest
// value and the sums over all weights come from launches of their own before they are needed.

// What such launches have found of a tensor of weights.
typedef struct {
  uint largest;  // bits of max|w|; a NaN's are above all others
  uint first;    // index of the first weight that has it
} Weights;

// The grid of a sample's errors (ErrorGrid).
typedef struct {
  uint largest;  // bits of max|dy|
  float scale, step;
} Errors;

// A sum and what its roundings have lost.
float2 add_exactly(float2 a, float2 b) {
  const float sum = a.x + b.x;
  const float added = sum - a.x;
  return (float2)(sum, a.y + b.y + ((a.x - (sum - added)) + (b.x - added)));
}

// Of all items of a group, for all of them.
float2 exact_sum_of_group(float2 value, __local float2 *slots) {
  const uint at = get_local_id(0);
  slots[at] = value;
  for (uint half_size = GROUP / 2; half_size > 0; half_size /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (at < half_size) slots[at] = add_exactly(slots[at], slots[at + half_size]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  return slots[0];
}

float sum_of_partials(__global const float2 *partials, uint count, __local float2 *slots) {
  float2 sum = (float2)(0);
  for (uint i = get_local_id(0); i < count; i += GROUP) sum = add_exactly(sum, partials[i]);
  sum = exact_sum_of_group(sum, slots);
  return sum.x + sum.y;
}

__kernel ELEMENTS void largest_weight(TENSOR(w), uint count, __global Weights *found) {
  __local uint slot;
  uint most = 0;
  FOR_ITEMS(i, count) most = max(most, MAGNITUDE(DATA(const uint, w)[i]));
  group_max(most, &slot, &found->largest);
}

__kernel ELEMENTS void tanh_grid(TENSOR(w), TENSOR(v), uint count, float steps, float unit,
                                 __global const Weights *found) {
  const float largest = tanh(as_float(found->largest));
  FOR_ITEMS(i, count) {
    const float t = tanh(DATA(const float, w)[i]);
    const float code = rint(steps * (largest == 0 ? 0.5f : t / (2 * largest) + 0.5f));
    DATA(float, v)[i] = (2 * code - steps) * unit;
  }
}

__kernel ELEMENTS void weight_magnitudes(TENSOR(w), uint count, __global float2 *partials) {
  __local float2 slots[GROUP];
  float2 sum = (float2)(0);
  FOR_ITEMS(i, count) sum = add_exactly(sum, (float2)(fabs(DATA(const float, w)[i]), 0));
  sum = exact_sum_of_group(sum, slots);
  if (get_local_id(0) == 0) partials[get_group_id(0)] = sum;
}

__kernel ELEMENTS void sign_mean(TENSOR(w), TENSOR(v), uint count, __global const float2 *partials,
                                 uint groups) {
  __local float2 slots[GROUP];
  const float mean = sum_of_partials(partials, groups, slots) / (float)count;
  FOR_ITEMS(i, count) DATA(float, v)[i] = DATA(const float, w)[i] < 0 ? -mean : mean;
}

// The sum of dv * tanh(w), and where the first of the largest weights is.
__kernel ELEMENTS void tanh_sums(TENSOR(dv), TENSOR(w), uint count, __global Weights *found,
                                 __global float2 *partials) {
  __local float2 slots[GROUP];
  float2 sum = (float2)(0);
  FOR_ITEMS(i, count) {
    const float w = DATA(const float, w)[i];
    sum = add_exactly(sum, (float2)(DATA(const float, dv)[i] * tanh(w), 0));
    if (MAGNITUDE(as_uint(w)) == found->largest) atomic_min((volatile __global uint *)&found->first, i);
  }
  sum = exact_sum_of_group(sum, slots);
  if (get_local_id(0) == 0) partials[get_group_id(0)] = sum;
}

__kernel ELEMENTS void tanh_gradient(TENSOR(dv), TENSOR(w), TENSOR(dw), uint count, int adds,
                                     __global const Weights *found,
                                     __global const float2 *partials, uint groups) {
  __local float2 slots[GROUP];
  const float largest = tanh(as_float(found->largest));
  const float inverse = largest == 0 ? 0 : 1 / largest;
  const float through_largest = sum_of_partials(partials, groups, slots) * inverse * inverse;
  FOR_ITEMS(i, count) {
    const float t = tanh(DATA(const float, w)[i]);
    float dt = DATA(const float, dv)[i] * inverse;
    if (i == found->first) dt -= t < 0 ? -through_largest : through_largest;
    const float dw = dt * (1 - t * t);
    DATA(float, dw)[i] = adds ? DATA(float, dw)[i] + dw : dw;
  }
}

__kernel ELEMENTS void unit_grid(TENSOR(x), TENSOR(y), uint count, float steps, float unit) {
  FOR_ITEMS(i, count) {
    const float x = READ(x, i);
    // Bits, for a comparison with a NaN is what some compilers leave out.
    const bool is_nan = MAGNITUDE(as_uint(x)) > INFINITE;
    WRITE(y, i, is_nan ? x : rint(clamp(x * steps, 0.0f, steps) + 0.0f) * unit);
  }
}

__kernel ELEMENTS void unit_gradient(TENSOR(dy), TENSOR(x), TENSOR(dx), uint count) {
  FOR_ITEMS(i, count) {
    const float x = READ(x, i);
    DATA(float, dx)[i] = x < 0 || x > 1 ? 0 : DATA(const float, dy)[i];
  }
}

// Of a sample, `groups` of them each.
__kernel ELEMENTS void largest_errors(TENSOR(dy), uint size, uint groups, __global Errors *errors) {
  __local uint slot;
  const uint n = get_group_id(0) / groups, share = get_group_id(0) % groups;
  __global const uint *dy = DATA(const uint, dy) + n * size;
  uint most = 0;
  for (uint i = share * GROUP + get_local_id(0); i < size; i += groups * GROUP)
    most = max(most, MAGNITUDE(dy[i]));
  group_max(most, &slot, &errors[n].largest);
}

// a / b, rounded to the nearest, of floats above 0 whose quotient is no small or infinite one:
// devices may divide less exactly, and codes would differ.
float quotient_of(float a, float b) {
  const uint left = as_uint(a), right = as_uint(b);
  const ulong scaled = (ulong)mantissa_of(left) << 26;
  ulong quotient = scaled / mantissa_of(right);  // 26 or 27 bits
  if (quotient * mantissa_of(right) != scaled) quotient |= 1;
  const int dropped = 40 - (int)clz(quotient);
  quotient = (quotient + (1UL << (dropped - 1)) - 1 + (quotient >> dropped & 1)) >> dropped;
  const int exponent = exponent_of(left) - exponent_of(right) + dropped + 124;
  return as_float(((uint)exponent << 23) + ((uint)quotient - 0x800000u));
}

__kernel ELEMENTS void error_grids(__global Errors *errors, uint samples, int steps) {
  FOR_ITEMS(n, samples) {
    const float largest = as_float(errors[n].largest);
    // Scale 0: the sample stays as it is.
    const bool is_used = errors[n].largest >= as_uint(1e-30f) && errors[n].largest < INFINITE;
    errors[n].scale = is_used ? quotient_of((float)(steps << 19), largest) : 0;
    errors[n].step = is_used ? quotient_of(largest, (float)steps) : 0;
  }
}

__kernel ELEMENTS void error_codes(TENSOR(dy), TENSOR(y), uint count, uint size, int steps,
                                   Rule rule, __global const Errors *errors) {
  FOR_QUADS(quad, count) {
    const uint4 draws = draws_of(rule, quad);
    FOR_LANES(lane, i, quad, count) {
      const Errors grid = errors[i / size];
      const float dy = DATA(const float, dy)[i];
      const int point = grid.scale == 0 ? 0 : (int)(dy * grid.scale);
      const int draw = (int)(lane_of(draws, lane) >> 12);
      const int code = clamp((point + (steps << 19) + draw) >> 20, 0, steps);
      DATA(float, y)[i] = grid.scale == 0 ? dy : (float)(2 * code - steps) * grid.step;
    }
  }
}
