#include "predictor/fit/known_device.h"

#include <cmath>
#include <cstdlib>
#include <utility>

#include "predictor/fit/layer_prior.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// Distance of two ranges, in layers at both ends, over which the influence of one range's error on
// the other's falls to 1 / e.
constexpr double kNearLayers = 0.4;
constexpr double kNoErrorWeight = 0.05;  // weight of the prior assumption that the error is 0

}  // namespace

absl::StatusOr<KnownDevice> KnownDevice::Create(const ModelWork& work, int64_t batch,
                                                absl::Span<const Observation> observations,
                                                bool central) {
  RUNNEL_ASSIGN_OR_RETURN(LayerTimes layers, FitProfile(work, observations));
  KnownDevice device(std::move(layers));
  device.batch_ = batch;
  device.central_ = central;
  device.layer_kinds_ = LayerKinds(work);
  for (const Observation& one : observations) {
    device.measured_[one.range] = one.seconds;
    device.log_middle_ += std::log(one.seconds) / static_cast<double>(observations.size());
  }
  std::map<LayerRange, double> errors;
  for (const auto& [range, seconds] : device.measured_)
    errors[range] = std::log(seconds / device.layers_.Seconds(range));
  for (const LayerRange& range : AllRanges(work.layers())) {
    const auto found = device.measured_.find(range);
    device.seconds_.push_back(found != device.measured_.end()
                                  ? found->second
                                  : device.layers_.Seconds(range) *
                                        std::exp(device.LogErrorNear(range, errors)));
  }
  for (int l = 0; l < work.layers(); ++l)
    device.layer_seconds_.push_back(device.measured_.at({l, l}));
  return device;
}

std::vector<LayerRange> KnownDevice::MeasuredRanges() const {
  std::vector<LayerRange> ranges;
  for (const auto& [range, seconds] : measured_) ranges.push_back(range);
  return ranges;
}

double KnownDevice::LogErrorNear(const LayerRange& range,
                                 const std::map<LayerRange, double>& errors) {
  double sum = 0, weights = kNoErrorWeight;
  for (const auto& [measured, error] : errors) {
    const int far = std::abs(measured.first_layer - range.first_layer) +
                    std::abs(measured.last_layer - range.last_layer);
    const double weight = std::exp(-far / kNearLayers);
    sum += weight * error;
    weights += weight;
  }
  return sum / weights;
}

RangeView KnownDevice::View(const LayerRange& range) const {
  return MakeRangeView(layer_kinds_, layer_seconds_, range, Seconds(range), log_middle_,
                       work().BytesBeyondCache(range));
}

}  // namespace runnel
