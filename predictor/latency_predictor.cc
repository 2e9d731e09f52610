#include "predictor/latency_predictor.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "predictor/baselines.h"
#include "proto/base/status_macros.h"

namespace runnel {

absl::StatusOr<DevicePredictor> DevicePredictor::Create(
    const ModelWork& work, LayerPrior prior, absl::Span<const Observation> representatives,
    const PredictorOptions& options) {
  RUNNEL_ASSIGN_OR_RETURN(LayerTimes layers,
                          FitLayerTimes(work, prior, representatives, kMeasurementNoise));
  DevicePredictor predictor(work, std::move(prior), options, std::move(layers));
  predictor.representatives_.assign(representatives.begin(), representatives.end());
  return predictor;
}

absl::StatusOr<LayerTimes> DevicePredictor::Fit(absl::Span<const Observation> representatives,
                                                const std::deque<Observation>& samples) const {
  std::vector<Observation> all(representatives.begin(), representatives.end());
  all.insert(all.end(), samples.begin(), samples.end());
  return FitLayerTimes(work_, prior_, all, kMeasurementNoise);
}

absl::StatusOr<ReportOutcome> DevicePredictor::Report(const Observation& reported) {
  // A report that is no measurement must not be compared with anything.
  RUNNEL_RETURN_IF_ERROR(FitLayerTimes(work_, prior_, {reported}, kMeasurementNoise).status());
  const double predicted = Seconds(reported.range);
  if (std::abs(reported.seconds - predicted) > options_.epsilon * predicted)
    return ReportOutcome::kMeasure;
  std::deque<Observation> samples = samples_;
  samples.push_back(reported);
  if (samples.size() > options_.kept_samples) samples.pop_front();
  RUNNEL_ASSIGN_OR_RETURN(layers_, Fit(representatives_, samples));
  samples_ = std::move(samples);
  return ReportOutcome::kLearned;
}

absl::Status DevicePredictor::Characterise(absl::Span<const Observation> representatives) {
  RUNNEL_ASSIGN_OR_RETURN(layers_, Fit(representatives, {}));
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
  // The line's intercept is of a whole range: a layer gets its share.
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
