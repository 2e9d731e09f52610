#pragma once

// Time of computation as data, by range of layers: for whoever knows more of a range than the sum
// of its layers' times, as a latency predictor does (AccEPT 3.2: sub-models, not layers).

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "partition/cost_model.h"
#include "proto/base/layer_range.h"

namespace runnel {

// A device's row has a figure for every range, in order of first, then of last layer.
constexpr size_t RangeCount(int layers) {
  return static_cast<size_t>(layers) * static_cast<size_t>(layers + 1) / 2;
}
// Place of a range in it. The range must be one of the model.
size_t RangeIndex(int layers, const LayerRange& range);
// All ranges in that order.
std::vector<LayerRange> AllRanges(int layers);

// Of the range, in a row that has a figure for every range or one for every layer.
double SecondsOf(const std::vector<double>& row, int layers, const LayerRange& range);

// Immutable; any thread.
class RangeCost final : public CostModel {
 public:
  // range_seconds[device]: forward, backward and update of one micro-batch, in pipeline order of
  // the devices. InvalidArgument, naming the device, if there is none, a row has not
  // RangeCount(layers) entries, or a value is negative or not finite.
  static absl::StatusOr<RangeCost> Create(std::vector<std::vector<double>> range_seconds,
                                          int layers);

  // NaN, which policies refuse, for a device or range that is not there.
  double StageSeconds(int device, int first_layer, int last_layer) const override;

 private:
  RangeCost(std::vector<std::vector<double>> seconds, int layers)
      : seconds_(std::move(seconds)), layers_(layers) {}

  std::vector<std::vector<double>> seconds_;
  int layers_;
};

}  // namespace runnel
