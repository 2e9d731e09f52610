#include "kernels/ir/arithmetic/half_products.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace runnel {

RangeCounts NarrowHalf(DType type, absl::Span<const float> values, absl::Span<std::byte> elements) {
  if (type != DType::kFloat16) {
    TypeOf(type).from_float(values, elements);
    return {};
  }
  std::vector<float> held(values.begin(), values.end());
  const auto largest = static_cast<float>(TypeOf(type).largest);
  RangeCounts counts;
  for (float& value : held) {
    counts.saturated += std::fabs(value) > largest;
    counts.underflows += value != 0 && std::fabs(value) <= kHalfUnderflow;
    value = std::clamp(value, -largest, largest);
  }
  TypeOf(type).from_float(held, elements);
  return counts;
}

void RoundToHalf(DType type, absl::Span<float> values) {
  std::vector<std::byte> elements(values.size() * SizeOf(type));
  NarrowHalf(type, values, absl::MakeSpan(elements));
  TypeOf(type).to_float(elements, 0, values);
}

}  // namespace runnel
