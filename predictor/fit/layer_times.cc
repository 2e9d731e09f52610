#include "predictor/fit/layer_times.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "predictor/fit/cholesky.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr int kIterations = 60;
// corner between square and line of Huber's loss, in standard deviations
constexpr double kHuberCorner = 2;
constexpr double kLongestStep = 1.5;  // largest change of a logarithm in one Gauss-Newton step
constexpr double kEnough = 1e-7;      // stop when the objective falls by less than this

// The factors of the kDeviceCosts in a range's time: boundary elements, bytes beyond the cache.
std::array<double, kDeviceCosts> CostCounts(const ModelWork& work, const LayerRange& range) {
  return {work.Of(range)[static_cast<size_t>(Work::kBoundaryElements)],
          work.BytesBeyondCache(range)};
}

// The fit of one device.
class Fit {
 public:
  Fit(const ModelWork& work, const LayerPrior& prior, absl::Span<const Observation> observations,
      double noise)
      : prior_(prior), observations_(observations), noise_(noise), size_(prior.mean.size()) {
    for (const Observation& one : observations) {
      counts_.push_back(CostCounts(work, one.range));
      target_.push_back(std::log(one.seconds));
    }
  }

  absl::StatusOr<std::vector<double>> Run() {
    const std::optional<Cholesky> covariance = Cholesky::Factor(prior_.covariance, size_);
    if (!covariance.has_value())
      return absl::InvalidArgumentError("layer times: the covariance is not positive definite");
    precision_ = covariance->Inverse();
    std::vector<double> x = prior_.mean;
    double cost = Linearise(x);
    double damping = 1e-3;
    for (int i = 0; i < kIterations; ++i) {
      const std::optional<std::vector<double>> step = Step(damping);
      std::vector<double> next = x;
      for (size_t k = 0; step.has_value() && k < size_; ++k)
        next[k] += std::clamp((*step)[k], -kLongestStep, kLongestStep);
      Fit trial = *this;
      const double next_cost = step.has_value() ? trial.Linearise(next) : cost;
      if (next_cost < cost) {
        const double fall = cost - next_cost;
        *this = std::move(trial);
        x = std::move(next);
        cost = next_cost;
        if (fall < kEnough) break;
        damping = std::max(damping / 5, 1e-9);
      } else {
        damping *= 5;
        if (damping > 1e9) break;
      }
    }
    return x;
  }

 private:
  // The objective at x; fills gradient_ and hessian_.
  double Linearise(const std::vector<double>& x) {
    hessian_ = precision_;
    gradient_.assign(size_, 0);
    double cost = 0;
    for (size_t a = 0; a < size_; ++a) {
      for (size_t b = 0; b < size_; ++b)
        gradient_[a] -= precision_[a * size_ + b] * (x[b] - prior_.mean[b]);
      cost -= gradient_[a] * (x[a] - prior_.mean[a]) / 2;
    }
    for (size_t i = 0; i < observations_.size(); ++i) cost += AddObservation(i, x);
    return cost;
  }

  double AddObservation(size_t i, const std::vector<double>& x) {
    const auto first = static_cast<size_t>(observations_[i].range.first_layer);
    const auto last = static_cast<size_t>(observations_[i].range.last_layer);
    std::vector<double> share(size_, 0);
    double seconds = 0;
    for (size_t l = first; l <= last; ++l) seconds += share[l] = std::exp(x[l]);
    for (size_t k = 0; k < kDeviceCosts; ++k) {
      const size_t at = size_ - kDeviceCosts + k;
      seconds += share[at] = std::exp(x[at]) * counts_[i][k];
    }
    const double z = (target_[i] - std::log(seconds)) / noise_;
    const double weight = std::abs(z) < kHuberCorner ? 1 : kHuberCorner / std::abs(z);
    for (size_t a = 0; a < size_; ++a) {
      share[a] /= seconds * noise_;
      gradient_[a] += weight * z * share[a];
      if (share[a] == 0) continue;
      for (size_t b = 0; b <= a; ++b) hessian_[a * size_ + b] += weight * share[a] * share[b];
    }
    return std::abs(z) < kHuberCorner ? z * z / 2 : kHuberCorner * (std::abs(z) - kHuberCorner / 2);
  }

  std::optional<std::vector<double>> Step(double damping) const {
    std::vector<double> matrix = hessian_;
    for (size_t a = 0; a < size_; ++a) matrix[a * size_ + a] *= 1 + damping;
    const std::optional<Cholesky> factor = Cholesky::Factor(matrix, size_);
    if (!factor.has_value()) return std::nullopt;
    return factor->Solve(gradient_);
  }

  LayerPrior prior_;
  absl::Span<const Observation> observations_;
  double noise_;
  size_t size_;
  std::vector<std::array<double, kDeviceCosts>> counts_;
  std::vector<double> target_;
  std::vector<double> precision_;
  std::vector<double> gradient_;  // negative gradient
  std::vector<double> hessian_;   // lower triangle
};

absl::Status CheckInputs(const ModelWork& work, const LayerPrior& prior,
                         absl::Span<const Observation> observations, double noise) {
  const auto size = static_cast<size_t>(work.layers()) + kDeviceCosts;
  if (prior.mean.size() != size || prior.covariance.size() != size * size) {
    return absl::InvalidArgumentError(absl::StrCat("layer times: the prior has ", prior.mean.size(),
                                                   " entries, the model asks for ", size));
  }
  if (!(noise > 0)) return absl::InvalidArgumentError("layer times: noise must be above 0");
  return CheckObservations(work, observations);
}

}  // namespace

absl::Status CheckObservations(const ModelWork& work, absl::Span<const Observation> observations) {
  for (const Observation& one : observations) {
    if (one.range.first_layer < 0 || one.range.last_layer < one.range.first_layer ||
        one.range.last_layer >= work.layers() || !(one.seconds > 0) ||
        !std::isfinite(one.seconds)) {
      return absl::InvalidArgumentError(
          absl::StrCat("layer times: layers ", one.range.first_layer, " to ", one.range.last_layer,
                       " in ", one.seconds, " s is no measurement of this model"));
    }
  }
  return absl::OkStatus();
}

LayerTimes::LayerTimes(const ModelWork& work, std::vector<double> log_seconds)
    : work_(work), log_seconds_(std::move(log_seconds)), sums_({0}) {
  for (int l = 0; l < work_.layers(); ++l)
    sums_.push_back(sums_.back() + std::exp(log_seconds_[static_cast<size_t>(l)]));
}

double LayerTimes::Seconds(const LayerRange& range) const {
  double seconds = sums_[static_cast<size_t>(range.last_layer) + 1] -
                   sums_[static_cast<size_t>(range.first_layer)];
  const std::array<double, kDeviceCosts> counts = CostCounts(work_, range);
  for (size_t k = 0; k < kDeviceCosts; ++k)
    seconds += std::exp(log_seconds_[log_seconds_.size() - kDeviceCosts + k]) * counts[k];
  return seconds;
}

absl::StatusOr<LayerTimes> FitLayerTimes(const ModelWork& work, const LayerPrior& prior,
                                         absl::Span<const Observation> observations, double noise) {
  RUNNEL_RETURN_IF_ERROR(CheckInputs(work, prior, observations, noise));
  RUNNEL_ASSIGN_OR_RETURN(std::vector<double> log_seconds,
                          Fit(work, prior, observations, noise).Run());
  return LayerTimes(work, std::move(log_seconds));
}

}  // namespace runnel
