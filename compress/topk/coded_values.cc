// topk8: kept values in 8 bits and their places by an arithmetic coder (place_coder.h). What the 8
// bits lose stays in the residual.
//
// Payload: two magnitudes in FP32, low and high; k bytes, a value each in ascending order of the
// index: a sign above a level of 7 bits; then PlaceBytes(n, k) bytes. Level 0 is zero. Levels 1 to
// 127 lie between low and high in equal steps of the magnitude's bit pattern, so that the relative
// error is the same everywhere within a factor of two: up to 4 % where high is 2^20 times low, 0.3 %
// where it is 4 times. high is the largest magnitude; low is the smallest that is kept, and no less
// than 2^-20 of high: what is smaller stays behind.

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "compress/codec_checks.h"
#include "compress/topk/kept_values.h"
#include "compress/topk/place_coder.h"

namespace runnel {
namespace {

constexpr size_t kHeaderBytes = 2 * sizeof(float);
constexpr uint32_t kSteps = 126;  // between the levels 1 and 127
constexpr uint32_t kMostOctaves = 20;

int64_t CodedBytes(size_t n, size_t k) {
  return static_cast<int64_t>(kHeaderBytes + k + PlaceBytes(n, k));
}

// Bit patterns of magnitudes. high == 0: nothing but zeros.
struct Range {
  uint32_t low = 0;
  uint32_t high = 0;

  uint32_t LevelOf(uint32_t magnitude) const {
    if (magnitude < low || magnitude == 0) return 0;
    const uint64_t width = high - low;
    return width == 0 ? 1
                      : static_cast<uint32_t>(1 + (uint64_t{magnitude - low} * kSteps + width / 2) /
                                                      width);
  }
  uint32_t MagnitudeOfLevel(uint32_t level) const {
    if (level == 0) return 0;
    return low + static_cast<uint32_t>((uint64_t{level - 1} * (high - low) + kSteps / 2) / kSteps);
  }
};

Range RangeOf(const TopkCut& cut, size_t n, const float* y) {
  Range range;
  for (size_t e = 0; e < n; ++e) range.high = std::max(range.high, MagnitudeOf(y[e]));
  if (range.high == 0) return range;
  constexpr uint32_t kWidest = kMostOctaves << 23;
  const uint32_t least = range.high > kWidest ? range.high - kWidest : 1;
  range.low = std::max(cut.magnitude, least);
  return range;
}

// By byte: sign and level.
using Levels = std::array<float, 256>;

Levels LevelsOf(const Range& range) {
  Levels levels;
  for (uint32_t level = 0; level < 128; ++level) {
    levels[level] = std::bit_cast<float>(range.MagnitudeOfLevel(level));
    levels[level + 128] = -levels[level];
  }
  return levels;
}

void WriteCoded(const TopkCut& cut, size_t n, size_t k, float* y, std::byte* payload) {
  const Range range = RangeOf(cut, n, y);
  StoreFloat(std::bit_cast<float>(range.low), payload);
  StoreFloat(std::bit_cast<float>(range.high), payload + sizeof(float));
  const Levels levels = LevelsOf(range);
  std::byte* value = payload + kHeaderBytes;
  PlaceWriter places(n, k, value + k);
  Keeper keeper(cut);
  for (size_t e = 0; e < n; ++e) {
    const bool kept = keeper.Keeps(y[e]);
    places.Write(kept);
    if (!kept) continue;
    const uint32_t level = range.LevelOf(MagnitudeOf(y[e]));
    const uint32_t code = level == 0 || y[e] > 0 ? level : level + 128;
    y[e] -= levels[code];
    *value++ = static_cast<std::byte>(code);
  }
  places.Finish();
}

absl::Status ReadCoded(const std::byte* payload, size_t n, size_t k, float* out) {
  const float low = LoadFloat(payload), high = LoadFloat(payload + sizeof(float));
  const Range range = {std::bit_cast<uint32_t>(low), std::bit_cast<uint32_t>(high)};
  // As patterns, so that a sign, NaN and infinity are too large.
  if (range.high >= kInfinityBits || range.low > range.high ||
      (range.low == 0) != (range.high == 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("levels from ", low, " to ", high, " are impossible"));
  }
  const Levels levels = LevelsOf(range);
  const std::byte* value = payload + kHeaderBytes;
  const std::byte* const values_end = value + k;
  PlaceReader places(n, k, values_end);
  for (size_t e = 0; e < n; ++e) {
    out[e] = 0.0f;
    if (!places.Read()) continue;
    if (value == values_end) return absl::InvalidArgumentError("a place too many");
    const auto code = std::to_integer<uint32_t>(*value++);
    if (code == 128 || (range.high == 0 && code != 0)) {
      return absl::InvalidArgumentError(absl::StrCat("value ", code, " is impossible"));
    }
    out[e] = levels[code];
  }
  if (value != values_end) return absl::InvalidArgumentError("a place too few");
  if (!places.IsAtEnd())
    return absl::InvalidArgumentError("the places do not end where they should");
  return absl::OkStatus();
}

}  // namespace

const KeptValues kCodedValues = {"topk8", 8, CodedBytes, WriteCoded, ReadCoded};

}  // namespace runnel
