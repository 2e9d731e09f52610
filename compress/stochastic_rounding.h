#pragma once

// Stochastic rounding of one element (AccEPT 3.3, equation 7): the rule
// that all instruction sets follow, with the uniform as an input.

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace runnel {

// Below this scale, scale * 2^-24 is not exact and max|g| / scale may exceed the limit by more than
// a rounding.
inline constexpr float kSmallScale = 0x1p-100f;

// floor(g / scale + u), clamped to +-limit (127 or 7), with u = u24 / 2^24. g is finite, scale > 0.
//
// The quotient is g * 2^24 / scale, rounded once to FP32: g / scale in units of 2^-24, of which u
// is a multiple. So its floor and u24 add up in integers, exactly: the sum is never rounded up to
// the next whole q. Clamping first changes nothing (u < 1) and keeps the sum within 32 bits:
// 127 * 2^24 + 2^24 - 1 = 2^31 - 1.
inline int32_t StochasticQuantize(float g, float scale, int32_t limit, uint32_t u24) {
  const float bound = static_cast<float>(limit) * 0x1p24f;
  // The power of two stands where it is exact.
  const float quotient = scale < kSmallScale ? g * 0x1p24f / scale : g / (scale * 0x1p-24f);
  const float fixed = std::floor(std::max(-bound, std::min(bound, quotient)));
  return (static_cast<int32_t>(fixed) + static_cast<int32_t>(u24)) >> 24;
}

}  // namespace runnel
