#pragma once

// Prior distribution of a model's layer times on a new device, for a model that no known device was
// profiled with: from estimates by the network or by a FLOPs line.

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "predictor/fit/layer_times.h"

namespace runnel {

// layer_seconds: an estimate of each layer's time by itself; each may be wrong by a large factor.
LayerPrior PriorFromEstimates(absl::Span<const double> layer_seconds, const ModelWork& work);

// Layer times of a profiled device, fitted to all of its measured ranges. InvalidArgument: a layer
// was not measured by itself; otherwise as FitLayerTimes.
absl::StatusOr<LayerTimes> FitProfile(const ModelWork& work,
                                      absl::Span<const Observation> observations);

// Relative standard deviation of a measurement, as all fits assume it.
inline constexpr double kMeasurementNoise = 0.03;

}  // namespace runnel
