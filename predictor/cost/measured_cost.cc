#include "predictor/cost/measured_cost.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace runnel {

absl::StatusOr<MeasuredCost> MeasuredCost::Create(std::vector<DeviceTimes> times) {
  if (times.empty() || times[0].layers() == 0) {
    return absl::InvalidArgumentError("profile: needs at least one device and one layer");
  }
  MeasuredCost cost;
  for (size_t device = 0; device < times.size(); ++device) {
    const DeviceTimes& one = times[device];
    if (one.layers() != times[0].layers()) {
      return absl::InvalidArgumentError(absl::StrCat("profile: device ", device, " has ",
                                                     one.layers(), " layers, device 0 has ",
                                                     times[0].layers()));
    }
    if (absl::Status status = one.Check(); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("profile: device ", device, ", ", status.message()));
    }
    std::vector<double>& sums = cost.sums_.emplace_back();
    if (one.by_range()) continue;
    sums = {0};
    for (const double seconds : one.figures()) sums.push_back(sums.back() + seconds);
  }
  cost.times_ = std::move(times);
  return cost;
}

absl::StatusOr<MeasuredCost> MeasuredCost::ByLayer(
    const std::vector<std::vector<double>>& seconds) {
  std::vector<DeviceTimes> times;
  for (const std::vector<double>& row : seconds) times.push_back(DeviceTimes::ByLayer(row));
  return Create(std::move(times));
}

double MeasuredCost::StageSeconds(int device, int first_layer, int last_layer) const {
  if (device < 0 || device >= devices() || first_layer < 0 || last_layer < first_layer ||
      last_layer >= layers()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (times_[device].by_range()) return times_[device].Seconds({first_layer, last_layer});
  return sums_[device][last_layer + 1] - sums_[device][first_layer];
}

}  // namespace runnel
