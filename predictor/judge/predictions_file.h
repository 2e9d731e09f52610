#pragma once

// What `runnel-predictor crossval` tells `runnel-central predictor-report`: times that networks
// predicted for tasks whose family they never saw.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "predictor/run/device_task.h"

namespace runnel {

// One network on one task.
struct TaskPrediction {
  std::string method;         // "accept": AccEPT's network; "work": that over counts of work
  std::string configuration;  // of the task, with model and batch
  std::string model;
  int64_t batch = 0;
  int64_t samples = 0;          // that it was adapted with
  std::vector<double> seconds;  // by range of the task

  bool IsOf(const DeviceTask& task) const {
    return configuration == task.configuration && model == task.model && batch == task.batch &&
           seconds.size() == task.ranges.size();
  }
};

inline constexpr size_t kMaxPredictionBytes = size_t{64} << 20;

std::string FormatPredictions(const std::vector<TaskPrediction>& predictions);
// InvalidArgument names the line and what is wrong with it.
absl::StatusOr<std::vector<TaskPrediction>> ParsePredictions(absl::string_view text);

}  // namespace runnel
