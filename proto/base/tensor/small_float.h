#pragma once

// Floats of 16 and of 8 bits: the rows f16, bf16, e4m3 and e5m2 of the number types. Any thread.
//
//   format     sign/exponent/mantissa  largest  what is no number
//   f16        1/5/10                  65504    IEEE 754 binary16
//   bf16       1/8/7                   3.39e38  the upper half of FP32
//   e4m3       1/4/3                   448      NaN alone: code 7F (OCP 8-bit floating point)
//   e5m2       1/5/2                   57344    infinity 7C, NaN 7D to 7F

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/types/span.h"

namespace runnel {

struct SmallFloat {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity = true;  // else the largest exponent has values too, but for one NaN
  bool saturates = false;    // finite values beyond the largest one become it; else infinite

  constexpr int bits() const { return 1 + exponent_bits + mantissa_bits; }
  constexpr uint32_t bias() const { return (1u << (exponent_bits - 1)) - 1; }
  constexpr uint32_t sign() const { return 1u << (bits() - 1); }
  constexpr uint32_t top_exponent() const { return (1u << exponent_bits) - 1; }
  constexpr uint32_t infinity() const { return top_exponent() << mantissa_bits; }
  constexpr uint32_t nan() const {
    return has_infinity ? infinity() | 1u << (mantissa_bits - 1) : sign() - 1;
  }
  constexpr uint32_t largest() const { return (has_infinity ? infinity() : nan()) - 1; }
};

inline constexpr SmallFloat kHalfFormat = {5, 10};
inline constexpr SmallFloat kBFloat16Format = {8, 7};
inline constexpr SmallFloat kE4M3Format = {
    .exponent_bits = 4, .mantissa_bits = 3, .has_infinity = false, .saturates = true};
inline constexpr SmallFloat kE5M2Format = {
    .exponent_bits = 5, .mantissa_bits = 2, .saturates = true};

// Exact.
template <SmallFloat kFormat>
float ToFloat(uint32_t code) {
  constexpr int kDrop = 23 - kFormat.mantissa_bits;
  const uint32_t sign = (code & kFormat.sign()) << (32 - kFormat.bits());
  const uint32_t magnitude = code & (kFormat.sign() - 1);
  if (kFormat.has_infinity ? magnitude >= kFormat.infinity() : magnitude == kFormat.nan())
    return std::bit_cast<float>(sign | 0x7F800000u |
                                (magnitude == kFormat.infinity() ? 0 : magnitude << kDrop));
  if (magnitude >> kFormat.mantissa_bits == 0) {  // zero, subnormal
    constexpr double kUnit =
        std::bit_cast<double>(uint64_t{1023 + 1 - kFormat.bias() - kFormat.mantissa_bits} << 52);
    const auto value = static_cast<float>(magnitude * kUnit);
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
  return std::bit_cast<float>(sign | ((magnitude << kDrop) + ((127 - kFormat.bias()) << 23)));
}

// To nearest even. NaN stays NaN; infinity too where there is one, else it becomes NaN.
template <SmallFloat kFormat>
uint32_t FromFloat(float value) {
  constexpr uint32_t kDrop = 23 - kFormat.mantissa_bits;
  constexpr uint32_t kLowest = 128 - kFormat.bias();  // FP32's exponent of the least normal value
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> (32 - kFormat.bits()) & kFormat.sign();
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  const auto shift_to_even = [](uint32_t x, uint32_t shift) {
    return (x + (uint32_t{1} << (shift - 1)) - 1 + (x >> shift & 1)) >> shift;
  };
  if (magnitude > 0x7F800000) return sign | kFormat.nan();
  if (magnitude == 0x7F800000)
    return sign | (kFormat.has_infinity ? kFormat.infinity() : kFormat.nan());
  const uint32_t exponent = std::max(magnitude >> 23, 1u);
  uint32_t code = 0;
  if (exponent < kLowest || magnitude < 0x800000) {
    const uint32_t shift = kDrop + kLowest - std::min(exponent, kLowest);
    const uint32_t implied = magnitude < 0x800000 ? 0 : 0x800000;
    if (shift <= 24) code = shift_to_even((magnitude & 0x7FFFFF) | implied, shift);
  } else {  // a carry of the fraction raises the exponent
    code = shift_to_even(magnitude - ((kLowest - 1) << 23), kDrop);
  }
  return sign | std::min(code, kFormat.saturates ? kFormat.largest() : kFormat.infinity());
}

// The parameters and results are those of NumberType.
template <SmallFloat kFormat>
void DecodeSmall(absl::Span<const std::byte> elements, int32_t /*exponent*/,
                 absl::Span<float> values) {
  constexpr size_t kBytes = kFormat.bits() / 8;
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t code = 0;
    std::memcpy(&code, elements.data() + i * kBytes, kBytes);
    values[i] = ToFloat<kFormat>(code);
  }
}

template <SmallFloat kFormat>
int32_t EncodeSmall(absl::Span<const float> values, absl::Span<std::byte> elements) {
  constexpr size_t kBytes = kFormat.bits() / 8;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto code = static_cast<uint16_t>(FromFloat<kFormat>(values[i]));
    std::memcpy(elements.data() + i * kBytes, &code, kBytes);
  }
  return 0;
}

}  // namespace runnel
