#include "predictor/run/known_device.h"

#include <cmath>
#include <cstdlib>
#include <utility>

#include "predictor/run/layer_prior.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr double kNeighbour = 0.4;  // layers over which a miss fades
constexpr double kNoMiss = 0.05;    // weight of the assumption that there is none

}  // namespace

absl::StatusOr<KnownDevice> KnownDevice::Create(const ModelWork& work, int64_t batch,
                                                absl::Span<const Observation> observations) {
  RUNNEL_ASSIGN_OR_RETURN(LayerTimes layers, FitProfile(work, observations));
  KnownDevice device(std::move(layers));
  device.batch_ = batch;
  device.layer_kinds_ = LayerKinds(work);
  for (const Observation& one : observations) {
    device.measured_[one.range] = one.seconds;
    device.log_middle_ += std::log(one.seconds) / static_cast<double>(observations.size());
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

double KnownDevice::MissNear(const LayerRange& range) const {
  double sum = 0, weights = kNoMiss;
  for (const auto& [measured, seconds] : measured_) {
    const int far = std::abs(measured.first_layer - range.first_layer) +
                    std::abs(measured.last_layer - range.last_layer);
    const double weight = std::exp(-far / kNeighbour);
    sum += weight * std::log(seconds / layers_.Seconds(measured));
    weights += weight;
  }
  return sum / weights;
}

double KnownDevice::Seconds(const LayerRange& range) const {
  const auto found = measured_.find(range);
  if (found != measured_.end()) return found->second;
  return layers_.Seconds(range) * std::exp(MissNear(range));
}

RangeView KnownDevice::View(const LayerRange& range) const {
  return ViewOf(layer_kinds_, layer_seconds_, range, Seconds(range), log_middle_,
                work().BytesBeyondCache(range));
}

}  // namespace runnel
