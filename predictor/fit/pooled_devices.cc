#include "predictor/fit/pooled_devices.h"

#include <cmath>
#include <optional>
#include <utility>

#include "predictor/fit/cholesky.h"
#include "predictor/fit/layer_prior.h"

namespace runnel {
namespace {

// variance of the logarithm of a factor that all ranges share
constexpr double kCommonVariance = 1;

}  // namespace

PooledDevices::Pool PooledDevices::PoolOf(const LayerRange& range) const {
  Pool pool;
  for (size_t d = 0; d < known_->size(); ++d) {
    RangeView view = (*known_)[d].View(range);
    pool.logs.push_back(view.log_seconds + shifts_[d]);
    pool.mean += weights_[d] * pool.logs.back();
    if (d == likeliest_) pool.view = std::move(view);
  }
  return pool;
}

double PooledDevices::CovarianceOf(const Pool& a, const Pool& b) const {
  double covariance = variance_ * Covariance(a.view, b.view) + kCommonVariance;
  for (size_t d = 0; d < weights_.size(); ++d)
    covariance += weights_[d] * (a.logs[d] - a.mean) * (b.logs[d] - b.mean);
  return covariance;
}

absl::StatusOr<PooledDevices> PooledDevices::Fit(DeviceMixture::Known known,
                                                 absl::Span<const Observation> own, int64_t batch,
                                                 const DeviceEstimate& device,
                                                 const PoolOptions& options) {
  PooledDevices pooled;
  pooled.known_ = std::move(known);
  pooled.likeliest_ = device.likeliest;
  pooled.variance_ = options.deviation * options.deviation;
  double sum = 0;
  for (size_t d = 0; d < pooled.known_->size(); ++d) {
    pooled.weights_.push_back(std::exp(options.likelihood_share * device.log_likelihoods[d]));
    sum += pooled.weights_.back();
    pooled.shifts_.push_back(
        std::log(static_cast<double>(batch) / static_cast<double>((*pooled.known_)[d].batch())));
  }
  for (double& weight : pooled.weights_) weight /= sum;
  std::vector<double> off;
  for (const Observation& one : own) {
    pooled.own_.push_back(pooled.PoolOf(one.range));
    off.push_back(std::log(one.seconds) - pooled.own_.back().mean);
  }
  const size_t size = own.size();
  std::vector<double> matrix(size * size);
  for (size_t i = 0; i < size; ++i) {
    for (size_t j = 0; j <= i; ++j)
      matrix[i * size + j] = pooled.CovarianceOf(pooled.own_[i], pooled.own_[j]);
    matrix[i * size + i] += kMeasurementNoise * kMeasurementNoise;
  }
  const std::optional<Cholesky> factor = Cholesky::Factor(matrix, size);
  if (!factor.has_value())
    return absl::InvalidArgumentError("pooled devices: the covariance is not positive definite");
  pooled.coefficients_ = factor->Solve(off);
  return pooled;
}

double PooledDevices::LogSeconds(const LayerRange& range) const {
  const Pool pool = PoolOf(range);
  double log_seconds = pool.mean;
  for (size_t i = 0; i < own_.size(); ++i)
    log_seconds += coefficients_[i] * CovarianceOf(pool, own_[i]);
  return log_seconds;
}

}  // namespace runnel
