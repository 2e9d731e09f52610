#pragma once

// The file from `runnel-predictor crossval` to `runnel-lab predictor-report`: times that
// networks predicted for tasks that were left out of their training.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "predictor/run/device_task.h"

namespace runnel {

// Predictions of one network for one task.
struct TaskPrediction {
  std::string method;         // the row's name: "mlp", "accept+"
  std::string configuration;  // configuration of the task, with model and batch
  std::string model;
  int64_t batch = 0;
  int64_t samples = 0;          // adaptation samples that the network was given
  std::vector<double> seconds;  // by range of the task; 0: not judged

  bool IsOf(const DeviceTask& task) const {
    return configuration == task.configuration && model == task.model && batch == task.batch &&
           seconds.size() == task.ranges.size();
  }
};

inline constexpr size_t kMaxPredictionBytes = size_t{64} << 20;

std::string FormatPredictions(const std::vector<TaskPrediction>& predictions);
// InvalidArgument names the line and the defect.
absl::StatusOr<std::vector<TaskPrediction>> ParsePredictions(absl::string_view text);

}  // namespace runnel
