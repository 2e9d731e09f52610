#pragma once

// Sink of measurements. Mains adapt Prometheus to it. Names follow Prometheus' rules: runnel_
// prefix, base units.

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace runnel {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

class MetricsSink {
 public:
  virtual ~MetricsSink() = default;
  // The help line of a metric; before its first value. Any thread.
  virtual void Describe(absl::string_view /*name*/, absl::string_view /*help*/) {}
  // Sets a value that goes up and down. Any thread.
  virtual void SetGauge(absl::string_view name, const MetricLabels& labels, double value) = 0;
  // Adds to a value that only grows; increment >= 0. Any thread.
  virtual void AddCounter(absl::string_view name, const MetricLabels& labels, double increment) = 0;
};

}  // namespace runnel
