#pragma once

// Training samples for the networks of the predictor rows, from profiles of devices.

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "predictor/fit/known_device.h"
#include "predictor/networks/mlp.h"
#include "predictor/run/device_task.h"

namespace runnel {

// Tasks and the same as known devices, by task.
struct TrainingSet {
  std::vector<DeviceTask> tasks;
  std::vector<KnownDevice> devices;

  // Errors as KnownDevice::Create.
  static absl::StatusOr<TrainingSet> Create(std::vector<DeviceTask> tasks);
};

// Tells the tasks that may be learned from.
using MayLearnFn = std::function<bool(const DeviceTask& task)>;

// Samples for the row `mlp`. Each task is a new device in turn, known by the devices of other
// families alone, and measured, fold by fold, with 0, 2, 4, 8 or 14 samples in turn beside the
// representatives; the target is log(both passes' time / mixture's answer) of the ranges that were
// not measured. Errors as MlpView::Fit.
absl::StatusOr<std::vector<MlpSample>> MlpTrainingSamples(const TrainingSet& set,
                                                          const MayLearnFn& may_learn);

// Samples for the row `accept` and one model.
std::vector<MlpSample> AcceptTrainingSamples(const TrainingSet& set, const std::string& model,
                                             const MayLearnFn& may_learn);

}  // namespace runnel
