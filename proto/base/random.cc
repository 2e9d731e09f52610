#include "proto/base/random.h"

#include <cmath>

namespace runnel {
namespace {

// splitmix64's finalizer: each input bit reaches each output bit.
uint64_t Mix(uint64_t z) {
  z += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// Logarithm and cosine from additions, multiplications, divisions and exact fused ones, which IEEE
// 754 rounds the same everywhere: a C library's own differ in their last bits between processors,
// and workers of different kinds must draw the same weights. Both are within two units of the last
// place.

// Logarithm of u in (0, 1], not subnormal.
double NaturalLog(double u) {
  constexpr double kLn2High = 0x1.62e42fefa38p-1;  // its product with an exponent is exact
  constexpr double kLn2Low = 0x1.ef35793c7673p-45;
  constexpr double kSqrtHalf = 0.70710678118654752440;
  constexpr int kTerms = 12;
  int exponent = 0;
  double m = std::frexp(u, &exponent);  // exact, in [1/2, 1)
  if (m < kSqrtHalf) {
    m *= 2;
    --exponent;
  }
  // log m = 2 atanh(s), |s| < 0.172.
  const double s = (m - 1) / (m + 1);
  const double s2 = s * s;
  double sum = 0;
  for (int k = kTerms; k >= 1; --k) sum = (sum + 1.0 / (2 * k + 1)) * s2;
  const double e = exponent;
  return e * kLn2High + (2 * s + (2 * s * sum + e * kLn2Low));
}

// cos(a), where a is the product of kTwoPi and v in [0, 1) rounded to double.
double CosOfTurns(double v) {
  constexpr double kTwoPi = 6.283185307179586476925286766559;
  constexpr double kTwoPiLow = 2.4492935982947064e-16;  // 2 pi - kTwoPi
  const double a = kTwoPi * v;
  // 2 pi v - a: the part that rounding lost.
  const double lost = std::fma(kTwoPi, v, -a) + kTwoPiLow * v;
  const double quarter = std::floor(4 * v + 0.5);  // 0..4
  const double x = kTwoPi * (v - quarter * 0.25) - lost;
  const double x2 = x * x;
  const bool is_sine = quarter == 1 || quarter == 3;
  // Taylor's series on an eighth of a turn.
  double sum = 1;
  for (int k = is_sine ? 17 : 18; k >= 2; k -= 2) sum = 1 - sum * x2 / (k * (k - 1));
  if (is_sine) sum *= x;
  return quarter == 1 || quarter == 2 ? -sum : sum;
}

}  // namespace

CounterRandom::CounterRandom(uint64_t run_seed, RandomPurpose purpose, uint64_t index,
                             uint64_t sequence) {
  uint64_t key = Mix(run_seed);
  key = Mix(key ^ static_cast<uint64_t>(purpose));
  key = Mix(key ^ index);
  key_ = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
  sequence_ = {static_cast<uint32_t>(sequence), static_cast<uint32_t>(sequence >> 32)};
}

double CounterRandom::Normal(uint64_t element) const {
  // (0, 1]: the logarithm stays finite.
  const double u = (static_cast<double>(Bits(2 * element)) + 1.0) * 0x1p-32;
  const double v = static_cast<double>(Bits(2 * element + 1)) * 0x1p-32;
  return std::sqrt(-2.0 * NaturalLog(u)) * CosOfTurns(v);
}

}  // namespace runnel
