#include "predictor/cost/range_cost.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

namespace runnel {

size_t RangeIndex(int layers, const LayerRange& range) {
  // Before the ranges that begin at `first` come those of the layers above: layers, layers - 1, ...
  const auto first = static_cast<size_t>(range.first_layer);
  const size_t before = RangeCount(layers) - RangeCount(layers - range.first_layer);
  return before + static_cast<size_t>(range.last_layer) - first;
}

std::vector<LayerRange> AllRanges(int layers) {
  std::vector<LayerRange> ranges;
  for (int first = 0; first < layers; ++first) {
    for (int last = first; last < layers; ++last) ranges.push_back({first, last});
  }
  return ranges;
}

double SecondsOf(const std::vector<double>& row, int layers, const LayerRange& range) {
  if (row.size() == RangeCount(layers)) return row[RangeIndex(layers, range)];
  return std::accumulate(row.begin() + range.first_layer, row.begin() + range.last_layer + 1, 0.0);
}

absl::StatusOr<RangeCost> RangeCost::Create(std::vector<std::vector<double>> range_seconds,
                                            int layers) {
  if (range_seconds.empty() || layers < 1) {
    return absl::InvalidArgumentError("times of ranges: needs at least one device and one layer");
  }
  for (size_t device = 0; device < range_seconds.size(); ++device) {
    const std::vector<double>& row = range_seconds[device];
    if (row.size() != RangeCount(layers)) {
      return absl::InvalidArgumentError(absl::StrCat("times of ranges: device ", device, " has ",
                                                     row.size(), ", ", layers, " layers have ",
                                                     RangeCount(layers)));
    }
    for (const double seconds : row) {
      if (std::isfinite(seconds) && seconds >= 0) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("times of ranges: device ", device, ": ", seconds, " s is no time"));
    }
  }
  return RangeCost(std::move(range_seconds), layers);
}

double RangeCost::StageSeconds(int device, int first_layer, int last_layer) const {
  const bool is_there = device >= 0 && static_cast<size_t>(device) < seconds_.size() &&
                        first_layer >= 0 && first_layer <= last_layer && last_layer < layers_;
  if (!is_there) return std::numeric_limits<double>::quiet_NaN();
  return seconds_[static_cast<size_t>(device)][RangeIndex(layers_, {first_layer, last_layer})];
}

}  // namespace runnel
