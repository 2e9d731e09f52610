#pragma once

// The latency predictor of one device during a run (AccEPT 3.2): predicts the time of every
// sub-model from ten measured representatives, and adapts with each stage time that the device
// reports.
//
// Dynamic prediction: if |reported / predicted - 1| > epsilon, the device has changed. Its
// representatives must be measured again, then the plan is made anew. Adaptive update: a reported
// time within epsilon becomes a sample. Each update fits to the representatives and to all kept
// samples again, so that earlier samples are not forgotten (rehearsal).

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "predictor/run/device_mixture.h"
#include "predictor/run/layer_prior.h"
#include "predictor/run/layer_times.h"

namespace runnel {

struct PredictorOptions {
  // Relative error that a report may have. Larger than the noise of a measurement (3 %), smaller
  // than a change that a new plan would gain from.
  double epsilon = 0.15;
  size_t kept_samples = 64;  // the newest reported times
};

enum class ReportOutcome {
  kLearned,  // within epsilon: the report is a sample now
  kMeasure,  // beyond epsilon: measure the representatives again (Characterise), then plan
};

// One device and one model at one batch size. Not thread-safe.
class DevicePredictor {
 public:
  // For a model that was never profiled. `representatives`: measured times of up to ten ranges
  // (sub_models.h); without any the prior alone predicts. Errors as FitLayerTimes.
  static absl::StatusOr<DevicePredictor> Create(const ModelWork& work, LayerPrior prior,
                                                absl::Span<const Observation> representatives,
                                                const PredictorOptions& options = {});
  // For a model that the `known` devices were profiled with. batch: samples of a micro-batch.
  // Errors as DeviceMixture::Fit.
  static absl::StatusOr<DevicePredictor> Create(DeviceMixture::Known known, int64_t batch,
                                                absl::Span<const Observation> representatives,
                                                const PredictorOptions& options = {});

  // The range must be one of the model.
  double Seconds(const LayerRange& range) const;
  // The device's measured time for its stage. Errors as Create; the predictor is unchanged then.
  absl::StatusOr<ReportOutcome> Report(const Observation& reported);
  // The representatives, measured again after kMeasure. Drops all samples. Errors as Create.
  absl::Status Characterise(absl::Span<const Observation> representatives);

  size_t samples() const { return samples_.size(); }

 private:
  // The knowledge before any measurement of this device.
  struct ColdStart {
    ModelWork work;
    LayerPrior prior;
  };
  struct Profiled {
    DeviceMixture::Known known;
    int64_t batch = 0;
  };
  using Basis = std::variant<ColdStart, Profiled>;
  using Times = std::variant<LayerTimes, DeviceMixture>;

  DevicePredictor(Basis basis, PredictorOptions options, Times times,
                  absl::Span<const Observation> representatives)
      : basis_(std::move(basis)),
        options_(options),
        times_(std::move(times)),
        representatives_(representatives.begin(), representatives.end()) {}
  static absl::StatusOr<DevicePredictor> Make(Basis basis,
                                              absl::Span<const Observation> representatives,
                                              const PredictorOptions& options);
  static absl::StatusOr<Times> Fit(const Basis& basis,
                                   absl::Span<const Observation> representatives,
                                   const std::deque<Observation>& samples);
  const ModelWork& work() const;

  Basis basis_;
  PredictorOptions options_;
  Times times_;
  std::vector<Observation> representatives_;
  std::deque<Observation> samples_;
};

// Prior for a model without profiles: each layer's time by the FLOPs line through the measured
// representatives. Needs at least one representative.
LayerPrior ColdStartPrior(const ModelWork& work, absl::Span<const Observation> representatives);

}  // namespace runnel
