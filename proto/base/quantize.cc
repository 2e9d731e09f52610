#include "proto/base/quantize.h"

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
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = Finite(values[i]);
    const double scaled = rule == QuantizeRule::kFullRange ? 127.0 * value / largest
                                                           : std::ldexp(value, -exponent);
    mantissas[i] = static_cast<int8_t>(std::clamp(std::round(scaled), -127.0, 127.0));
  }
  return exponent;
}

}  // namespace runnel
