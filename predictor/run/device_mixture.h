#pragma once

// What the ranges of a model take on one device, from what known devices take and a few
// measurements of its own, in plain code.
//
// The device is one of the known ones, faster or slower by a common factor and off by a deviation
// that may be small (another of its kind) or large (another kind). For each known device and each
// of a few deviations the logarithms of all times are Gaussian (Covariance, range_view.h, about the
// known device's own), and conditioning on the measurements gives the rest in closed form. What the
// kinds of work cost is found twice: the second time with the shares that they have of the ranges'
// times on this device, which are others than on the known one where the deviation is large. The
// answer is the mean over all of them, each weighted by how likely it makes the measurements.

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "predictor/run/known_device.h"
#include "predictor/run/layer_times.h"

namespace runnel {

// Immutable; any thread.
class DeviceMixture {
 public:
  using Known = std::shared_ptr<const std::vector<KnownDevice>>;

  // known: at least one, all of one model. own: ranges of it; may be empty. batch: samples of the
  // device's micro-batch; times go with it before anything is measured. InvalidArgument: see
  // CheckObservations; no device is known.
  static absl::StatusOr<DeviceMixture> Fit(Known known, absl::Span<const Observation> own,
                                           int64_t batch);

  // The range must be one of the model.
  double Seconds(const LayerRange& range) const;

 private:
  // A known device with one deviation, conditioned on the measurements. Its part of the logarithm
  // of a range's time: weight * (its own time's + shift + what `costs` make of it + sum over own of
  // coefficient * covariance beside kinds).
  struct Part {
    size_t device = 0;
    double weight = 0;
    double shift = 0;
    KindCosts costs = {};
    std::vector<double> coefficients;
  };
  DeviceMixture() = default;

  Known known_;
  std::vector<std::vector<RangeView>> own_;  // the measured ranges, by known device
  std::vector<Part> parts_;                  // those of a known device in turn
};

}  // namespace runnel
