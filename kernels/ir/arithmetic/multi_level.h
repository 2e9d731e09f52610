#pragma once

// Small floats with scales of the tensor and of groups, as kernels/ir/op_traits.inc says of the
// kMultiLevel codes. Backends agree with it to the bit. Pure functions; any thread.
//
// x = sign * T * S * v. T: max|x| of the tensor. S: of the group, max|x| / T made larger to the next
// 2^-e or 1.5 * 2^-e, so that v <= 1. v: of E bits of exponent and M of mantissa: normal numbers in
// [2^-(2^E - 1), 1) and, below, multiples of their least step.

#include <bit>
#include <cmath>
#include <cstdint>

namespace runnel {

// Of a float's normal exponents.
inline float PowerOfTwo(int exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

struct MultiLevelFormat {
  int exponent_bits = 0;
  int mantissa_bits = 0;

  int least_exponent() const { return 1 - (1 << exponent_bits); }
  float largest() const { return 1 - PowerOfTwo(-mantissa_bits - 1); }
};

// share: max|x| of the group over the tensor's, in [0, 1].
inline float GroupScale(float share) {
  if (share == 0) return 0;
  int exponent = 0;
  const float fraction = 2 * std::frexp(share, &exponent);  // [1, 2)
  const float up = fraction == 1 ? 1.0f : (fraction <= 1.5f ? 1.5f : 2.0f);
  return std::ldexp(up, exponent - 1);
}

// v of share = |x| / (T * S), in [0, 1]. u: in [0, 1), a draw, or 1/2 for the nearest (halves up).
inline float MultiLevelValue(float share, float u, const MultiLevelFormat& format) {
  // floor(log2 share), or less where share has no such float.
  int exponent = static_cast<int>(std::bit_cast<uint32_t>(share) >> 23) - 127;
  exponent = exponent > -1 ? -1 : exponent;
  if (exponent < format.least_exponent()) exponent = format.least_exponent();
  const int step = exponent - format.mantissa_bits;
  const float steps = share * PowerOfTwo(-step), below = std::floor(steps);
  // floor(steps + u), without the sum's own rounding.
  const float value = (steps - below >= 1 - u ? below + 1 : below) * PowerOfTwo(step);
  return value > format.largest() ? format.largest() : value;
}

}  // namespace runnel
