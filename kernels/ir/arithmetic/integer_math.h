#pragma once

// Scalar rules of integer recipes (NITI): size of a sum, shift, rounding. kernels/backends/ref computes with
// them, faster backends must agree and use them for the ends of their loops. Any thread.

#include <algorithm>
#include <bit>
#include <cstdint>

#include "proto/base/model/number_format.h"

namespace runnel {

inline constexpr int kMantissaMax = 127;
// bits(M): 0 for M <= 1, else ceil(log2 M); exact. max_abs >= 0.
inline int BitsOf(int64_t max_abs) {
  return max_abs <= 1 ? 0 : 64 - std::countl_zero(static_cast<uint64_t>(max_abs - 1));
}

// By how many bits sums with this maximum are rescaled: kRescale.
inline int RescaleShift(int64_t max_abs, bool promote_one_to_two) {
  const int shift = BitsOf(max_abs) > 7 ? BitsOf(max_abs) - 7 : 0;
  return shift == 1 && promote_one_to_two ? 2 : shift;
}

inline int8_t SaturateMantissa(int64_t value) {
  return static_cast<int8_t>(std::clamp<int64_t>(value, -kMantissaMax, kMantissaMax));
}

// PSR(x, s), s in 1..62, without the saturation: x / 2^s towards zero, one further from zero iff
// the upper half of the residue's bits is more than its lower half (6.1).
inline int64_t RoundPseudoStochastic(int64_t x, int s) {
  const int64_t magnitude = x < 0 ? -x : x;
  const int64_t residue = magnitude & ((int64_t{1} << s) - 1);
  const int half = s / 2;
  const int64_t high = residue >> half;
  const int64_t low = (residue & ((int64_t{1} << half) - 1)) << (s % 2);
  const int64_t quotient = (magnitude >> s) + (high > low ? 1 : 0);
  return x < 0 ? -quotient : quotient;
}

// Half away from zero (6.2), s in 1..62.
inline int64_t RoundHalfAway(int64_t x, int s) {
  const int64_t magnitude = x < 0 ? -x : x;
  const int64_t quotient = (magnitude + (int64_t{1} << (s - 1))) >> s;
  return x < 0 ? -quotient : quotient;
}

// True stochastic (6.3), s in 1..62: away from zero iff the residue is over the draw, uniform in
// 0..2^s - 1.
inline int64_t RoundStochastic(int64_t x, int s, uint64_t draw) {
  const int64_t magnitude = x < 0 ? -x : x;
  const auto residue = static_cast<uint64_t>(magnitude & ((int64_t{1} << s) - 1));
  const int64_t quotient = (magnitude >> s) + (residue > draw ? 1 : 0);
  return x < 0 ? -quotient : quotient;
}

// x / 2^s towards zero, s >= 0; 0 for s > 62.
inline int64_t DivideByPower(int64_t x, int64_t s) {
  if (s > 62) return 0;
  return x / (int64_t{1} << s);
}

}  // namespace runnel
