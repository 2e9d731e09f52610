#pragma once

// Sums of products back to codes, in integers alone (arXiv 1712.05877, 2.2): a real factor as a
// 31-bit multiplier and a shift, one rounding, to the nearest, halves away from zero.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/ir/arithmetic/integer_math.h"

namespace runnel::inference {

// factor = multiplier * 2^-shift. multiplier in 0..2^31 - 1, shift in 1..62.
struct Factor {
  int32_t multiplier = 0;
  int32_t shift = 1;
  friend bool operator==(const Factor&, const Factor&) = default;
};

// The nearest one; below 2^-32 it is 0, from 2^30 on the largest there is. real >= 0.
inline Factor FactorOf(double real) {
  int exponent = 0;
  const double fraction = std::frexp(real, &exponent);  // [1/2, 1)
  int64_t multiplier = std::llround(std::ldexp(fraction, 31));
  if (multiplier == int64_t{1} << 31) {
    multiplier /= 2;
    ++exponent;
  }
  const int shift = 31 - exponent;
  if (shift > 62 || multiplier == 0) return {0, 1};
  if (shift < 1) return {INT32_MAX, 1};
  return {static_cast<int32_t>(multiplier), shift};
}

// The nearest one that a float has, so that kernels may multiply floats and round once.
inline Factor FloatFactorOf(double real) {
  return FactorOf(static_cast<float>(std::min(real, 1e30)));
}

inline int32_t SaturateSum(int64_t sum) {
  return static_cast<int32_t>(std::clamp<int64_t>(sum, -INT32_MAX, INT32_MAX));
}

// sum * factor, rounded. |sum| < 2^31.
inline int64_t Multiply(int64_t sum, const Factor& factor) {
  return RoundHalfAway(sum * factor.multiplier, factor.shift);
}

inline int8_t ClampCode(int64_t code, int32_t lowest, int32_t highest) {
  return static_cast<int8_t>(std::clamp<int64_t>(code, lowest, highest));
}

}  // namespace runnel::inference
