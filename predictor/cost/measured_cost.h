#pragma once

// Time of computation from a profile: how long each layer took on each device.

#include <vector>

#include "absl/status/statusor.h"
#include "partition/cost_model.h"

namespace runnel {

// Immutable; any thread. A range of layers takes the sum of its layers (AccEPT 3.5: T_e(a, b)).
class MeasuredCost final : public CostModel {
 public:
  // layer_seconds[device][layer]: forward, backward and update of one micro-batch, in pipeline
  // order of the devices. InvalidArgument, naming device and layer, if there is none, rows differ
  // in length, or a value is negative or not finite.
  static absl::StatusOr<MeasuredCost> Create(const std::vector<std::vector<double>>& layer_seconds);

  int devices() const { return static_cast<int>(sums_.size()); }
  int layers() const { return static_cast<int>(sums_[0].size()) - 1; }
  // NaN, which policies refuse, for a device or layer that was not profiled.
  double StageSeconds(int device, int first_layer, int last_layer) const override;

 private:
  MeasuredCost() = default;
  std::vector<std::vector<double>> sums_;  // [device][l]: seconds of the first l layers
};

}  // namespace runnel
