#pragma once

// Computation times from measured or predicted times of each device.

#include <vector>

#include "absl/status/statusor.h"
#include "partition/cost_model.h"
#include "proto/base/plan/device_times.h"

namespace runnel {

// Immutable; any thread. By layer, a range takes the sum of its layers (AccEPT 3.5: T_e(a, b)).
class MeasuredCost final : public CostModel {
 public:
  // times: in pipeline order of the devices. InvalidArgument, naming the device and the layer or
  // range, if there is none, two know different numbers of layers, or a figure is negative or not
  // finite.
  static absl::StatusOr<MeasuredCost> Create(std::vector<DeviceTimes> times);
  // Makes the cost model from times by layer, seconds[device][layer]; errors as above.
  static absl::StatusOr<MeasuredCost> ByLayer(const std::vector<std::vector<double>>& seconds);

  int devices() const { return static_cast<int>(times_.size()); }
  int layers() const { return times_[0].layers(); }
  // NaN, which policies refuse, for a device or layer that was not measured.
  double StageSeconds(int device, int first_layer, int last_layer) const override;

 private:
  MeasuredCost() = default;

  std::vector<DeviceTimes> times_;
  // [device][l], of devices whose times are by layer: seconds of the first l layers.
  std::vector<std::vector<double>> sums_;
};

}  // namespace runnel
