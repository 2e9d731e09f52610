#include "predictor/run/latency_predictor.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "predictor/run/baselines.h"
#include "proto/base/status_macros.h"

namespace runnel {

absl::StatusOr<DevicePredictor> DevicePredictor::Create(
    const ModelWork& work, LayerPrior prior, absl::Span<const Observation> representatives,
    const PredictorOptions& options) {
  return Make(ColdStart{work, std::move(prior)}, representatives, options);
}

absl::StatusOr<DevicePredictor> DevicePredictor::Create(
    DeviceMixture::Known known, int64_t batch, absl::Span<const Observation> representatives,
    const PredictorOptions& options) {
  return Make(Profiled{std::move(known), batch}, representatives, options);
}

absl::StatusOr<DevicePredictor> DevicePredictor::Make(Basis basis,
                                                      absl::Span<const Observation> representatives,
                                                      const PredictorOptions& options) {
  RUNNEL_ASSIGN_OR_RETURN(Times times, Fit(basis, representatives, {}));
  return DevicePredictor(std::move(basis), options, std::move(times), representatives);
}

absl::StatusOr<DevicePredictor::Times> DevicePredictor::Fit(
    const Basis& basis, absl::Span<const Observation> representatives,
    const std::deque<Observation>& samples) {
  std::vector<Observation> all(representatives.begin(), representatives.end());
  all.insert(all.end(), samples.begin(), samples.end());
  if (const auto* profiled = std::get_if<Profiled>(&basis))
    return DeviceMixture::Fit(profiled->known, all, profiled->batch);
  const auto& cold = std::get<ColdStart>(basis);
  return FitLayerTimes(cold.work, cold.prior, all, kMeasurementNoise);
}

const ModelWork& DevicePredictor::work() const {
  const auto* profiled = std::get_if<Profiled>(&basis_);
  return profiled != nullptr ? profiled->known->front().work() : std::get<ColdStart>(basis_).work;
}

double DevicePredictor::Seconds(const LayerRange& range) const {
  return std::visit([&range](const auto& times) { return times.Seconds(range); }, times_);
}

absl::StatusOr<ReportOutcome> DevicePredictor::Report(const Observation& reported) {
  // Checked first: a time that is not positive and finite must not be compared with a prediction.
  RUNNEL_RETURN_IF_ERROR(CheckObservations(work(), {reported}));
  const double predicted = Seconds(reported.range);
  if (std::abs(reported.seconds - predicted) > options_.epsilon * predicted)
    return ReportOutcome::kMeasure;
  std::deque<Observation> samples = samples_;
  samples.push_back(reported);
  if (samples.size() > options_.kept_samples) samples.pop_front();
  RUNNEL_ASSIGN_OR_RETURN(times_, Fit(basis_, representatives_, samples));
  samples_ = std::move(samples);
  return ReportOutcome::kLearned;
}

absl::Status DevicePredictor::Characterise(absl::Span<const Observation> representatives) {
  RUNNEL_ASSIGN_OR_RETURN(times_, Fit(basis_, representatives, {}));
  representatives_.assign(representatives.begin(), representatives.end());
  samples_.clear();
  return absl::OkStatus();
}

LayerPrior ColdStartPrior(const ModelWork& work, absl::Span<const Observation> representatives) {
  std::vector<double> macs, seconds;
  for (const Observation& one : representatives) {
    macs.push_back(work.Macs(one.range));
    seconds.push_back(one.seconds);
  }
  const FlopsLine line = FitFlopsLine(macs, seconds);
  // The intercept of the FLOPs line belongs to a whole range; each layer gets an equal part of it.
  const double fastest = *std::min_element(seconds.begin(), seconds.end());
  const double least = fastest / work.layers() / 10;
  std::vector<double> layers;
  for (int l = 0; l < work.layers(); ++l) {
    layers.push_back(
        std::max(line.intercept / work.layers() + line.slope * work.Macs({l, l}), least));
  }
  return PriorFromEstimates(layers, work);
}

}  // namespace runnel
