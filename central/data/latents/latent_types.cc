#include "central/data/latents/latent_types.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/tensor/small_float.h"

namespace runnel {
namespace {

constexpr float kLargestHalf = 65504;
constexpr float kLargestCode = 255;

void EncodeFloats(absl::Span<const float> values, char* codes) {
  std::memcpy(codes, values.data(), values.size() * sizeof(float));
}
void DecodeFloats(const char* codes, absl::Span<float> values) {
  std::memcpy(values.data(), codes, values.size() * sizeof(float));
}

void EncodeHalves(absl::Span<const float> values, char* codes) {
  for (size_t i = 0; i < values.size(); ++i) {
    const auto code = static_cast<uint16_t>(
        FromFloat<kHalfFormat>(std::clamp(values[i], -kLargestHalf, kLargestHalf)));
    std::memcpy(codes + i * sizeof(code), &code, sizeof(code));
  }
}
void DecodeHalves(const char* codes, absl::Span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t code = 0;
    std::memcpy(&code, codes + i * sizeof(code), sizeof(code));
    values[i] = ToFloat<kHalfFormat>(code);
  }
}

// In front of a sample's codes.
struct Range {
  float scale = 0;
  float zero = 0;
};

void EncodeBytes(absl::Span<const float> values, char* codes) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  // In double, since the range of FP32 is twice its largest value.
  const Range range = {
      static_cast<float>((static_cast<double>(*high) - static_cast<double>(*low)) / kLargestCode),
      *low};
  std::memcpy(codes, &range, sizeof(range));
  for (size_t i = 0; i < values.size(); ++i) {
    const double steps =
        range.scale > 0
            ? (static_cast<double>(values[i]) - static_cast<double>(range.zero)) / range.scale
            : 0;
    codes[sizeof(range) + i] = static_cast<char>(
        static_cast<uint8_t>(std::clamp(std::nearbyint(steps), 0.0, double{kLargestCode})));
  }
}
void DecodeBytes(const char* codes, absl::Span<float> values) {
  Range range;
  std::memcpy(&range, codes, sizeof(range));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto code = static_cast<uint8_t>(codes[sizeof(range) + i]);
    values[i] = static_cast<float>(static_cast<double>(range.zero) +
                                   static_cast<double>(range.scale) * code);
  }
}

}  // namespace

absl::Span<const LatentType> LatentTypes() {
  static constexpr LatentType kRows[] = {
      {"fp32", 4, 0, EncodeFloats, DecodeFloats},
      {"fp16", 2, 0, EncodeHalves, DecodeHalves},
      {"int8", 1, sizeof(Range), EncodeBytes, DecodeBytes},
  };
  return kRows;
}

absl::StatusOr<const LatentType*> FindLatentType(absl::string_view name) {
  for (const LatentType& row : LatentTypes()) {
    if (row.name == name) return &row;
  }
  return absl::InvalidArgumentError(absl::StrCat("there is no type '", name, "'; there are ",
                                                 absl::StrJoin(LatentTypeNames(), ", ")));
}

std::vector<std::string> LatentTypeNames() {
  std::vector<std::string> names;
  for (const LatentType& row : LatentTypes()) names.emplace_back(row.name);
  return names;
}

}  // namespace runnel
