#include "predictor/run/accept_row.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "predictor/networks/adapt_network.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

std::vector<float> LayerBits(int layers, const LayerRange& range) {
  std::vector<float> bits(static_cast<size_t>(layers), 0.0f);
  for (int l = range.first_layer; l <= range.last_layer; ++l) bits[static_cast<size_t>(l)] = 1;
  return bits;
}

// What the network sees of a device: the logarithms of its ten times, less their mean; and the
// mean, which is the device's speed.
struct Hardware {
  std::vector<float> ten;
  double log_speed = 0;
};

Hardware HardwareOf(absl::Span<const double> ten_seconds) {
  Hardware hardware;
  for (const double seconds : ten_seconds) hardware.log_speed += std::log(seconds);
  hardware.log_speed /= static_cast<double>(ten_seconds.size());
  for (const double seconds : ten_seconds)
    hardware.ten.push_back(static_cast<float>(std::log(seconds) - hardware.log_speed));
  return hardware;
}

MlpSample SampleOf(const Observation& one, int layers, const Hardware& hardware) {
  return {LayerBits(layers, one.range), hardware.ten,
          static_cast<float>(std::log(one.seconds) - hardware.log_speed)};
}

class AcceptPredictor final : public RangePredictor {
 public:
  AcceptPredictor(PredictorNetwork network, int layers, Hardware hardware)
      : network_(std::move(network)), layers_(layers), hardware_(std::move(hardware)) {}

  double Seconds(const LayerRange& range) const override {
    return std::exp(hardware_.log_speed +
                    network_.Evaluate(LayerBits(layers_, range), hardware_.ten));
  }

 private:
  PredictorNetwork network_;
  int layers_;
  Hardware hardware_;
};

// The times of the ten. InvalidArgument: one was not measured.
absl::StatusOr<std::vector<double>> TenSeconds(const PredictorKnowledge& knowledge,
                                               absl::Span<const Observation> measured) {
  std::vector<double> seconds;
  for (const LayerRange& range : knowledge.ten) {
    const auto found = std::find_if(measured.begin(), measured.end(),
                                    [&](const Observation& one) { return one.range == range; });
    if (found == measured.end()) {
      return absl::InvalidArgumentError(absl::StrCat("accept: layers ", range.first_layer, " to ",
                                                     range.last_layer, " were not measured"));
    }
    seconds.push_back(found->seconds);
  }
  return seconds;
}

// With the first `members` of the network.
absl::StatusOr<std::unique_ptr<const RangePredictor>> FitMembers(
    const PredictorKnowledge& knowledge, absl::Span<const Observation> measured,
    absl::Span<const Observation> samples, size_t members) {
  const int layers = knowledge.work.layers();
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<double> ten, TenSeconds(knowledge, measured));
  Hardware hardware = HardwareOf(ten);
  PredictorNetwork network = *knowledge.network;
  network.members.resize(std::min(members, network.members.size()));
  const Mlp& first = network.members.front();
  if (first.encoding_size() != layers || first.hardware_size() != static_cast<int>(ten.size()))
    return absl::InvalidArgumentError(
        absl::StrCat("network: has other inputs than the row accept for ", knowledge.model));
  std::vector<MlpSample> fresh, rehearsal;
  for (const Observation& one : measured) fresh.push_back(SampleOf(one, layers, hardware));
  for (const Observation& one : samples) fresh.push_back(SampleOf(one, layers, hardware));
  for (const KnownDevice& device : *knowledge.known) {
    for (MlpSample& sample : AcceptSamples(device, knowledge.ten))
      rehearsal.push_back(std::move(sample));
  }
  RUNNEL_ASSIGN_OR_RETURN(network, AdaptIfItHelps(network, fresh, rehearsal, MlpAdaptation{}));
  return std::make_unique<const AcceptPredictor>(std::move(network), layers, std::move(hardware));
}

}  // namespace

std::vector<MlpSample> AcceptSamples(const KnownDevice& device, absl::Span<const LayerRange> ten) {
  std::vector<double> seconds;
  for (const LayerRange& range : ten) seconds.push_back(device.Seconds(range));
  const Hardware hardware = HardwareOf(seconds);
  std::vector<MlpSample> samples;
  for (const LayerRange& range : device.MeasuredRanges())
    samples.push_back(SampleOf({range, device.Seconds(range)}, device.work().layers(), hardware));
  return samples;
}

absl::StatusOr<std::unique_ptr<const RangePredictor>> FitAccept(
    const PredictorKnowledge& knowledge, absl::Span<const Observation> measured,
    absl::Span<const Observation> samples) {
  return FitMembers(knowledge, measured, samples, 1);
}

absl::StatusOr<std::unique_ptr<const RangePredictor>> FitAcceptPlus(
    const PredictorKnowledge& knowledge, absl::Span<const Observation> measured,
    absl::Span<const Observation> samples) {
  return FitMembers(knowledge, measured, samples, knowledge.network->members.size());
}

}  // namespace runnel
