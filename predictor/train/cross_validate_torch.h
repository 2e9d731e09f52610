#pragma once

// Cross-validation of the rows with networks: each is trained without the family or configuration
// whose tasks it then predicts (AccEPT 4.2.1), by the code that central predicts with.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "predictor/judge/cross_validate.h"
#include "predictor/judge/predictions_file.h"
#include "predictor/run/device_task.h"

namespace runnel {

// Called with one line of progress.
using ProgressFn = std::function<void(const std::string& line)>;

// The rows `mlp`, `accept` and `accept+` on every task, with each number of samples in `sample_counts`, fold
// by fold (PredictWithRow). A task whose model nobody else has gets neither of the latter. A row that has too
// little to learn from is left out. Errors as TrainMlp and PredictWithRow.
absl::StatusOr<std::vector<TaskPrediction>> CrossValidate(std::vector<DeviceTask> tasks,
                                                          absl::Span<const int64_t> sample_counts,
                                                          LeaveOut leave_out,
                                                          const ProgressFn& progress);

}  // namespace runnel
