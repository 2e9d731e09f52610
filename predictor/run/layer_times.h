#pragma once

// What each layer of a model takes on one device, from a few measured sub-models: the predictor's
// correction for the device at hand, in plain code.
//
// The time of a range is the sum of its layers' times, plus what its two boundaries cost, plus what
// the caches no longer hold when more layers take turns (ModelWork::BytesBeyondCache). The
// logarithms of these are Gaussian beforehand (from other devices, or from the network): a handful
// of sums of layers then tells more than a handful of numbers, since layers that other devices show
// to be alike stay alike. A maximum-a-posteriori fit, by damped Gauss-Newton with Huber's weights.

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "predictor/run/features.h"
#include "proto/base/layer_range.h"

namespace runnel {

// Of the logarithms: one entry a layer, then kDeviceCosts: the seconds of a boundary's element and
// of a byte from beyond the cache.
inline constexpr size_t kDeviceCosts = 2;
struct LayerPrior {
  std::vector<double> mean;
  std::vector<double> covariance;  // row-major
};

struct Observation {
  LayerRange range;
  double seconds = 0;
};

class LayerTimes {
 public:
  // log_seconds: as LayerPrior's.
  LayerTimes(const ModelWork& work, std::vector<double> log_seconds);

  double Seconds(const LayerRange& range) const;
  absl::Span<const double> log_seconds() const { return log_seconds_; }
  const ModelWork& work() const { return work_; }

 private:
  ModelWork work_;
  std::vector<double> log_seconds_;
  std::vector<double> sums_;  // seconds of the first l layers
};

// InvalidArgument: a range that the model does not have, seconds that are not above 0 or not
// finite.
absl::Status CheckObservations(const ModelWork& work, absl::Span<const Observation> observations);

// `noise`: standard deviation of a measurement, relative (0.02). No observations: the prior's mean.
// InvalidArgument: see CheckObservations; sizes that do not fit, a covariance that is not positive
// definite.
absl::StatusOr<LayerTimes> FitLayerTimes(const ModelWork& work, const LayerPrior& prior,
                                         absl::Span<const Observation> observations, double noise);

}  // namespace runnel
