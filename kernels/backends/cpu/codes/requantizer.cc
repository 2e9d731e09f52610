#include "kernels/backends/cpu/codes/requantizer.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "kernels/backends/cpu/int8/int8_kernels.h"

namespace runnel::cpu {
namespace {

// Rounded, a magnitude from here on is beyond the clamp whatever the zero is.
constexpr double kBeyondCodes = 512;

// CodeColumns::scales.
constexpr double kMostInFloats = 1 << 30;

// Int8TileCoding.
constexpr int64_t kExactIntegers = int64_t{1} << 24;
constexpr double kMostInWords = (1 << 15) - 256;

double ScaleOf(const CodeChannel& factor) {
  return std::ldexp(static_cast<double>(factor.multiplier), static_cast<int>(-factor.shift));
}

// The largest magnitude that a sum of the channel can have, offset included.
int64_t MostOf(const ProductSpec& spec, size_t channel) {
  const int64_t row = spec.shape.taps() * spec.shape.group_in();
  int64_t magnitudes = 0;
  for (int64_t i = 0; i < row; ++i) magnitudes += std::abs(spec.weights[channel * row + i]);
  const CodeChannel& to = spec.channels[channel];
  return std::abs(to.offset) + spec.most_input() * (magnitudes + row * std::abs(to.weight_zero));
}

// The magnitude from which on `factor` gives kBeyondCodes or a little more.
int32_t LimitOf(const CodeChannel& factor) {
  if (factor.multiplier == 0) return INT32_MAX;
  // One step more would not fit int32 once it is multiplied.
  if (ScaleOf(factor) >= kBeyondCodes) return 1;
  const double limit = std::ceil(kBeyondCodes / ScaleOf(factor)) + 1;
  return limit < INT32_MAX ? static_cast<int32_t>(limit) : INT32_MAX;
}

// Whether a float multiply-add gives the code of each sum up to `most`: as Int8TileCoding asks.
bool CodesTiles(const CodeChannel& factor, int64_t most) {
  const double scale = ScaleOf(factor);
  if (static_cast<double>(static_cast<float>(scale)) != scale) return false;
  if (static_cast<double>(most) * scale >= kMostInWords) return false;
  if (most >= kExactIntegers && static_cast<double>(kExactIntegers) * scale < kBeyondCodes) {
    return false;
  }
  if (factor.multiplier == 0) return true;
  // A product is halfway between integers where the sum has so many factors of two.
  const int64_t bits = factor.shift - 1 - __builtin_ctz(static_cast<uint32_t>(factor.multiplier));
  return bits < 0 || most >> bits == 0;
}

}  // namespace

std::optional<Requantizer> Requantizer::Of(const ProductSpec& spec, const CodeLoops& loops) {
  const bool has_weight_zeros = spec.has_weight_zeros();
  if (spec.gives_sums || (has_weight_zeros && spec.shape.groups > 1)) return std::nullopt;
  Requantizer made(*spec.rule, loops);
  bool floats = true;
  made.codes_tiles_ = !has_weight_zeros;
  for (size_t o = 0; o < spec.channels.size(); ++o) {
    const CodeChannel& channel = spec.channels[o];
    const int64_t most = MostOf(spec, o);
    if (most >= INT32_MAX) return std::nullopt;
    const double scale = ScaleOf(channel);
    floats = floats && static_cast<double>(most) * scale < kMostInFloats;
    made.codes_tiles_ = made.codes_tiles_ && CodesTiles(channel, most);
    made.scales_.push_back(static_cast<float>(scale));
    made.offsets_.push_back(static_cast<int32_t>(channel.offset));
    made.multipliers_.push_back(static_cast<int32_t>(channel.multiplier));
    made.shifts_.push_back(static_cast<int32_t>(channel.shift));
    made.limits_.push_back(LimitOf(channel));
    if (has_weight_zeros) made.weight_zeros_.push_back(static_cast<int32_t>(channel.weight_zero));
  }
  const size_t panels = (spec.channels.size() + kMaxPanelColumns - 1) / kMaxPanelColumns;
  made.offsets_.resize(panels * kMaxPanelColumns);
  made.scales_.resize(panels * kMaxPanelColumns);
  if (!floats) made.scales_.clear();
  return made;
}

GatherCoding Requantizer::TileCoding() const {
  return {.tile = {.scales = scales_.data(),
                   .zero = static_cast<int32_t>(rule_.zero),
                   .lowest = static_cast<int32_t>(rule_.lowest),
                   .highest = static_cast<int32_t>(rule_.highest)},
          .offsets = offsets_.data()};
}

CodeColumns Requantizer::Columns() const {
  return {.offsets = offsets_.data(),
          .multipliers = multipliers_.data(),
          .shifts = shifts_.data(),
          .limits = limits_.data(),
          .weight_zeros = needs_row_sums() ? weight_zeros_.data() : nullptr,
          .scales = scales_.empty() ? nullptr : scales_.data(),
          .rounds_once = codes_tiles_ && !scales_.empty(),
          .zero = static_cast<int32_t>(rule_.zero),
          .lowest = static_cast<int32_t>(rule_.lowest),
          .highest = static_cast<int32_t>(rule_.highest)};
}

void CodeSink::Take(const SumsOfTile& tile) {
  int8_t* codes[cpu::kMaxTileRows];
  for (int r = 0; r < tile.rows; ++r) codes[r] = codes_ + tile.places[r];
  SumRows rows{.sums = tile.sums, .codes = codes, .rows = tile.rows};
  rows.first = tile.first_column;
  rows.count = tile.columns;
  int32_t row_sums[cpu::kMaxTileRows];
  if (requantizer_.needs_row_sums()) {
    for (int r = 0; r < tile.rows; ++r) row_sums[r] = row_sums_[tile.places[r] / out_c_];
    rows.row_sums = row_sums;
  }
  requantizer_.Run(rows);
}

}  // namespace runnel::cpu
