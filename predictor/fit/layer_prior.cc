#include "predictor/fit/layer_prior.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// Standard deviations of logarithms of times.
constexpr double kCommonDeviation = 1.0;    // of a factor of all layers: the device's speed
constexpr double kEstimateDeviation = 0.4;  // of one layer's estimate in the prior
constexpr double kProfileDeviation = 1.0;  // of a profiled layer: wide, so that measurements decide
// Prior time of a boundary's element: read and written once at some GB/s.
constexpr double kBoundarySeconds = 0.3e-9;

void AddEverywhere(double variance, std::vector<double>& covariance) {
  for (double& value : covariance) value += variance;
}

void AddDiagonal(double variance, size_t size, std::vector<double>& covariance) {
  for (size_t i = 0; i < size; ++i) covariance[i * size + i] += variance;
}

}  // namespace

LayerPrior PriorFromEstimates(absl::Span<const double> layer_seconds, const ModelWork& work) {
  const size_t size = layer_seconds.size() + kDeviceCosts;
  LayerPrior prior{{}, std::vector<double>(size * size, 0)};
  for (size_t l = 0; l < layer_seconds.size(); ++l) {
    const int layer = static_cast<int>(l);
    const double boundary =
        kBoundarySeconds * work.Of({layer, layer})[static_cast<size_t>(Work::kBoundaryElements)];
    prior.mean.push_back(std::log(std::max(layer_seconds[l] - boundary, layer_seconds[l] * 0.2)));
  }
  prior.mean.push_back(std::log(kBoundarySeconds));
  prior.mean.push_back(std::log(kBeyondCacheByteSeconds));
  AddEverywhere(kCommonDeviation * kCommonDeviation, prior.covariance);
  AddDiagonal(kEstimateDeviation * kEstimateDeviation, size, prior.covariance);
  return prior;
}

absl::StatusOr<LayerTimes> FitProfile(const ModelWork& work,
                                      absl::Span<const Observation> observations) {
  std::vector<double> singles(static_cast<size_t>(work.layers()), 0);
  for (const Observation& one : observations) {
    if (one.range.first_layer == one.range.last_layer && one.range.last_layer < work.layers() &&
        one.range.first_layer >= 0)
      singles[static_cast<size_t>(one.range.first_layer)] = one.seconds;
  }
  for (size_t l = 0; l < singles.size(); ++l) {
    if (singles[l] > 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("layer times: layer ", l, " was not measured by itself"));
  }
  LayerPrior prior = PriorFromEstimates(singles, work);
  std::fill(prior.covariance.begin(), prior.covariance.end(), 0);
  AddDiagonal(kProfileDeviation * kProfileDeviation, prior.mean.size(), prior.covariance);
  return FitLayerTimes(work, prior, observations, kMeasurementNoise);
}

}  // namespace runnel
