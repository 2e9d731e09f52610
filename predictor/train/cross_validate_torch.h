#pragma once

// Leave-one-family-out over profiles, for the networks: each is trained without the family whose
// tasks it then predicts (AccEPT 4.2.1's cross-validation, with families in place of devices).

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

// "accept": a network a model over layer bits, adapted, fold by fold (PredictByFold), with each of
// `sample_counts` samples of the task. "work": one network for all models over counts of work, not
// adapted. Tasks whose model no other family has get no "accept". Errors as TrainMlp.
absl::StatusOr<std::vector<TaskPrediction>> CrossValidate(absl::Span<const DeviceTask> tasks,
                                                          absl::Span<const int64_t> sample_counts,
                                                          const ProgressFn& progress);

}  // namespace runnel
