#include "predictor/run/device_mixture.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "predictor/run/cholesky.h"
#include "predictor/run/layer_prior.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr double kCommonVariance = 1;  // of all ranges at once: another speed
constexpr double kDeviations[] = {0.02, 0.05, 0.1, 0.2, 0.4, 0.8};
constexpr double kLeastWeight = 1e-9;  // below it a hypothesis says nothing
// Shares of the known device's times, then those of this one's; a third time changes nothing.
constexpr int kRounds = 2;
constexpr double kMostCost = 5;  // a logarithm; measurements that ask for more are none

// One known device with one deviation, conditioned on the measurements.
struct Hypothesis {
  double log_likelihood = 0;         // but for a constant
  double shift = 0;                  // of all ranges
  KindCosts costs = {};              // of this device against the known one
  std::vector<double> coefficients;  // by measurement, of the covariance beside kinds
};

// The measurements as one known device sees them.
struct Seen {
  std::vector<RangeView> views;
  std::vector<double> off;  // logarithms of the measured times over the known device's
};

double At(const WorkVector& by_kind, const KindCosts& costs) {
  double sum = 0;
  for (size_t k = 0; k < costs.size(); ++k) sum += by_kind[k] * costs[k];
  return sum;
}

std::optional<Cholesky> Factor(const std::vector<RangeView>& views, double variance) {
  const size_t size = views.size();
  std::vector<double> matrix(size * size);
  for (size_t i = 0; i < size; ++i) {
    for (size_t j = 0; j <= i; ++j)
      matrix[i * size + j] = Covariance(views[i], views[j]) * variance + kCommonVariance;
    matrix[i * size + i] += kMeasurementNoise * kMeasurementNoise;
  }
  return Cholesky::Factor(matrix, size);
}

// Nothing if the covariance is not positive definite.
std::optional<Hypothesis> Condition(const KnownDevice& device, Seen seen, double deviation) {
  const double variance = deviation * deviation;
  Hypothesis result;
  for (int round = 0; round < kRounds; ++round) {
    // Around these costs a range's time goes with the kinds' shares of it.
    std::vector<double> off = seen.off;
    for (size_t i = 0; i < off.size(); ++i) {
      KindShares& kinds = seen.views[i].kinds;
      kinds = device.SharesAt(seen.views[i].range, result.costs);
      off[i] -= kinds.log_change - At(kinds.by_kind, result.costs);
    }
    const std::optional<Cholesky> factor = Factor(seen.views, variance);
    if (!factor.has_value()) return std::nullopt;
    const std::vector<double> solved = factor->Solve(off);
    result = {.log_likelihood = -factor->LogDeterminant() / 2};
    for (size_t i = 0; i < off.size(); ++i) {
      result.log_likelihood -= off[i] * solved[i] / 2;
      result.shift += kCommonVariance * solved[i];
      result.coefficients.push_back(variance * solved[i]);
      for (size_t k = 0; k < result.costs.size(); ++k) {
        result.costs[k] += kKindVariance * result.coefficients[i] * seen.views[i].kinds.by_kind[k];
      }
    }
    for (double& cost : result.costs) cost = std::clamp(cost, -kMostCost, kMostCost);
  }
  return result;
}

Seen SeenBy(const KnownDevice& device, absl::Span<const Observation> own, double batch_shift) {
  Seen seen;
  for (const Observation& one : own) {
    seen.views.push_back(device.View(one.range));
    seen.off.push_back(std::log(one.seconds) - seen.views.back().log_seconds - batch_shift);
  }
  return seen;
}

}  // namespace

absl::StatusOr<DeviceMixture> DeviceMixture::Fit(Known known, absl::Span<const Observation> own,
                                                 int64_t batch) {
  if (known == nullptr || known->empty())
    return absl::InvalidArgumentError("device mixture: no device is known");
  RUNNEL_RETURN_IF_ERROR(CheckObservations(known->front().work(), own));
  DeviceMixture mixture;
  double best = -INFINITY;
  for (size_t d = 0; d < known->size(); ++d) {
    const KnownDevice& device = (*known)[d];
    const double batch_shift =
        std::log(static_cast<double>(batch) / static_cast<double>(device.batch()));
    const Seen seen = SeenBy(device, own, batch_shift);
    for (const double deviation : kDeviations) {
      std::optional<Hypothesis> one = Condition(device, seen, deviation);
      if (!one.has_value()) {
        return absl::InvalidArgumentError(
            "device mixture: the covariance is not positive definite");
      }
      best = std::max(best, one->log_likelihood);
      mixture.parts_.push_back({d, one->log_likelihood, batch_shift + one->shift, one->costs,
                                std::move(one->coefficients)});
    }
    mixture.own_.push_back(seen.views);
  }
  double sum = 0;
  for (Part& part : mixture.parts_) sum += part.weight = std::exp(part.weight - best);
  for (Part& part : mixture.parts_) part.weight /= sum;
  std::erase_if(mixture.parts_, [](const Part& part) { return part.weight < kLeastWeight; });
  mixture.known_ = std::move(known);
  return mixture;
}

double DeviceMixture::Seconds(const LayerRange& range) const {
  double log_seconds = 0, weights = 0;
  std::optional<RangeView> view;
  std::vector<double> covariances;
  size_t viewed = 0;
  for (const Part& part : parts_) {
    const KnownDevice& device = (*known_)[part.device];
    if (!view.has_value() || viewed != part.device) {
      view = device.View(range);
      viewed = part.device;
      covariances.clear();
      for (const RangeView& one : own_[part.device])
        covariances.push_back(CovarianceBesideKinds(*view, one));
    }
    double log_one = view->log_seconds + part.shift + device.SharesAt(range, part.costs).log_change;
    for (size_t i = 0; i < covariances.size(); ++i)
      log_one += part.coefficients[i] * covariances[i];
    log_seconds += part.weight * log_one;
    weights += part.weight;
  }
  return std::exp(log_seconds / weights);
}

}  // namespace runnel
