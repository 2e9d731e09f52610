#pragma once

// A device that was profiled with a model: what it takes for any range of it, and how it sees it.

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "predictor/run/layer_times.h"
#include "predictor/run/range_view.h"

namespace runnel {

// Immutable; any thread.
class KnownDevice {
 public:
  // observations: what was measured, each range once. batch: samples of a micro-batch.
  // InvalidArgument: a layer was not measured by itself, or a time is none.
  static absl::StatusOr<KnownDevice> Create(const ModelWork& work, int64_t batch,
                                            absl::Span<const Observation> observations);

  int64_t batch() const { return batch_; }
  const ModelWork& work() const { return layers_.work(); }
  bool Measured(const LayerRange& range) const { return measured_.count(range) > 0; }
  std::vector<LayerRange> MeasuredRanges() const;

  // As measured; of other ranges: the sum of its layers, corrected by what near ranges were off by.
  double Seconds(const LayerRange& range) const;
  // At costs of 0.
  RangeView View(const LayerRange& range) const;
  KindShares SharesAt(const LayerRange& range, const KindCosts& costs) const {
    return runnel::SharesAt(layer_kinds_, layer_seconds_, range, costs);
  }

 private:
  explicit KnownDevice(LayerTimes layers) : layers_(std::move(layers)) {}
  double MissNear(const LayerRange& range) const;

  LayerTimes layers_;
  int64_t batch_ = 0;
  std::map<LayerRange, double> measured_;  // seconds
  std::vector<double> layer_seconds_;
  std::vector<WorkVector> layer_kinds_;
  double log_middle_ = 0;
};

}  // namespace runnel
