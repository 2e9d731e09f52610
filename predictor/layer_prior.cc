#include "predictor/layer_prior.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

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
constexpr double kByteSeconds = 0.1e-9;  // from beyond the cache
constexpr double kLikeness = 0.2;        // root of the summed squares of what is left unexplained
constexpr double kNeighbour = 0.4;       // layers over which a miss fades
constexpr double kNoMiss = 0.05;         // weight of the assumption that there is none
constexpr double kLargestMiss = 0.5;     // of one measurement that counts

void AddEverywhere(double variance, std::vector<double>& covariance) {
  for (double& value : covariance) value += variance;
}

void AddDiagonal(double variance, size_t size, std::vector<double>& covariance) {
  for (size_t i = 0; i < size; ++i) covariance[i * size + i] += variance;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// A known device, turned to the batch size and the speed of the one at hand.
struct Likeness {
  std::vector<double> log_seconds;
  double misses = 0;  // summed squares
};

Likeness Compare(const KnownDevice& device, absl::Span<const Observation> own, int64_t batch) {
  Likeness result;
  const absl::Span<const double> known = device.layers.log_seconds();
  result.log_seconds.assign(known.begin(), known.end());
  const double ratio = std::log(static_cast<double>(batch) / static_cast<double>(device.batch));
  for (size_t l = 0; l + kDeviceCosts < known.size(); ++l) result.log_seconds[l] += ratio;
  const LayerTimes turned(device.layers.work(), result.log_seconds);
  std::vector<double> misses;
  for (const Observation& one : own)
    misses.push_back(std::log(one.seconds / turned.Seconds(one.range)) - device.MissAt(one.range));
  const double speed = misses.empty() ? 0 : Median(misses);
  for (double& value : result.log_seconds) value += speed;
  for (const double miss : misses) {
    const double left = std::min(std::abs(miss - speed), kLargestMiss);
    result.misses += left * left;
  }
  return result;
}

}  // namespace

double KnownDevice::MissAt(const LayerRange& range) const {
  double sum = 0, weights = kNoMiss;
  for (const Miss& miss : misses) {
    const int far = std::abs(miss.range.first_layer - range.first_layer) +
                    std::abs(miss.range.last_layer - range.last_layer);
    const double weight = std::exp(-far / kNeighbour);
    sum += weight * miss.log_ratio;
    weights += weight;
  }
  return sum / weights;
}

absl::StatusOr<KnownDevice> MakeKnownDevice(const ModelWork& work, int64_t batch,
                                            absl::Span<const Observation> observations) {
  RUNNEL_ASSIGN_OR_RETURN(LayerTimes layers, FitProfile(work, observations));
  KnownDevice device{std::move(layers), batch, {}};
  for (const Observation& one : observations)
    device.misses.push_back({one.range, std::log(one.seconds / device.layers.Seconds(one.range))});
  return device;
}

LayerPrior PriorFromDevices(absl::Span<const KnownDevice> devices,
                            absl::Span<const Observation> own, int64_t batch) {
  std::vector<Likeness> likes;
  for (const KnownDevice& device : devices) likes.push_back(Compare(device, own, batch));
  double best = likes[0].misses;
  for (const Likeness& like : likes) best = std::min(best, like.misses);
  std::vector<double> weights;
  double sum = 0;
  for (const Likeness& like : likes) {
    weights.push_back(std::exp((best - like.misses) / (2 * kLikeness * kLikeness)));
    sum += weights.back();
  }
  const size_t size = likes[0].log_seconds.size();
  LayerPrior prior{std::vector<double>(size, 0), std::vector<double>(size * size, 0)};
  for (size_t d = 0; d < likes.size(); ++d) {
    for (size_t i = 0; i < size; ++i) prior.mean[i] += weights[d] / sum * likes[d].log_seconds[i];
  }
  for (size_t d = 0; d < likes.size(); ++d) {
    for (size_t i = 0; i < size; ++i) {
      const double deviation = likes[d].log_seconds[i] - prior.mean[i];
      for (size_t j = 0; j < size; ++j) {
        prior.covariance[i * size + j] +=
            weights[d] / sum * deviation * (likes[d].log_seconds[j] - prior.mean[j]);
      }
    }
  }
  for (double& weight : weights) weight /= sum;
  prior.correction = [known = std::vector<KnownDevice>(devices.begin(), devices.end()),
                      weights = std::move(weights)](const LayerRange& range) {
    double miss = 0;
    for (size_t d = 0; d < known.size(); ++d) {
      if (weights[d] > 1e-6) miss += weights[d] * known[d].MissAt(range);
    }
    return miss;
  };
  AddEverywhere(kCommonDeviation * kCommonDeviation, prior.covariance);
  AddDiagonal(kOwnDeviation * kOwnDeviation, size, prior.covariance);
  return prior;
}

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
  prior.mean.push_back(std::log(kByteSeconds));
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
