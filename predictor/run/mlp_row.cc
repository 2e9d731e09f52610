#include "predictor/run/mlp_row.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// Two beliefs about the pool: all devices alike with small deviations of their own, or rather the
// likely ones with larger deviations.
constexpr PoolOptions kPools[] = {{0.05, 0}, {0.1, 0.05}};
constexpr double kLeastDeviation = 1e-3;  // keeps the logarithm of a deviation finite

std::vector<float> DeviceInputs(const DeviceEstimate& device, absl::Span<const Observation> own,
                                int64_t batch, size_t samples) {
  double log_seconds = 0;
  for (const Observation& one : own)
    log_seconds += std::log(one.seconds / static_cast<double>(batch));
  if (!own.empty()) log_seconds /= static_cast<double>(own.size());
  std::vector<double> inputs = {device.log_deviation,     device.entropy,
                                device.log_likelihood,    log_seconds,
                                std::log(device.devices), std::sqrt(static_cast<double>(samples))};
  // Boundary elements, the last kind, have no time of their own.
  inputs.insert(inputs.end(), device.costs.begin(), device.costs.end() - 1);
  return {inputs.begin(), inputs.end()};
}

class MlpPredictor final : public RangePredictor {
 public:
  MlpPredictor(MlpView view, const PredictorNetwork& network)
      : view_(std::move(view)), network_(network) {}

  double Seconds(const LayerRange& range) const override {
    const MlpView::Range one = view_.View(range);
    const double correction = network_.Evaluate(one.inputs, view_.device());
    return std::exp(one.log_mixture + std::clamp(correction, -kMostCorrection, kMostCorrection));
  }

 private:
  MlpView view_;
  PredictorNetwork network_;
};

}  // namespace

absl::StatusOr<MlpView> MlpView::Fit(const DeviceMixture::Known& known,
                                     absl::Span<const Observation> own, int64_t batch,
                                     size_t samples) {
  RUNNEL_ASSIGN_OR_RETURN(DeviceMixture mixture, DeviceMixture::Fit(known, own, batch));
  std::vector<PooledDevices> pools;
  for (const PoolOptions& options : kPools) {
    RUNNEL_ASSIGN_OR_RETURN(PooledDevices pool,
                            PooledDevices::Fit(known, own, batch, mixture.device(), options));
    pools.push_back(std::move(pool));
  }
  MlpView view(std::move(mixture), std::move(pools));
  view.device_ = DeviceInputs(view.mixture_.device(), own, batch, samples);
  return view;
}

MlpView::Range MlpView::View(const LayerRange& range) const {
  const RangeEstimate estimate = mixture_.Estimate(range);
  std::vector<double> inputs = {estimate.log_likeliest - estimate.log_seconds};
  for (const double tempered : estimate.log_tempered)
    inputs.push_back(tempered - estimate.log_seconds);
  for (const PooledDevices& pool : pools_)
    inputs.push_back(pool.LogSeconds(range) - estimate.log_seconds);
  inputs.push_back(std::log(estimate.between_deviation + kLeastDeviation));
  inputs.push_back(std::log(estimate.within_deviation + kLeastDeviation));
  return {estimate.log_seconds, {inputs.begin(), inputs.end()}};
}

absl::StatusOr<std::unique_ptr<const RangePredictor>> FitMlp(
    const PredictorKnowledge& knowledge, absl::Span<const Observation> measured,
    absl::Span<const Observation> samples) {
  const Mlp& first = knowledge.network->members.front();
  if (first.encoding_size() != kMlpRangeInputs || first.hardware_size() != kMlpDeviceInputs)
    return absl::InvalidArgumentError("network: has other inputs than the row mlp");
  std::vector<Observation> own(measured.begin(), measured.end());
  own.insert(own.end(), samples.begin(), samples.end());
  RUNNEL_ASSIGN_OR_RETURN(MlpView view,
                          MlpView::Fit(knowledge.known, own, knowledge.batch, samples.size()));
  return std::make_unique<const MlpPredictor>(std::move(view), *knowledge.network);
}

}  // namespace runnel
