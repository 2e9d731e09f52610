#include "proto/base/model/side_values.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_format.h"

namespace runnel {
namespace {

template <typename T>
double Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return static_cast<double>(value);
}

template <typename T>
void Store(double value, std::byte* at) {
  const auto stored = static_cast<T>(value);
  std::memcpy(at, &stored, sizeof(stored));
}

}  // namespace

absl::Status SideValue::Check(absl::Span<const std::byte> values) const {
  for (size_t at = 0; at + SizeOf(type) <= values.size(); at += SizeOf(type)) {
    const std::byte* from = values.data() + at;
    const double value = type == DType::kInt32 ? Load<int32_t>(from) : Load<float>(from);
    if (Admits(value)) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("%s %.10g is not in %.10g..%.10g", name, value, least, most));
  }
  return absl::OkStatus();
}

absl::Span<const SideValue> SideValuesOf(bool has_cost_target, bool carries_state) {
  if (has_cost_target && carries_state) return kCostAndStateSideValues;
  if (has_cost_target) return kCostSideValues;
  if (carries_state) return kStateSideValues;
  return kSideValues;
}

void SideValue::FillNeutral(absl::Span<std::byte> values) const {
  const double neutral = std::clamp(0.0, least, most);
  for (size_t at = 0; at + SizeOf(type) <= values.size(); at += SizeOf(type)) {
    if (type == DType::kInt32) {
      Store<int32_t>(neutral, values.data() + at);
    } else {
      Store<float>(neutral, values.data() + at);
    }
  }
}

}  // namespace runnel
