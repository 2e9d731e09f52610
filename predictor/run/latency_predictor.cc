#include "predictor/run/latency_predictor.h"

#include <cmath>
#include <utility>

#include "proto/base/status_macros.h"

namespace runnel {

absl::StatusOr<DevicePredictor> DevicePredictor::Create(
    const PredictorRow* row, std::shared_ptr<const PredictorKnowledge> knowledge,
    absl::Span<const Observation> measured, const PredictorOptions& options) {
  DevicePredictor predictor(row, std::move(knowledge), options);
  RUNNEL_RETURN_IF_ERROR(predictor.Characterise(measured));
  return predictor;
}

absl::StatusOr<DevicePredictor::Times> DevicePredictor::Fit(
    absl::Span<const Observation> measured, const std::deque<Observation>& samples) const {
  RUNNEL_RETURN_IF_ERROR(CheckKnowledge(*row_, *knowledge_));
  const std::vector<Observation> later(samples.begin(), samples.end());
  RUNNEL_RETURN_IF_ERROR(CheckObservations(knowledge_->work, measured));
  RUNNEL_RETURN_IF_ERROR(CheckObservations(knowledge_->work, later));
  return row_->fit(*knowledge_, measured, later);
}

absl::StatusOr<ReportOutcome> DevicePredictor::Report(const Observation& reported) {
  // Checked first: a time that is not positive and finite must not be compared with a prediction.
  RUNNEL_RETURN_IF_ERROR(CheckObservations(knowledge_->work, {reported}));
  const double predicted = Seconds(reported.range);
  if (std::abs(reported.seconds - predicted) > options_.epsilon * predicted)
    return ReportOutcome::kMeasure;
  std::deque<Observation> samples = samples_;
  samples.push_back(reported);
  if (samples.size() > options_.kept_samples) samples.pop_front();
  RUNNEL_ASSIGN_OR_RETURN(times_, Fit(measured_, samples));
  samples_ = std::move(samples);
  return ReportOutcome::kLearned;
}

absl::Status DevicePredictor::Characterise(absl::Span<const Observation> measured) {
  RUNNEL_ASSIGN_OR_RETURN(times_, Fit(measured, {}));
  measured_.assign(measured.begin(), measured.end());
  samples_.clear();
  return absl::OkStatus();
}

}  // namespace runnel
