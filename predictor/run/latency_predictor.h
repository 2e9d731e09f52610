#pragma once

// The latency predictor at work in a run (AccEPT 3.2): what a device's sub-models take, from its
// ten representatives, getting better with each stage time that it reports.
//
// Dynamic prediction: a reported time that is off by more than epsilon says that the device is not
// what it was; its representatives are to be measured again and the plan made anew. Adaptive
// update: a time within epsilon becomes a sample. Each update fits anew to the representatives and
// all samples that are kept, so that nothing learned before is lost (rehearsal).

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "partition/cost_model.h"
#include "predictor/run/device_mixture.h"
#include "predictor/run/layer_prior.h"
#include "predictor/run/layer_times.h"

namespace runnel {

struct PredictorOptions {
  // Share of the predicted time. Above the noise of a measurement, below what is worth a new plan.
  double epsilon = 0.15;
  size_t kept_samples = 64;  // of reported times, the newest
};

enum class ReportOutcome {
  kLearned,  // within epsilon: the prediction took it in
  kMeasure,  // off by more: measure the representatives again (Characterise), then plan
};

// One device and one model at one batch size. Not thread-safe.
class DevicePredictor {
 public:
  // For a model that was never profiled. `representatives`: the measured ten (sub_models.h), or as
  // many of them as there are; none: the prior alone. Errors as FitLayerTimes.
  static absl::StatusOr<DevicePredictor> Create(const ModelWork& work, LayerPrior prior,
                                                absl::Span<const Observation> representatives,
                                                const PredictorOptions& options = {});
  // For a model that `known` were profiled with; batch: samples of a micro-batch. Errors as
  // DeviceMixture.
  static absl::StatusOr<DevicePredictor> Create(DeviceMixture::Known known, int64_t batch,
                                                absl::Span<const Observation> representatives,
                                                const PredictorOptions& options = {});

  // The range must be one of the model.
  double Seconds(const LayerRange& range) const;
  // What the device took for its stage. Errors as Create, nothing is changed then.
  absl::StatusOr<ReportOutcome> Report(const Observation& reported);
  // The representatives, measured again after kMeasure: samples of before count no more.
  absl::Status Characterise(absl::Span<const Observation> representatives);

  size_t samples() const { return samples_.size(); }

 private:
  // What is known beforehand.
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

// Predictions of all devices of a plan, as the policies want them. A snapshot: later reports do not
// change it. Any thread.
class PredictedCost final : public CostModel {
 public:
  // In pipeline order.
  explicit PredictedCost(std::vector<DevicePredictor> devices) : devices_(std::move(devices)) {}

  double StageSeconds(int device, int first_layer, int last_layer) const override {
    return devices_[static_cast<size_t>(device)].Seconds({first_layer, last_layer});
  }

 private:
  std::vector<DevicePredictor> devices_;
};

// A model without profiles: its layers by the FLOPs line through its representatives, to be
// corrected by them and by what the device reports as it runs. At least one representative.
LayerPrior ColdStartPrior(const ModelWork& work, absl::Span<const Observation> representatives);

}  // namespace runnel
