#pragma once

// Predicts like DeviceMixture, by another belief: the new device is one more draw from the
// distribution that all known devices are drawn from. Their logarithms of times give mean and
// covariance of any two ranges; the terms of range_view.h stand in for what so few devices cannot
// show. The measured ranges give every other one in closed form. Its errors differ from the
// mixture's, so a network that sees both answers is better than either (mlp_row.h).

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "predictor/fit/device_mixture.h"

namespace runnel {

struct PoolOptions {
  double deviation = 0.1;  // deviation of the terms of range_view.h
  // A known device with likelihood p counts p^share: 0 counts all alike.
  double likelihood_share = 0;
};

// Immutable; any thread.
class PooledDevices {
 public:
  // known, own, batch: as DeviceMixture::Fit. device: the estimate of a mixture of the same
  // arguments. InvalidArgument: the covariance is not positive definite.
  static absl::StatusOr<PooledDevices> Fit(DeviceMixture::Known known,
                                           absl::Span<const Observation> own, int64_t batch,
                                           const DeviceEstimate& device,
                                           const PoolOptions& options);

  // The range must be one of the model.
  double LogSeconds(const LayerRange& range) const;

 private:
  // One range: log(seconds) on each known device, their mean, and the likeliest one's view.
  struct Pool {
    std::vector<double> logs;
    double mean = 0;
    RangeView view;
  };
  PooledDevices() = default;
  Pool PoolOf(const LayerRange& range) const;
  double CovarianceOf(const Pool& a, const Pool& b) const;

  DeviceMixture::Known known_;
  std::vector<double> weights_;  // weights of the known devices, sum 1
  std::vector<double> shifts_;   // shifts of the known devices, for the batch size
  size_t likeliest_ = 0;
  double variance_ = 0;
  std::vector<Pool> own_;
  std::vector<double> coefficients_;  // coefficients of the measured ranges' covariances
};

}  // namespace runnel
