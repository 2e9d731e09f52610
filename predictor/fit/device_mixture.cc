#include "predictor/fit/device_mixture.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "predictor/fit/cholesky.h"
#include "predictor/fit/layer_prior.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr double kCommonVariance = 1;  // variance of the logarithm of the common factor
// Sizes of deviation, chosen with all families of the shipped profiles in sight: a nested search
// costs 0.6 points within 5 %.
constexpr double kDeviations[] = {0.02, 0.05, 0.1, 0.2, 0.4, 0.8};
constexpr double kLeastWeight = 1e-9;  // a hypothesis below it is dropped
// First pass with the known device's shares of work, second pass with the new device's. A third
// pass changes no result.
constexpr int kPasses = 2;
constexpr double kMostCost = 5;  // a factor of e^5 is a broken measurement, not a device

// One known device with one size of deviation, conditioned on the measurements.
struct Hypothesis {
  double log_likelihood = 0;         // up to a constant that all hypotheses share
  double shift = 0;                  // logarithm of the common factor
  KindCosts costs = {};              // cost of each kind of work, new device over known device
  std::vector<double> coefficients;  // [measured range], of CovarianceWithoutKinds
  std::vector<KindShares> kinds;     // [measured range]
  std::optional<Cholesky> factor;
};

// The new device's measurements in relation to one known device.
struct Measurements {
  std::vector<RangeView> views;
  std::vector<double> log_ratios;  // log(measured time / known device's time)
};

double DotProduct(const WorkVector& by_kind, const KindCosts& costs) {
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

// Empty if the covariance is not positive definite.
std::optional<Hypothesis> Condition(const KnownDevice& device, Measurements measurements,
                                    double deviation) {
  const double variance = deviation * deviation;
  std::optional<Hypothesis> result(std::in_place);
  for (int pass = 0; pass < kPasses; ++pass) {
    // log(time) as a function of the costs c, linearised at the costs c0 found so far:
    //   log_change(c) = log_change(c0) + shares(c0) * (c - c0).
    // What does not depend on c is subtracted from the measurements.
    std::vector<double> log_ratios = measurements.log_ratios;
    for (size_t i = 0; i < log_ratios.size(); ++i) {
      KindShares& kinds = measurements.views[i].kinds;
      kinds = device.SharesAt(measurements.views[i].range, result->costs);
      log_ratios[i] -= kinds.log_change - DotProduct(kinds.by_kind, result->costs);
    }
    std::optional<Cholesky> factor = Factor(measurements.views, variance);
    if (!factor.has_value()) return std::nullopt;
    const std::vector<double> solved = factor->Solve(log_ratios);
    result.emplace();
    result->log_likelihood = -factor->LogDeterminant() / 2;
    for (size_t i = 0; i < log_ratios.size(); ++i) {
      result->log_likelihood -= log_ratios[i] * solved[i] / 2;
      result->shift += kCommonVariance * solved[i];
      result->coefficients.push_back(variance * solved[i]);
      for (size_t k = 0; k < result->costs.size(); ++k) {
        result->costs[k] +=
            kKindVariance * result->coefficients[i] * measurements.views[i].kinds.by_kind[k];
      }
    }
    result->factor.emplace(*std::move(factor));
    for (double& cost : result->costs) cost = std::clamp(cost, -kMostCost, kMostCost);
  }
  for (const RangeView& view : measurements.views) result->kinds.push_back(view.kinds);
  return result;
}

Measurements CompareWith(const KnownDevice& device, absl::Span<const Observation> own,
                         double batch_shift) {
  Measurements measurements;
  for (const Observation& one : own) {
    measurements.views.push_back(device.View(one.range));
    measurements.log_ratios.push_back(std::log(one.seconds) -
                                      measurements.views.back().log_seconds - batch_shift);
  }
  return measurements;
}

}  // namespace

absl::StatusOr<DeviceMixture> DeviceMixture::Fit(Known known, absl::Span<const Observation> own,
                                                 int64_t batch) {
  if (known == nullptr || known->empty())
    return absl::InvalidArgumentError("device mixture: no device is known");
  RUNNEL_RETURN_IF_ERROR(CheckObservations(known->front().work(), own));
  DeviceMixture mixture;
  std::vector<double>& likelihoods = mixture.device_.log_likelihoods;
  for (size_t d = 0; d < known->size(); ++d) {
    const KnownDevice& device = (*known)[d];
    const double batch_shift =
        std::log(static_cast<double>(batch) / static_cast<double>(device.batch()));
    const Measurements measurements = CompareWith(device, own, batch_shift);
    likelihoods.push_back(-INFINITY);
    for (const double deviation : kDeviations) {
      std::optional<Hypothesis> one = Condition(device, measurements, deviation);
      if (!one.has_value()) {
        return absl::InvalidArgumentError(
            "device mixture: the covariance is not positive definite");
      }
      likelihoods[d] = std::max(likelihoods[d], one->log_likelihood);
      mixture.parts_.push_back({d, one->log_likelihood, batch_shift + one->shift, one->costs,
                                std::move(one->coefficients), deviation, std::move(one->kinds),
                                std::move(one->factor)});
    }
    mixture.own_.push_back(measurements.views);
  }
  const double best = *std::max_element(likelihoods.begin(), likelihoods.end());
  for (double& one : likelihoods) one -= best;
  mixture.device_.log_likelihood = own.empty() ? 0 : best / static_cast<double>(own.size());
  double sum = 0;
  for (Part& part : mixture.parts_) sum += part.weight = std::exp(part.weight - best);
  for (Part& part : mixture.parts_) part.weight /= sum;
  std::erase_if(mixture.parts_, [](const Part& part) { return part.weight < kLeastWeight; });
  mixture.known_ = std::move(known);
  mixture.DescribeDevice();
  return mixture;
}

void DeviceMixture::DescribeDevice() {
  std::vector<double> weights(known_->size(), 0);
  for (const Part& part : parts_) {
    weights[part.device] += part.weight;
    device_.log_deviation += part.weight * std::log(part.deviation);
    for (size_t k = 0; k < part.costs.size(); ++k) device_.costs[k] += part.weight * part.costs[k];
  }
  for (const double weight : weights) {
    if (weight == 0) continue;
    ++device_.devices;
    device_.entropy -= weight * std::log(weight);
  }
  device_.likeliest =
      static_cast<size_t>(std::max_element(weights.begin(), weights.end()) - weights.begin());
}

double DeviceMixture::LogSecondsBy(const Part& part, const RangeView& view,
                                   const KindShares& kinds) const {
  double log_one = view.log_seconds + part.shift + kinds.log_change;
  for (size_t i = 0; i < part.coefficients.size(); ++i)
    log_one += part.coefficients[i] * CovarianceWithoutKinds(view, own_[part.device][i]);
  return log_one;
}

// Var(r | measured) = Var(r) - k' K^-1 k, with the covariances k of r and the measured ranges and K
// of the measured ranges.
double DeviceMixture::WithinVariance(const Part& part, const RangeView& view,
                                     const KindShares& kinds) const {
  const double variance = part.deviation * part.deviation;
  RangeView own = view;
  own.kinds = kinds;
  std::vector<double> row;
  for (size_t i = 0; i < part.kinds.size(); ++i) {
    RangeView measured = own_[part.device][i];
    measured.kinds = part.kinds[i];
    row.push_back(variance * Covariance(own, measured) + kCommonVariance);
  }
  double left = variance * Covariance(own, own) + kCommonVariance;
  const std::vector<double> solved = part.factor->Solve(row);
  for (size_t i = 0; i < row.size(); ++i) left -= row[i] * solved[i];
  return std::max(left, 0.0);
}

RangeEstimate DeviceMixture::Estimate(const LayerRange& range) const {
  RangeEstimate estimate;
  std::vector<double> answers;
  double likeliest_weight = 0;
  std::array<double, kTemperatures.size()> tempered_weights = {};
  std::optional<RangeView> view;
  size_t viewed = 0;
  for (const Part& part : parts_) {
    const KnownDevice& device = (*known_)[part.device];
    if (!view.has_value() || viewed != part.device) view = device.View(range);
    viewed = part.device;
    const KindShares kinds = device.SharesAt(range, part.costs);
    const double answer = LogSecondsBy(part, *view, kinds);
    answers.push_back(answer);
    estimate.log_seconds += part.weight * answer;
    estimate.within_deviation += part.weight * std::sqrt(WithinVariance(part, *view, kinds));
    if (part.device == device_.likeliest) {
      estimate.log_likeliest += part.weight * answer;
      likeliest_weight += part.weight;
    }
    for (size_t i = 0; i < kTemperatures.size(); ++i) {
      const double weight = std::pow(part.weight, 1 / kTemperatures[i]);
      estimate.log_tempered[i] += weight * answer;
      tempered_weights[i] += weight;
    }
  }
  estimate.log_likeliest /= likeliest_weight;
  for (size_t i = 0; i < kTemperatures.size(); ++i) estimate.log_tempered[i] /= tempered_weights[i];
  for (size_t i = 0; i < parts_.size(); ++i) {
    const double off = answers[i] - estimate.log_seconds;
    estimate.between_deviation += parts_[i].weight * off * off;
  }
  estimate.between_deviation = std::sqrt(estimate.between_deviation);
  return estimate;
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
        covariances.push_back(CovarianceWithoutKinds(*view, one));
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
