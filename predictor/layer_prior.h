#pragma once

// What is known of a model's layers before anything is measured on the device at hand: from other
// devices that were profiled with this model, or, for a model without profiles, from the network.

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "predictor/layer_times.h"

namespace runnel {

// One device that was profiled with the model: its layers, fitted to all that was measured.
struct KnownDevice {
  LayerTimes layers;
  int64_t batch = 0;
};

// Mean and covariance over the devices. Times go with the batch size, so they are compared a
// sample. The covariance is the devices' own, which says which layers slow down together, and on
// top of it what a device of another kind may do: all layers at once, or each by itself.
// devices: at least one, all of one model.
LayerPrior PriorFromDevices(absl::Span<const KnownDevice> devices, int64_t batch);

// layer_seconds: the network's, or a FLOPs line's, of each layer by itself. Each may be far off.
LayerPrior PriorFromEstimates(absl::Span<const double> layer_seconds, const ModelWork& work);

// The layers of a device that was profiled: a fit to everything that was measured. The single
// layers must be among it.
absl::StatusOr<LayerTimes> FitProfile(const ModelWork& work,
                                      absl::Span<const Observation> observations);

// Relative standard deviation of a measurement that the fits reckon with.
inline constexpr double kMeasurementNoise = 0.02;

}  // namespace runnel
