#pragma once

// FP32 -> int8 mantissas with one exponent by NITI's rules: the samples that
// enter an integer model, its initial weights, and boundary tensors that an FP32 codec decoded.
// The reference of every faster path; in double, so the same bytes everywhere. Any thread.

#include <cstdint>

#include "absl/types/span.h"

namespace runnel {

// ceil(log2(value)) of a finite value > 0, exact.
int32_t CeilLog2(float value);

enum class QuantizeRule : uint8_t {
  kFullRange,   // round(127 * x / M): the largest value becomes 127 (NITI 2020, Mandheling)
  kPowerOfTwo,  // round(x * 2^-e): the value is kept (NITI 2021)
};

// Writes mantissas in -127..127, rounded half away from zero, and returns the exponent
// ceil(log2 M) - 7, M = max|x|; all zero and exponent 0 for M = 0. NaN counts as 0, an infinite
// value as the largest float. mantissas.size() == values.size().
int32_t Quantize(absl::Span<const float> values, QuantizeRule rule, absl::Span<int8_t> mantissas);

// Range of the exponents that Quantize returns for FP32 tensors.
inline constexpr int32_t kMinFloatExponent = -149 - 7;
inline constexpr int32_t kMaxFloatExponent = 128 - 7;

// values[i] = mantissas[i] * 2^exponent, rounded to FP32 where that is needed (below 2^-149).
// exponent <= kMaxFloatExponent, so that nothing is infinite. The same sizes.
void Dequantize(absl::Span<const int8_t> mantissas, int32_t exponent, absl::Span<float> values);

}  // namespace runnel
