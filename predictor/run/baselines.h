#pragma once

// What the latency predictor is measured against: three ways to tell the time of a sub-model from a
// few figures. Each takes times in and gives times out; none keeps anything.

#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "proto/base/layer_range.h"

namespace runnel {

// seconds = intercept + slope * macs: "the widely used FLOPs-based method" (AccEPT 4.2.1).
struct FlopsLine {
  double intercept = 0;
  double slope = 0;

  double Seconds(double macs) const { return intercept + slope * macs; }
};

// Through the points, least squares of relative errors (each point counts alike, whatever its
// size). One point, or points of one MAC count: a line through the origin. No points: zeros.
FlopsLine FitFlopsLine(absl::Span<const double> macs, absl::Span<const double> seconds);

// Look-up table: the layers' own times added up (AccEPT 4.2.1).
double SumOfLayers(absl::Span<const double> layer_seconds, const LayerRange& range);

// FTPipeHD: what the device takes for what it ran over what central takes for the same. 1 if
// nothing is known ("computes a first cut assuming equal devices").
double CapacityRatio(absl::Span<const double> device_seconds,
                     absl::Span<const double> central_seconds);

}  // namespace runnel
