#pragma once

// Leave-one-family-out cross-validation of the networks: each is trained without the family whose
// tasks it then predicts (AccEPT 4.2.1, with families in place of devices).

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "predictor/judge/predictions_file.h"
#include "predictor/run/device_task.h"

namespace runnel {

// Called with one line of progress.
using ProgressFn = std::function<void(const std::string& line)>;

// Method "accept": one network for each model, over layer bits, adapted to the task with each
// number of samples in `sample_counts`, fold by fold (PredictByFold). Method "work": one network
// for all models, over counts of work, not adapted. A task whose model no other family has gets no
// "accept". Errors as TrainMlp.
absl::StatusOr<std::vector<TaskPrediction>> CrossValidate(absl::Span<const DeviceTask> tasks,
                                                          absl::Span<const int64_t> sample_counts,
                                                          const ProgressFn& progress);

}  // namespace runnel
