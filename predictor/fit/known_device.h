#pragma once

// A device that was profiled with a model: the time of any range of the model on it, and the
// range's properties that the covariance between ranges needs.

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "predictor/fit/layer_times.h"
#include "predictor/fit/range_view.h"
#include "proto/base/plan/layer_range.h"

namespace runnel {

// Immutable; any thread.
class KnownDevice {
 public:
  // observations: the measured ranges, each once. batch: samples of a micro-batch. central:
  // FTPipeHD takes its ratio to this device (DeviceTask::central). InvalidArgument: a layer was not
  // measured by itself; a time is not positive and finite.
  static absl::StatusOr<KnownDevice> Create(const ModelWork& work, int64_t batch,
                                            absl::Span<const Observation> observations,
                                            bool central = false);

  bool central() const { return central_; }
  int64_t batch() const { return batch_; }
  const ModelWork& work() const { return layers_.work(); }
  bool Measured(const LayerRange& range) const { return measured_.count(range) > 0; }
  std::vector<LayerRange> MeasuredRanges() const;

  // A measured range: its measured time. Another range: the fitted sum of its layers, times the
  // mean factor (measured / fitted) of the measured ranges with nearly the same ends.
  double Seconds(const LayerRange& range) const {
    return seconds_[RangeIndex(work().layers(), range)];
  }
  // The view of a range with all KindCosts 0.
  RangeView View(const LayerRange& range) const;
  KindShares SharesAt(const LayerRange& range, const KindCosts& costs) const {
    return runnel::SharesAt(layer_kinds_, layer_seconds_, range, costs);
  }

 private:
  explicit KnownDevice(LayerTimes layers) : layers_(std::move(layers)) {}
  // errors: of the measured ranges, log(measured / fitted).
  static double LogErrorNear(const LayerRange& range, const std::map<LayerRange, double>& errors);

  LayerTimes layers_;
  int64_t batch_ = 0;
  bool central_ = false;
  std::map<LayerRange, double> measured_;  // seconds
  std::vector<double> seconds_;            // in the order of AllRanges
  std::vector<double> layer_seconds_;
  std::vector<WorkVector> layer_kinds_;
  double log_middle_ = 0;  // mean of log(seconds) over the measured ranges
};

}  // namespace runnel
