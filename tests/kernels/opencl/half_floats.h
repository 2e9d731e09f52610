#pragma once

// Halves (IEEE 754 binary16) for tests, in double arithmetic.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace runnel {

// To the nearest half, ties to even: 11 bits, the last one not below 2^-24; beyond 65504 infinite.
inline double RoundToHalf(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int last = std::max(std::ilogb(value) - 10, -24);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -last)), last);
  return std::abs(rounded) > 65504 ? std::copysign(std::numeric_limits<double>::infinity(), rounded)
                                   : rounded;
}

// Of a value that is a half.
inline uint16_t HalfBits(float half) {
  const auto sign = static_cast<uint16_t>(std::signbit(half) ? 0x8000 : 0);
  const double magnitude = std::abs(half);
  if (std::isnan(half)) return 0x7e00;
  if (std::isinf(half)) return sign | 0x7c00;
  if (magnitude < 0x1p-14) return sign | static_cast<uint16_t>(magnitude * 0x1p24);
  const int exponent = std::ilogb(magnitude);
  const auto fraction = static_cast<int>(std::ldexp(magnitude, 10 - exponent)) - 1024;
  return static_cast<uint16_t>(sign | (exponent + 15) << 10 | fraction);
}

inline float HalfOf(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double magnitude =
      exponent == 0 ? fraction * 0x1p-24 : std::ldexp(1024 + fraction, exponent - 25);
  if (exponent == 31) {
    magnitude = fraction == 0 ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
  }
  return static_cast<float>((bits & 0x8000) != 0 ? -magnitude : magnitude);
}

}  // namespace runnel
