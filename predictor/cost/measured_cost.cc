#include "predictor/cost/measured_cost.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace runnel {

absl::StatusOr<MeasuredCost> MeasuredCost::Create(
    const std::vector<std::vector<double>>& layer_seconds) {
  if (layer_seconds.empty() || layer_seconds[0].empty()) {
    return absl::InvalidArgumentError("profile: needs at least one device and one layer");
  }
  MeasuredCost cost;
  for (size_t device = 0; device < layer_seconds.size(); ++device) {
    const std::vector<double>& row = layer_seconds[device];
    if (row.size() != layer_seconds[0].size()) {
      return absl::InvalidArgumentError(absl::StrCat("profile: device ", device, " has ",
                                                     row.size(), " layers, device 0 has ",
                                                     layer_seconds[0].size()));
    }
    std::vector<double> sums = {0};
    for (size_t layer = 0; layer < row.size(); ++layer) {
      if (!std::isfinite(row[layer]) || row[layer] < 0) {
        return absl::InvalidArgumentError(absl::StrCat("profile: device ", device, ", layer ",
                                                       layer, ": ", row[layer],
                                                       " is no number of seconds"));
      }
      sums.push_back(sums.back() + row[layer]);
    }
    cost.sums_.push_back(std::move(sums));
  }
  return cost;
}

double MeasuredCost::StageSeconds(int device, int first_layer, int last_layer) const {
  if (device < 0 || device >= devices() || first_layer < 0 || last_layer < first_layer ||
      last_layer >= layers()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return sums_[device][last_layer + 1] - sums_[device][first_layer];
}

}  // namespace runnel
