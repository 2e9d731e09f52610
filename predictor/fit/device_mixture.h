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

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "predictor/fit/cholesky.h"
#include "predictor/fit/known_device.h"
#include "predictor/fit/layer_times.h"

namespace runnel {

// A hypothesis with likelihood p counts p^(1 / temperature) in RangeEstimate::tempered: the higher,
// the less the mixture trusts a few measurements to tell known devices apart.
inline constexpr std::array<double, 3> kTemperatures = {2, 4, 8};

// The mixture's estimate of one range.
struct RangeEstimate {
  double log_seconds = 0;
  // Standard deviations of log(seconds): of the hypotheses' answers around log_seconds, and of the
  // range within one hypothesis (mean over the hypotheses).
  double between_deviation = 0;
  double within_deviation = 0;
  double log_likeliest = 0;  // log(seconds) by the hypotheses of the likeliest known device alone
  std::array<double, kTemperatures.size()> log_tempered = {};
};

// The mixture's estimate of the new device. Means over the hypotheses.
struct DeviceEstimate {
  KindCosts costs = {};
  double log_deviation = 0;   // logarithm of the size s of the deviation
  double entropy = 0;         // entropy of the known devices' weights
  double log_likelihood = 0;  // a measured range, of the best hypothesis
  int devices = 0;            // known devices that count at all
  size_t likeliest = 0;       // index of the likeliest known device
  // Log-likelihood of each known device's best hypothesis, relative to the best of all; at most 0.
  std::vector<double> log_likelihoods;
};

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
  // The estimate of a range with its uncertainty.
  RangeEstimate Estimate(const LayerRange& range) const;
  const DeviceEstimate& device() const { return device_; }

 private:
  // One hypothesis, conditioned on the measurements. It predicts
  //   log(seconds) = log(device's seconds) + shift + log_change(costs)
  //                  + sum over measured ranges i of coefficients[i] * CovarianceWithoutKinds(i).
  struct Part {
    size_t device = 0;     // in `known_`
    double weight = 0;     // likelihood over that of all hypotheses
    double shift = 0;      // the common factor's logarithm
    KindCosts costs = {};  // cost of each kind of work, new device over known device
    std::vector<double> coefficients;
    double deviation = 0;            // s
    std::vector<KindShares> kinds;   // kinds of the measured ranges, at the first pass's costs
    std::optional<Cholesky> factor;  // factor of the measured ranges' covariance
  };
  DeviceMixture() = default;
  void DescribeDevice();
  double LogSecondsBy(const Part& part, const RangeView& view, const KindShares& kinds) const;
  double WithinVariance(const Part& part, const RangeView& view, const KindShares& kinds) const;

  Known known_;
  DeviceEstimate device_;
  std::vector<std::vector<RangeView>> own_;  // [known device][measured range]
  std::vector<Part> parts_;                  // grouped by known device
};

}  // namespace runnel
