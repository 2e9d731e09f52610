#include "kernels/models/product/requantizer.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "kernels/backends/cpu/int8/int8_kernels.h"

namespace runnel::inference {
namespace {

// Rounded, a magnitude from here on is beyond the clamp whatever the zero is.
constexpr double kBeyondCodes = 512;

// CodeColumns::scales.
constexpr double kMostInFloats = 1 << 30;

// Int8TileCoding.
constexpr int64_t kExactIntegers = int64_t{1} << 24;
constexpr double kMostInWords = (1 << 15) - 256;

int64_t RowOf(const Int8Node& n) { return n.node.shape.taps() * n.node.shape.group_in(); }

// The largest magnitude that a sum of the channel can have, offset included.
int64_t MostOf(const Int8Node& n, const Coding& in, size_t channel, int64_t offset) {
  const int64_t row = RowOf(n);
  int64_t magnitudes = 0;
  for (int64_t i = 0; i < row; ++i) magnitudes += std::abs(n.weights[channel * row + i]);
  const int64_t zero = n.weight_zeros.empty() ? 0 : std::abs(n.weight_zeros[channel]);
  return std::abs(offset) + in.max_code * (magnitudes + row * zero);
}

// The magnitude from which on `factor` gives kBeyondCodes or a little more.
int32_t LimitOf(const Factor& factor) {
  if (factor.multiplier == 0) return INT32_MAX;
  // One step more would not fit int32 once it is multiplied.
  if (std::ldexp(factor.multiplier, -factor.shift) >= kBeyondCodes) return 1;
  const double limit = std::ceil(std::ldexp(kBeyondCodes, factor.shift) / factor.multiplier) + 1;
  return limit < INT32_MAX ? static_cast<int32_t>(limit) : INT32_MAX;
}

// Whether a float multiply-add gives the code of each sum up to `most`: as Int8TileCoding asks.
bool CodesTiles(const Factor& factor, int64_t most) {
  const double scale = std::ldexp(factor.multiplier, -factor.shift);
  if (static_cast<double>(static_cast<float>(scale)) != scale) return false;
  if (static_cast<double>(most) * scale >= kMostInWords) return false;
  if (most >= kExactIntegers && static_cast<double>(kExactIntegers) * scale < kBeyondCodes) {
    return false;
  }
  if (factor.multiplier == 0) return true;
  // A product is halfway between integers where the sum has so many factors of two.
  const int bits = factor.shift - 1 - __builtin_ctz(static_cast<uint32_t>(factor.multiplier));
  return bits < 0 || most >> bits == 0;
}

}  // namespace

std::vector<int64_t> SumOffsets(const Int8Node& n, const Coding& in) {
  std::vector<int64_t> offsets(n.bias.begin(), n.bias.end());
  const int64_t row = RowOf(n);
  for (size_t o = 0; o < offsets.size() && in.zero != 0; ++o) {
    int64_t sum = 0;
    for (int64_t i = 0; i < row; ++i) sum += n.weights[o * row + i];
    const int64_t zero = n.weight_zeros.empty() ? 0 : n.weight_zeros[o];
    offsets[o] += in.zero * (row * zero - sum);
  }
  return offsets;
}

std::optional<Requantizer> Requantizer::Of(const Int8Node& n, const Coding& in,
                                           const CodeLoops& loops) {
  if (n.gives_logits()) return std::nullopt;
  if (!n.weight_zeros.empty() && n.node.shape.groups > 1) return std::nullopt;
  Requantizer made(n, loops);
  const std::vector<int64_t> offsets = SumOffsets(n, in);
  bool floats = true;
  made.codes_tiles_ = n.weight_zeros.empty();
  for (size_t o = 0; o < offsets.size(); ++o) {
    const int64_t most = MostOf(n, in, o, offsets[o]);
    if (most >= INT32_MAX) return std::nullopt;
    const double scale = std::ldexp(n.factors[o].multiplier, -n.factors[o].shift);
    floats = floats && static_cast<double>(most) * scale < kMostInFloats;
    made.codes_tiles_ = made.codes_tiles_ && CodesTiles(n.factors[o], most);
    made.scales_.push_back(static_cast<float>(scale));
    made.offsets_.push_back(static_cast<int32_t>(offsets[o]));
    made.multipliers_.push_back(n.factors[o].multiplier);
    made.shifts_.push_back(n.factors[o].shift);
    made.limits_.push_back(LimitOf(n.factors[o]));
  }
  const size_t panels = (offsets.size() + cpu::kMaxPanelColumns - 1) / cpu::kMaxPanelColumns;
  made.offsets_.resize(panels * cpu::kMaxPanelColumns);
  made.scales_.resize(panels * cpu::kMaxPanelColumns);
  if (!floats) made.scales_.clear();
  return made;
}

cpu::GatherCoding Requantizer::TileCoding() const {
  const CodeLimits clamp = LimitsOf(*node_);
  return {.tile = {.scales = scales_.data(),
                   .zero = node_->coding.zero,
                   .lowest = clamp.lowest,
                   .highest = clamp.highest},
          .offsets = offsets_.data()};
}

CodeColumns Requantizer::Columns() const {
  const CodeLimits clamp = LimitsOf(*node_);
  return {.offsets = offsets_.data(),
          .multipliers = multipliers_.data(),
          .shifts = shifts_.data(),
          .limits = limits_.data(),
          .weight_zeros = needs_row_sums() ? node_->weight_zeros.data() : nullptr,
          .scales = scales_.empty() ? nullptr : scales_.data(),
          .rounds_once = codes_tiles_ && !scales_.empty(),
          .zero = node_->coding.zero,
          .lowest = clamp.lowest,
          .highest = clamp.highest};
}

void CodeSink::Take(const cpu::SumsOfTile& tile) {
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

}  // namespace runnel::inference
