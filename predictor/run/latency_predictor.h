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
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "predictor/fit/layer_times.h"
#include "predictor/run/predictor_row.h"

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

// Predicts one device and one model at one batch size. Not thread-safe.
class DevicePredictor {
 public:
  // row: of the table; knowledge: data that the row may use. measured: the times of the row's
  // ranges. Errors as PredictorRow::fit and CheckObservations.
  static absl::StatusOr<DevicePredictor> Create(const PredictorRow* row,
                                                std::shared_ptr<const PredictorKnowledge> knowledge,
                                                absl::Span<const Observation> measured,
                                                const PredictorOptions& options = {});

  // The range must be one of the model.
  double Seconds(const LayerRange& range) const { return times_->Seconds(range); }
  // The device's measured time for its stage. Errors as Create; the predictor is unchanged then.
  absl::StatusOr<ReportOutcome> Report(const Observation& reported);
  // The row's ranges, measured again after kMeasure. Drops all samples. Errors as Create.
  absl::Status Characterise(absl::Span<const Observation> measured);

  size_t samples() const { return samples_.size(); }

 private:
  using Times = std::unique_ptr<const RangePredictor>;

  DevicePredictor(const PredictorRow* row, std::shared_ptr<const PredictorKnowledge> knowledge,
                  PredictorOptions options)
      : row_(row), knowledge_(std::move(knowledge)), options_(options) {}
  absl::StatusOr<Times> Fit(absl::Span<const Observation> measured,
                            const std::deque<Observation>& samples) const;

  const PredictorRow* row_;
  std::shared_ptr<const PredictorKnowledge> knowledge_;
  PredictorOptions options_;
  Times times_;
  std::vector<Observation> measured_;
  std::deque<Observation> samples_;
};

}  // namespace runnel
