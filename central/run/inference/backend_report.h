#pragma once

// `runnel-central check`: which backends of this host can train a model. A worker process prepares
// the training's program on each: central has no kernels.

#include <string>

#include "absl/status/statusor.h"
#include "central/run/model_check.h"
#include "proto/base/model/model_spec.h"

namespace runnel {

// Lines for people: the backends that can train the model with the recipe, and why each other one
// cannot. Errors as RunInferenceProcess.
absl::StatusOr<std::string> BackendReport(const ModelSpec& model, const CheckedTraining& training);

}  // namespace runnel
