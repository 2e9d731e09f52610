#pragma once

// The latency predictor of one run (AccEPT 3.2): one DevicePredictor for each device, all for one
// model and one batch size, based on devices that were profiled with that model before.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "predictor/fit/known_device.h"
#include "predictor/profiles/profile_file.h"
#include "predictor/run/latency_predictor.h"
#include "predictor/run/predictor_row.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/plan/device_times.h"
#include "proto/base/plan/layer_range.h"

namespace runnel {

// The devices that were profiled with a model of this name; empty if no profile has it.
// InvalidArgument names the profile and the defect: as TasksOf; a layer was not measured by itself.
absl::StatusOr<std::vector<KnownDevice>> KnownDevices(absl::Span<const DeviceProfile> profiles,
                                                      const ModelSpec& model);

// Not thread-safe.
class RunPredictor {
 public:
  // InvalidArgument as CheckKnowledge.
  static absl::StatusOr<RunPredictor> Create(const PredictorRow* row, PredictorKnowledge knowledge,
                                             const PredictorOptions& options = {});

  const PredictorRow& row() const { return *row_; }
  size_t known_devices() const { return knowledge_->known->size(); }
  // The ranges to measure on a device, each once (PredictorRow::ranges).
  const std::vector<LayerRange>& representatives() const { return representatives_; }

  // The measured times of a device's representatives, for the first time or again; drops all
  // samples of the device. `seconds`: in the order of representatives(). InvalidArgument: another
  // number of times, or one that is not above 0.
  absl::Status Characterise(int device, absl::Span<const double> seconds);
  bool Knows(int device) const { return devices_.count(device) > 0; }

  // The device must be known, the range one of the model.
  double Seconds(int device, const LayerRange& range) const;
  // The predicted seconds of every range.
  DeviceTimes Times(int device) const;

  // Reports a measurement, as DevicePredictor::Report. FailedPrecondition: the device was not
  // characterised.
  absl::StatusOr<ReportOutcome> Report(int device, const Observation& reported);
  double epsilon() const { return options_.epsilon; }

 private:
  RunPredictor(const PredictorRow* row, PredictorKnowledge knowledge,
               const PredictorOptions& options)
      : row_(row),
        knowledge_(std::make_shared<const PredictorKnowledge>(std::move(knowledge))),
        options_(options),
        representatives_(row->ranges(*knowledge_)) {}

  // What the range would take if all its layers trained.
  Observation AsTrained(Observation observed) const;

  const PredictorRow* row_;
  std::shared_ptr<const PredictorKnowledge> knowledge_;
  PredictorOptions options_;
  std::vector<LayerRange> representatives_;
  std::map<int, DevicePredictor> devices_;
  mutable std::map<int, DeviceTimes> times_;  // times of devices since they last learned
};

}  // namespace runnel
