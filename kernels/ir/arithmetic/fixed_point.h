#pragma once

// The fixed points of WAGEUBN (Yang et al., 2020), as kernels/ir/op_traits.inc says of kFixedPoint,
// kShiftError, kFlagError, the kFixedNorm codes and kFixedUpdate. Backends agree with it to the bit.
// Pure functions; any thread.

#include <bit>
#include <cmath>
#include <cstdint>

namespace runnel {

// Rounds |x| < 2^51 to the nearest integer, halves to even.
inline double NearestInteger(double x) {
  constexpr double kRounder = 0x1.8p52;
  return (x + kRounder) - kRounder;
}

// 2^exponent, |exponent| < 1023. Multiplying with it gives the bits of ldexp, a call for each value.
inline double DoublePowerOfTwo(int exponent) {
  return std::bit_cast<double>(static_cast<int64_t>(1023 + exponent) << 52);
}

// Q(x, bits): the nearest multiple of 2^(1-bits).
inline double FixedValue(double x, int bits) {
  return NearestInteger(x * DoublePowerOfTwo(bits - 1)) * DoublePowerOfTwo(1 - bits);
}

// x to code * down: code is the nearest integer to x * up, halves to even, within +-top. up and down
// are powers of two. NaN stays NaN.
struct StepGrid {
  double up = 1, down = 1, top = 0;

  double CodeOf(float x) const {
    const double code = NearestInteger(x * up);
    return code > top ? top : (code < -top ? -top : code);
  }
  float ValueOf(float x) const { return static_cast<float>(CodeOf(x) * down); }
};
// R * Q(x / R, bits), clipped; R = `power` is a power of two.
inline StepGrid StepsOfPower(double power, int bits) {
  return {std::ldexp(1 / power, bits - 1), std::ldexp(power, 1 - bits),
          std::ldexp(1.0, bits - 1) - 1};
}

// 2^round(log2 largest) for a finite `largest` > 0.
inline double NearestPower(float largest) {
  int exponent = 0;
  const double part = std::frexp(static_cast<double>(largest), &exponent);  // in [1/2, 1)
  constexpr double kRootOfHalf = 0x1.6a09e667f3bcdp-1;
  return std::ldexp(1.0, part < kRootOfHalf ? exponent - 1 : exponent);
}

// Of R = NearestPower: two ranges of `bits` bits each, told apart by a flag.
inline double FlaggedValue(double x, double power, int bits) {
  const double unit = power * DoublePowerOfTwo(1 - bits), u = x * (1 / unit);
  const double top = DoublePowerOfTwo(bits - 1) - 1, code = NearestInteger(u);
  const double fine = FixedValue(u, bits);
  const double coarse = code > top ? top : (code < -top ? -top : code);
  return (std::abs(u) < 1 ? fine : coarse) * unit;
}

// A weight-gradient without its magnitude: codes up to 127 of 2^-14, by a draw u in [0, 1).
inline double ConstantGradient(double x, double power, float u) {
  const double code = std::floor(std::abs(x) / power * 128 + u);
  return std::copysign((code > 127 ? 127 : code) * 0x1p-14, x);
}

}  // namespace runnel
