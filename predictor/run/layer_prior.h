#pragma once

// What is known of a model's layers before anything is measured on the device at hand, for a model
// that was never profiled: from the network, or a FLOPs line.

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "predictor/run/layer_times.h"

namespace runnel {

// layer_seconds: the network's, or a FLOPs line's, of each layer by itself. Each may be far off.
LayerPrior PriorFromEstimates(absl::Span<const double> layer_seconds, const ModelWork& work);

// The layers of a device that was profiled: a fit to everything that was measured. The single
// layers must be among it.
absl::StatusOr<LayerTimes> FitProfile(const ModelWork& work,
                                      absl::Span<const Observation> observations);

// Relative standard deviation of a measurement that the fits reckon with.
inline constexpr double kMeasurementNoise = 0.03;

}  // namespace runnel
