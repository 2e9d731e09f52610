#pragma once

// Trains the networks of the predictor rows.

#include <string>

#include "absl/status/statusor.h"
#include "predictor/networks/network_file.h"
#include "predictor/train/training_samples.h"

namespace runnel {

// The row `mlp`, for all models: five members. Errors as MlpTrainingSamples and TrainMlp;
// FailedPrecondition: fewer than two families of devices share a model.
absl::StatusOr<PredictorNetwork> TrainMlpRow(const TrainingSet& set, const MayLearnFn& may_learn);

// The rows `accept` and `accept+`, for one model: five members, of which `accept` takes the first. Errors as TrainMlp; FailedPrecondition: no device
// that may be learned from was profiled with the model.
absl::StatusOr<PredictorNetwork> TrainAcceptRow(const TrainingSet& set, const std::string& model,
                                                const MayLearnFn& may_learn);

}  // namespace runnel
