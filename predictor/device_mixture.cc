#include "predictor/device_mixture.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "predictor/cholesky.h"
#include "predictor/layer_prior.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr double kCommonVariance = 1;  // of all ranges at once: another speed
constexpr double kDeviations[] = {0.02, 0.05, 0.1, 0.2, 0.4, 0.8};
constexpr double kLeastWeight = 1e-9;  // below it a known device says nothing

// One known device with one deviation, conditioned on the measurements.
struct Hypothesis {
  double log_likelihood = 0;         // but for a constant
  std::vector<double> coefficients;  // of the measurements: inverse covariance times what is off
};

std::vector<double> Covariances(absl::Span<const RangeView> views) {
  const size_t size = views.size();
  std::vector<double> covariances(size * size);
  for (size_t i = 0; i < size; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      covariances[i * size + j] = covariances[j * size + i] = Covariance(views[i], views[j]);
    }
  }
  return covariances;
}

// off: logarithms of the measured times over the known device's.
std::optional<Hypothesis> Condition(absl::Span<const double> covariances, double deviation,
                                    absl::Span<const double> off) {
  const size_t size = off.size();
  std::vector<double> matrix(covariances.begin(), covariances.end());
  for (double& value : matrix) value = value * deviation * deviation + kCommonVariance;
  for (size_t i = 0; i < size; ++i) matrix[i * size + i] += kMeasurementNoise * kMeasurementNoise;
  const std::optional<Cholesky> factor = Cholesky::Factor(matrix, size);
  if (!factor.has_value()) return std::nullopt;
  Hypothesis result;
  result.coefficients = factor->Solve(off);
  result.log_likelihood = -factor->LogDeterminant() / 2;
  for (size_t i = 0; i < size; ++i) result.log_likelihood -= off[i] * result.coefficients[i] / 2;
  return result;
}

// By deviation.
absl::StatusOr<std::vector<Hypothesis>> ConditionAll(absl::Span<const RangeView> views,
                                                     absl::Span<const double> off) {
  const std::vector<double> covariances = Covariances(views);
  std::vector<Hypothesis> hypotheses;
  for (const double deviation : kDeviations) {
    std::optional<Hypothesis> one = Condition(covariances, deviation, off);
    if (!one.has_value()) {
      return absl::InvalidArgumentError("device mixture: the covariance is not positive definite");
    }
    hypotheses.push_back(*std::move(one));
  }
  return hypotheses;
}

}  // namespace

absl::StatusOr<DeviceMixture> DeviceMixture::Fit(Known known, absl::Span<const Observation> own,
                                                 int64_t batch) {
  if (known == nullptr || known->empty())
    return absl::InvalidArgumentError("device mixture: no device is known");
  RUNNEL_RETURN_IF_ERROR(CheckObservations(known->front().work(), own));
  DeviceMixture mixture;
  std::vector<std::vector<Hypothesis>> hypotheses;  // by known device and deviation
  double best = -INFINITY;
  for (size_t d = 0; d < known->size(); ++d) {
    const KnownDevice& device = (*known)[d];
    Part part{
        d, 0, std::log(static_cast<double>(batch) / static_cast<double>(device.batch())), {}, {}};
    std::vector<double> off;
    for (const Observation& one : own) {
      part.views.push_back(device.View(one.range));
      off.push_back(std::log(one.seconds) - part.views.back().log_seconds - part.shift);
    }
    RUNNEL_ASSIGN_OR_RETURN(std::vector<Hypothesis> one_device, ConditionAll(part.views, off));
    for (const Hypothesis& one : one_device) best = std::max(best, one.log_likelihood);
    hypotheses.push_back(std::move(one_device));
    part.coefficients.assign(own.size(), 0);
    mixture.parts_.push_back(std::move(part));
  }
  double sum = 0;
  for (const std::vector<Hypothesis>& device : hypotheses) {
    for (const Hypothesis& one : device) sum += std::exp(one.log_likelihood - best);
  }
  for (Part& part : mixture.parts_) {
    double common = 0;
    for (size_t s = 0; s < std::size(kDeviations); ++s) {
      const Hypothesis& one = hypotheses[part.device][s];
      const double weight = std::exp(one.log_likelihood - best) / sum;
      part.weight += weight;
      for (size_t i = 0; i < own.size(); ++i) {
        part.coefficients[i] += weight * kDeviations[s] * kDeviations[s] * one.coefficients[i];
        common += weight * kCommonVariance * one.coefficients[i];
      }
    }
    if (part.weight > 0) part.shift += common / part.weight;
  }
  std::erase_if(mixture.parts_, [](const Part& part) { return part.weight < kLeastWeight; });
  mixture.known_ = std::move(known);
  return mixture;
}

double DeviceMixture::Seconds(const LayerRange& range) const {
  double log_seconds = 0, weights = 0;
  for (const Part& part : parts_) {
    const RangeView view = (*known_)[part.device].View(range);
    log_seconds += part.weight * (view.log_seconds + part.shift);
    for (size_t i = 0; i < part.views.size(); ++i)
      log_seconds += part.coefficients[i] * Covariance(view, part.views[i]);
    weights += part.weight;
  }
  return std::exp(log_seconds / weights);
}

}  // namespace runnel
