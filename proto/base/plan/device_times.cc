#include "proto/base/plan/device_times.h"

#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

namespace runnel {

DeviceTimes::DeviceTimes(int layers, bool by_range, std::vector<double> seconds)
    : layers_(layers), by_range_(by_range), seconds_(std::move(seconds)) {}

DeviceTimes DeviceTimes::ByLayer(std::vector<double> seconds) {
  const auto layers = static_cast<int>(seconds.size());
  return {layers, false, std::move(seconds)};
}

DeviceTimes DeviceTimes::ByRange(int layers, std::vector<double> seconds) {
  assert(seconds.size() == RangeCount(layers));
  return {layers, true, std::move(seconds)};
}

std::optional<DeviceTimes> DeviceTimes::ByRange(std::vector<double> seconds) {
  // layers (layers + 1) / 2 = size; the root is within a half of the number of layers.
  const auto layers = static_cast<int>(std::sqrt(2 * static_cast<double>(seconds.size())));
  if (RangeCount(layers) != seconds.size()) return std::nullopt;
  return ByRange(layers, std::move(seconds));
}

double DeviceTimes::Seconds(const LayerRange& range) const {
  const bool is_there =
      0 <= range.first_layer && range.first_layer <= range.last_layer && range.last_layer < layers_;
  if (!is_there) return std::numeric_limits<double>::quiet_NaN();
  if (by_range_) return seconds_[RangeIndex(layers_, range)];
  return std::accumulate(seconds_.begin() + range.first_layer,
                         seconds_.begin() + range.last_layer + 1, 0.0);
}

std::vector<double> DeviceTimes::LayerSeconds() const {
  std::vector<double> seconds;
  for (const LayerRange& layer : EachLayer(layers_)) seconds.push_back(Seconds(layer));
  return seconds;
}

double DeviceTimes::Sum() const { return std::accumulate(seconds_.begin(), seconds_.end(), 0.0); }

DeviceTimes DeviceTimes::Scaled(double factor) const {
  DeviceTimes scaled = *this;
  for (double& seconds : scaled.seconds_) seconds *= factor;
  return scaled;
}

absl::Status DeviceTimes::Check() const {
  for (size_t i = 0; i < seconds_.size(); ++i) {
    if (std::isfinite(seconds_[i]) && seconds_[i] >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(by_range_ ? "range " : "layer ", i, ": ", seconds_[i], " s is no time"));
  }
  return absl::OkStatus();
}

}  // namespace runnel
