#pragma once

// Time of each layer of a model on one device, estimated from a few measured ranges.
//
//   seconds(range) = sum of the layers' seconds
//                    + (boundary elements) * (seconds an element)
//                    + BytesBeyondCache(range) * (seconds a missed byte)
//
// The unknowns are the logarithms of the layers' seconds and of the two costs, with a Gaussian
// prior (LayerPrior). The prior's covariance lets one measured sum inform all layers that are
// alike. The estimate is the maximum a posteriori, by damped Gauss-Newton with Huber's weights.

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "predictor/fit/features.h"
#include "proto/base/plan/layer_range.h"

namespace runnel {

// The unknowns after the layers' own: seconds of a boundary's element, seconds of a missed byte.
inline constexpr size_t kDeviceCosts = 2;
// Mean and covariance of the logarithms: one entry a layer, then kDeviceCosts entries.
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
  // log_seconds: in the order of LayerPrior::mean.
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

// `noise`: relative standard deviation of a measurement (0.02). Without observations the result is
// the prior's mean. InvalidArgument: as CheckObservations; the prior's sizes are not the model's;
// its covariance is not positive definite.
absl::StatusOr<LayerTimes> FitLayerTimes(const ModelWork& work, const LayerPrior& prior,
                                         absl::Span<const Observation> observations, double noise);

}  // namespace runnel
