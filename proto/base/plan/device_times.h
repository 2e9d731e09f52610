#pragma once

// A device's times of a model: seconds of forward, backward and update of one micro-batch. Either
// one figure a layer, where a range takes the sum of its layers, or one figure for every range of
// layers, as latency predictors give them (AccEPT 3.2).

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/plan/layer_range.h"

namespace runnel {

// A value. Immutable, so any thread may read it.
class DeviceTimes {
 public:
  DeviceTimes() = default;  // nothing is known of the device
  static DeviceTimes ByLayer(std::vector<double> seconds);
  // `seconds` has RangeCount(layers) figures, in the order of AllRanges(layers).
  static DeviceTimes ByRange(int layers, std::vector<double> seconds);
  // As above from a list that does not name the number of layers; none: no model has so many
  // ranges.
  static std::optional<DeviceTimes> ByRange(std::vector<double> seconds);

  bool empty() const { return seconds_.empty(); }
  bool by_range() const { return by_range_; }
  int layers() const { return layers_; }
  // The figures by layer, or in the order of AllRanges.
  const std::vector<double>& figures() const { return seconds_; }

  // NaN for a range that the model does not have.
  double Seconds(const LayerRange& range) const;
  // Each layer by itself.
  std::vector<double> LayerSeconds() const;
  // The sum of all figures: only its ratio to another device's sum has a meaning.
  double Sum() const;
  DeviceTimes Scaled(double factor) const;

  // InvalidArgument says which figure is negative or not finite.
  absl::Status Check() const;

  friend bool operator==(const DeviceTimes&, const DeviceTimes&) = default;

 private:
  DeviceTimes(int layers, bool by_range, std::vector<double> seconds);

  int layers_ = 0;
  bool by_range_ = false;
  std::vector<double> seconds_;
};

}  // namespace runnel
