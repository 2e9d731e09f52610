#include "proto/base/tensor/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace runnel {
namespace {

float Finite(float value) {
  if (std::isnan(value)) return 0;
  constexpr float kLargest = std::numeric_limits<float>::max();
  return std::clamp(value, -kLargest, kLargest);
}

// round(value * factor), half away from zero. The factor is a power of two: the product has the 24
// bits of the float, so that adding a half and cutting off rounds it exactly.
void RoundScaled(absl::Span<const float> values, double factor, absl::Span<int8_t> mantissas) {
  for (size_t i = 0; i < values.size(); ++i) {
    const double scaled = Finite(values[i]) * factor;  // at most 128
    const auto rounded = static_cast<int32_t>(scaled + std::copysign(0.5, scaled));
    mantissas[i] = static_cast<int8_t>(std::clamp(rounded, -127, 127));
  }
}

}  // namespace

int32_t CeilLog2(float value) {
  int power = 0;
  const float fraction = std::frexp(value, &power);  // in [0.5, 1)
  return fraction == 0.5f ? power - 1 : power;
}

int32_t Quantize(absl::Span<const float> values, QuantizeRule rule, absl::Span<int8_t> mantissas) {
  float largest = 0;
  for (float value : values) largest = std::max(largest, std::fabs(Finite(value)));
  if (largest == 0) {
    std::fill(mantissas.begin(), mantissas.end(), int8_t{0});
    return 0;
  }
  const int32_t exponent = CeilLog2(largest) - 7;
  if (rule == QuantizeRule::kPowerOfTwo) {
    RoundScaled(values, std::ldexp(1.0, -exponent), mantissas);
    return exponent;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const double scaled = 127.0 * Finite(values[i]) / largest;
    mantissas[i] = static_cast<int8_t>(std::clamp(std::round(scaled), -127.0, 127.0));
  }
  return exponent;
}

void Dequantize(absl::Span<const int8_t> mantissas, int32_t exponent, absl::Span<float> values) {
  const double factor = std::ldexp(1.0, exponent);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(mantissas[i] * factor);
  }
}

}  // namespace runnel
