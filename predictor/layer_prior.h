#pragma once

// What is known of a model's layers before anything is measured on the device at hand: from other
// devices that were profiled with this model, or, for a model without profiles, from the network.

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "predictor/layer_times.h"

namespace runnel {

// One device that was profiled with the model: its layers, fitted to all that was measured, and
// what the fit leaves unexplained of each range (how caches serve it, say).
struct KnownDevice {
  LayerTimes layers;
  int64_t batch = 0;
  struct Miss {
    LayerRange range;
    double log_ratio = 0;  // measured over fitted
  };
  std::vector<Miss> misses;

  // What is left unexplained of a range: mostly of that very range, else of its neighbours, towards
  // 0 where nothing near was measured.
  double MissAt(const LayerRange& range) const;
};

// FitProfile with its misses.
absl::StatusOr<KnownDevice> MakeKnownDevice(const ModelWork& work, int64_t batch,
                                            absl::Span<const Observation> observations);

// Mean and covariance over the devices, those most of which behave like the one at hand: `own` are
// its measurements, and a device counts by how well its layers, but for one common factor, explain
// them. Times go with the batch size. On top of the devices' own covariance, which says which
// layers slow down together, comes what a device of another kind may do: all layers at once, or
// each by itself. The devices' misses become the prior's correction. devices: at least one, all of
// one model. own: ranges of the model; may be empty.
LayerPrior PriorFromDevices(absl::Span<const KnownDevice> devices,
                            absl::Span<const Observation> own, int64_t batch);

// layer_seconds: the network's, or a FLOPs line's, of each layer by itself. Each may be far off.
LayerPrior PriorFromEstimates(absl::Span<const double> layer_seconds, const ModelWork& work);

// The layers of a device that was profiled: a fit to everything that was measured. The single
// layers must be among it.
absl::StatusOr<LayerTimes> FitProfile(const ModelWork& work,
                                      absl::Span<const Observation> observations);

// Relative standard deviation of a measurement that the fits reckon with.
inline constexpr double kMeasurementNoise = 0.03;

}  // namespace runnel
