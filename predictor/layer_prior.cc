#include "predictor/layer_prior.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr double kCommonDeviation = 1.0;  // of all layers at once: another speed
constexpr double kOwnDeviation = 0.1;     // of each layer by itself
constexpr double kEstimateDeviation = 0.4;
constexpr double kProfileDeviation = 1.0;
// A boundary's element before anything is known: read and written once at some GB/s.
constexpr double kBoundarySeconds = 0.3e-9;

void AddEverywhere(double variance, std::vector<double>& covariance) {
  for (double& value : covariance) value += variance;
}

void AddDiagonal(double variance, size_t size, std::vector<double>& covariance) {
  for (size_t i = 0; i < size; ++i) covariance[i * size + i] += variance;
}

// Layers go with the batch size; what a boundary's element costs does not.
double LogBatch(size_t index, size_t size, int64_t batch) {
  return index + 1 < size ? std::log(static_cast<double>(batch)) : 0.0;
}

}  // namespace

LayerPrior PriorFromDevices(absl::Span<const KnownDevice> devices, int64_t batch) {
  const size_t size = devices[0].layers.log_seconds().size();
  const auto count = static_cast<double>(devices.size());
  LayerPrior prior{std::vector<double>(size, 0), std::vector<double>(size * size, 0)};
  for (const KnownDevice& device : devices) {
    for (size_t i = 0; i < size; ++i)
      prior.mean[i] += (device.layers.log_seconds()[i] - LogBatch(i, size, device.batch)) / count;
  }
  std::vector<double> deviation(size);
  for (const KnownDevice& device : devices) {
    for (size_t i = 0; i < size; ++i) {
      deviation[i] =
          device.layers.log_seconds()[i] - LogBatch(i, size, device.batch) - prior.mean[i];
    }
    for (size_t i = 0; i < size; ++i) {
      for (size_t j = 0; j < size; ++j)
        prior.covariance[i * size + j] += deviation[i] * deviation[j] / std::max(count - 1, 1.0);
    }
  }
  for (size_t i = 0; i < size; ++i) prior.mean[i] += LogBatch(i, size, batch);
  AddEverywhere(kCommonDeviation * kCommonDeviation, prior.covariance);
  AddDiagonal(kOwnDeviation * kOwnDeviation, size, prior.covariance);
  return prior;
}

LayerPrior PriorFromEstimates(absl::Span<const double> layer_seconds, const ModelWork& work) {
  const size_t size = layer_seconds.size() + 1;
  LayerPrior prior{{}, std::vector<double>(size * size, 0)};
  for (size_t l = 0; l < layer_seconds.size(); ++l) {
    const int layer = static_cast<int>(l);
    const double boundary =
        kBoundarySeconds * work.Of({layer, layer})[static_cast<size_t>(Work::kBoundaryElements)];
    prior.mean.push_back(std::log(std::max(layer_seconds[l] - boundary, layer_seconds[l] * 0.2)));
  }
  prior.mean.push_back(std::log(kBoundarySeconds));
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
  AddDiagonal(kProfileDeviation * kProfileDeviation, singles.size() + 1, prior.covariance);
  return FitLayerTimes(work, prior, observations, kMeasurementNoise);
}

}  // namespace runnel
