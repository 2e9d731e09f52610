#pragma once

// What a run's settings say of the programs of its stages: of a stage that trains, and of one whose
// programs are only listed.

#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"
#include "kernels/ir/recipe.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/training/training.h"

namespace runnel {

struct StageArithmetic {
  Recipe recipe;           // with the values that cross beside a boundary tensor
  StagePrograms programs;  // the caller sets max_batch and what the stage's order says
};

// InvalidArgument: a setting is no text that its parser takes.
absl::StatusOr<StageArithmetic> ArithmeticOf(const TrainingSettings& training,
                                             const ModelSpec& model, const Recipe& recipe);

}  // namespace runnel
