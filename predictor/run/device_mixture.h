#pragma once

// Predicts the time of every range of a model's layers on a new device, from the times of devices
// that were profiled before (known devices) and a few ranges measured on the new one.
//
// Hypothesis (d, s): the new device is the known device d, times one common factor, times a
// deviation of size s. Under it
//   log(new time) = log(d's time) + common factor + deviation,
//   deviation ~ Gaussian(0, s^2 * Covariance), Covariance as in range_view.h.
// A small s means a device of the same kind as d, a large s another kind. Conditioning on the
// measured ranges gives every other range in closed form. The prediction is the mean of the
// logarithms over all (d, s), weighted by the likelihood of the measurements under (d, s).
//
// The cost of each kind of work (convolutions, element-wise, ...) is estimated twice. The first
// pass assumes that each kind has the same share of a range's time as on the known device. That is
// wrong where the devices differ much: with convolutions four times as fast, their share is
// smaller. The second pass uses the shares that the first pass found.

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

  // known: at least one device, all profiled with one model. own: the new device's measured ranges
  // of that model; may be empty. batch: samples of the new device's micro-batch; known times are
  // scaled by batch / (known batch). InvalidArgument: as CheckObservations; `known` is empty; the
  // covariance is not positive definite.
  static absl::StatusOr<DeviceMixture> Fit(Known known, absl::Span<const Observation> own,
                                           int64_t batch);

  // The range must be one of the model.
  double Seconds(const LayerRange& range) const;

 private:
  // One hypothesis, conditioned on the measurements. It predicts
  //   log(seconds) = log(device's seconds) + shift + log_change(costs)
  //                  + sum over measured ranges i of coefficients[i] * CovarianceWithoutKinds(i).
  struct Part {
    size_t device = 0;     // in `known_`
    double weight = 0;     // likelihood over that of all hypotheses
    double shift = 0;      // the common factor's logarithm
    KindCosts costs = {};  // of each kind of work, new device over known device
    std::vector<double> coefficients;
  };
  DeviceMixture() = default;

  Known known_;
  std::vector<std::vector<RangeView>> own_;  // [known device][measured range]
  std::vector<Part> parts_;                  // grouped by known device
};

}  // namespace runnel
