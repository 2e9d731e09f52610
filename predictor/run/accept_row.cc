#include "predictor/run/accept_row.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "predictor/networks/adapt_mlp.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

std::vector<float> LayerBits(int layers, const LayerRange& range) {
  std::vector<float> bits(static_cast<size_t>(layers), 0.0f);
  for (int l = range.first_layer; l <= range.last_layer; ++l) bits[static_cast<size_t>(l)] = 1;
  return bits;
}

MlpSample SampleOf(const Observation& one, int layers, const std::vector<float>& hardware) {
  return {LayerBits(layers, one.range), hardware, static_cast<float>(std::log(one.seconds))};
}

class AcceptPredictor final : public RangePredictor {
 public:
  AcceptPredictor(PredictorNetwork network, int layers, std::vector<float> hardware)
      : network_(std::move(network)), layers_(layers), hardware_(std::move(hardware)) {}

  double Seconds(const LayerRange& range) const override {
    return std::exp(network_.Evaluate(LayerBits(layers_, range), hardware_));
  }

 private:
  PredictorNetwork network_;
  int layers_;
  std::vector<float> hardware_;
};

}  // namespace

std::vector<MlpSample> AcceptSamples(const KnownDevice& device, absl::Span<const LayerRange> ten) {
  std::vector<float> hardware;
  for (const LayerRange& range : ten)
    hardware.push_back(static_cast<float>(std::log(device.Seconds(range))));
  std::vector<MlpSample> samples;
  for (const LayerRange& range : device.MeasuredRanges())
    samples.push_back(SampleOf({range, device.Seconds(range)}, device.work().layers(), hardware));
  return samples;
}

absl::StatusOr<std::unique_ptr<const RangePredictor>> FitAccept(
    const PredictorKnowledge& knowledge, absl::Span<const Observation> measured,
    absl::Span<const Observation> samples) {
  const int layers = knowledge.work.layers();
  std::vector<float> hardware;
  for (const LayerRange& range : knowledge.ten) {
    const auto found = std::find_if(measured.begin(), measured.end(),
                                    [&](const Observation& one) { return one.range == range; });
    if (found == measured.end()) {
      return absl::InvalidArgumentError(absl::StrCat("accept: layers ", range.first_layer, " to ",
                                                     range.last_layer, " were not measured"));
    }
    hardware.push_back(static_cast<float>(std::log(found->seconds)));
  }
  const Mlp& first = knowledge.network->members.front();
  if (first.encoding_size() != layers || first.hardware_size() != static_cast<int>(hardware.size()))
    return absl::InvalidArgumentError(
        absl::StrCat("network: has other inputs than the row accept for ", knowledge.model));
  std::vector<MlpSample> fresh, rehearsal;
  for (const Observation& one : measured) fresh.push_back(SampleOf(one, layers, hardware));
  for (const Observation& one : samples) fresh.push_back(SampleOf(one, layers, hardware));
  for (const KnownDevice& device : *knowledge.known) {
    for (MlpSample& sample : AcceptSamples(device, knowledge.ten))
      rehearsal.push_back(std::move(sample));
  }
  PredictorNetwork adapted = *knowledge.network;
  for (Mlp& member : adapted.members) {
    RUNNEL_ASSIGN_OR_RETURN(member, AdaptMlp(member, fresh, rehearsal, MlpAdaptation{}));
  }
  return std::make_unique<const AcceptPredictor>(std::move(adapted), layers, std::move(hardware));
}

}  // namespace runnel
