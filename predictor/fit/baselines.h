#pragma once

// Baselines of the latency predictor: three estimates of a sub-model's time from a few measured
// times. Pure functions, any thread. All times are seconds.

#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "proto/base/plan/layer_range.h"

namespace runnel {

// seconds = intercept + slope * macs: "the widely used FLOPs-based method" (AccEPT 4.2.1).
struct FlopsLine {
  double intercept = 0;
  double slope = 0;

  double Seconds(double macs) const { return intercept + slope * macs; }
};

// Least squares of the relative errors, sum of ((line - seconds) / seconds)^2, so that small and
// large sub-models count alike. A line through the origin for one point, for points of equal macs,
// and where the slope would not be positive; zeros without a point. Each time must be above 0.
FlopsLine FitFlopsLine(absl::Span<const double> macs, absl::Span<const double> seconds);

// Look-up table (AccEPT 4.2.1): the sum of the layers' own times.
double SumOfLayers(absl::Span<const double> layer_seconds, const LayerRange& range);

// FTPipeHD's capacity: (device's time) / (central's time) summed over the same ranges. 1 without a
// range: FTPipeHD's first cut assumes equal devices.
double CapacityRatio(absl::Span<const double> device_seconds,
                     absl::Span<const double> central_seconds);

}  // namespace runnel
