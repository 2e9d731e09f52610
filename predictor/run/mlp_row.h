#pragma once

// The row `mlp`: a network of AccEPT's shape (two streams, four layers) that corrects the mixture
// of known devices. Its inputs are the answers of the mixture and its relatives and their
// uncertainty; its output is log(measured time / mixture's answer). With weights of 0 it is the
// mixture.
// On line the network's weights stay. Each report conditions the mixture anew, in closed form, so
// the network's inputs change; it was trained on devices with 0 to 14 such samples.

#include <array>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "predictor/fit/device_mixture.h"
#include "predictor/fit/pooled_devices.h"
#include "predictor/run/predictor_row.h"

namespace runnel {

inline constexpr int kMlpRangeInputs = 8;
inline constexpr int kMlpDeviceInputs = 6 + (kWorkKinds - 1);
// The network corrects by at most a factor of e^0.3 either way.
inline constexpr double kMostCorrection = 0.3;

// One device as the network sees it. Immutable; any thread.
class MlpView {
 public:
  // samples: how many of `own` were measured beside the representatives. Errors as
  // DeviceMixture::Fit and PooledDevices::Fit.
  static absl::StatusOr<MlpView> Fit(const DeviceMixture::Known& known,
                                     absl::Span<const Observation> own, int64_t batch,
                                     size_t samples);

  // The second stream's inputs: how alike the known devices are to this one, the cost of each kind
  // of work on it, its speed.
  const std::vector<float>& device() const { return device_; }
  struct Range {
    double log_mixture = 0;  // the mixture's log(seconds)
    // The first stream's inputs: other answers over the mixture's, as logarithms; how far the
    // hypotheses disagree, and how unsure each is.
    std::vector<float> inputs;
  };
  Range View(const LayerRange& range) const;

 private:
  MlpView(DeviceMixture mixture, std::vector<PooledDevices> pools)
      : mixture_(std::move(mixture)), pools_(std::move(pools)) {}

  DeviceMixture mixture_;
  std::vector<PooledDevices> pools_;
  std::vector<float> device_;
};

// InvalidArgument as MlpView::Fit, or where the network has other inputs.
absl::StatusOr<std::unique_ptr<const RangePredictor>> FitMlp(const PredictorKnowledge& knowledge,
                                                             absl::Span<const Observation> measured,
                                                             absl::Span<const Observation> samples);

}  // namespace runnel
