#pragma once

// Numbers of the primitives and how one term is added to a sum. Freestanding: no heap, no exception,
// no library function.
//
// || float: one fused multiply-add where the processor has one (kFuses), else the product is rounded,
// then the sum.
// || F16 and Bf16 with FP32 sums: the product is exact, the sum is rounded once.
// || F16 and Bf16 with sums of their own type: as fused multiply-adds of that type, rounded once.
// All roundings are to nearest even. Subnormal numbers count unless the caller has told the
// processor to take them for 0.

#include <bit>
#include <cstddef>
#include <cstdint>

#if defined(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC)
#include <arm_neon.h>
#endif

namespace runnel::small {

#if defined(__FP_FAST_FMAF)
inline constexpr bool kFuses = true;
#else
inline constexpr bool kFuses = false;
#endif

struct F16 {  // IEEE 754 binary16
  uint16_t code = 0;
};
struct Bf16 {  // the upper half of FP32
  uint16_t code = 0;
};

inline float ValueOf(float x) { return x; }
inline float ValueOf(Bf16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.code) << 16); }
inline float ValueOf(F16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.code & 0x8000u) << 16;
  const uint32_t exponent = x.code & 0x7C00u, magnitude = x.code & 0x7FFFu;
  if (exponent == 0) {
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
  }
  const uint32_t lift = exponent == 0x7C00u ? (255u - 31u) << 23 : (127u - 15u) << 23;
  return std::bit_cast<float>(sign | ((magnitude << 13) + lift));
}

// An exact value, or one rounded to odd with at least two bits more than the result -> the code of a
// float of kExponent and kMantissa bits.
template <int kExponent, int kMantissa>
[[gnu::noinline]] uint16_t CodeOf(double value) {
  constexpr int kBias = (1 << (kExponent - 1)) - 1;
  constexpr uint32_t kInfinity = ((1u << kExponent) - 1) << kMantissa;
  const auto bits = std::bit_cast<uint64_t>(value);
  const auto sign = static_cast<uint32_t>(bits >> 63) << 15;
  const uint64_t magnitude = bits & ~(uint64_t{1} << 63);
  constexpr uint64_t kDoubleInfinity = uint64_t{0x7FF} << 52;
  if (magnitude > kDoubleInfinity)
    return static_cast<uint16_t>(sign | kInfinity | (1u << (kMantissa - 1)));
  const int exponent = static_cast<int>(magnitude >> 52) - 1023;
  if (exponent > kBias) return static_cast<uint16_t>(sign | kInfinity);
  const uint64_t fraction = (magnitude & ((uint64_t{1} << 52) - 1)) | uint64_t{1} << 52;
  const int below = exponent < 1 - kBias ? 1 - kBias - exponent : 0;
  const int drop = 52 - kMantissa + below;
  if (drop > 60) return static_cast<uint16_t>(sign);
  const uint64_t kept =
      (fraction + (uint64_t{1} << (drop - 1)) - 1 + (fraction >> drop & 1)) >> drop;
  // `kept` has the implied bit, which raises the exponent by one.
  const auto base = static_cast<uint32_t>(below > 0 ? 0 : exponent + kBias - 1) << kMantissa;
  const uint32_t code = base + static_cast<uint32_t>(kept);
  return static_cast<uint16_t>(sign | (code < kInfinity ? code : kInfinity));
}

template <class T>
T Rounded(double value);
template <>
inline F16 Rounded(double value) {
  return {CodeOf<5, 10>(value)};
}
template <>
inline Bf16 Rounded(double value) {
  return {CodeOf<8, 7>(value)};
}

// a + b rounded to odd: what is rounded again, to fewer bits, is as if rounded once.
inline double SumToOdd(double a, double b) {
  const double sum = a + b;
  const double b_part = sum - a;
  const double error = (a - (sum - b_part)) + (b - b_part);
  const auto bits = std::bit_cast<uint64_t>(sum);
  const bool is_finite = (bits >> 52 & 0x7FF) != 0x7FF;
  if (!is_finite || error == 0 || (bits & 1) != 0) return sum;
  return std::bit_cast<double>((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
}

// Rules: Element, Sum, Add (one term) and Join (two sums).

struct Float32Rule {
  using Element = float;
  using Sum = float;
  static float Add(float sum, float a, float b) {
#if defined(__FP_FAST_FMAF)
    return __builtin_fmaf(a, b, sum);
#else
    return sum + a * b;
#endif
  }
  static float Join(float a, float b) { return a + b; }
};

// FP32 sums.
template <class T>
struct WideRule;
template <>
struct WideRule<F16> {
  using Element = F16;
  using Sum = float;
  // 22 bits: the product is exact.
  static float Add(float sum, F16 a, F16 b) { return sum + ValueOf(a) * ValueOf(b); }
  static float Join(float a, float b) { return a + b; }
};
template <>
struct WideRule<Bf16> {
  using Element = Bf16;
  using Sum = float;
  // Exponents of a product may exceed FP32's. A double holds it, and rounding its sum twice is
  // rounding it once: 53 bits are more than twice 24 and two.
  static float Add(float sum, Bf16 a, Bf16 b) {
#if defined(__FP_FAST_FMAF)
    return __builtin_fmaf(ValueOf(a), ValueOf(b), sum);
#else
    return static_cast<float>(static_cast<double>(ValueOf(a)) * ValueOf(b) + sum);
#endif
  }
  static float Join(float a, float b) { return a + b; }
};

// Sums of the elements' type.
template <class T>
struct NarrowRule {
  using Element = T;
  using Sum = T;
  static T Add(T sum, T a, T b) {
    const double product = static_cast<double>(ValueOf(a)) * ValueOf(b);  // exact
    return Rounded<T>(SumToOdd(product, ValueOf(sum)));
  }
  static T Join(T a, T b) { return Rounded<T>(SumToOdd(ValueOf(a), ValueOf(b))); }
};

// Two sums side by side: of the terms of even and of odd k.
template <class Rule>
struct Lanes {
  using Sum = typename Rule::Sum;

  Sum even = {}, odd = {};

  // Two terms.
  void Add(const typename Rule::Element* a, const typename Rule::Element* b) {
    even = Rule::Add(even, a[0], b[0]);
    odd = Rule::Add(odd, a[1], b[1]);
  }
  Sum Joined() const { return Rule::Join(even, odd); }
};

#if defined(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC)
// FP16 arithmetic of the processor: a pair is one load, its terms are one multiply-add.
template <>
struct Lanes<NarrowRule<F16>> {
  float16x4_t lanes = vdup_n_f16(0);

  static float16x4_t Load(const F16* pair) {
    uint32_t codes = 0;
    __builtin_memcpy(&codes, pair, sizeof(codes));
    return vreinterpret_f16_u32(vset_lane_u32(codes, vdup_n_u32(0), 0));
  }
  void Add(const F16* a, const F16* b) { lanes = vfma_f16(lanes, Load(a), Load(b)); }
  F16 Joined() const {
    uint16_t codes[4];
    vst1_u16(codes, vreinterpret_u16_f16(lanes));
    return NarrowRule<F16>::Join({codes[0]}, {codes[1]});
  }
};
#endif

}  // namespace runnel::small
