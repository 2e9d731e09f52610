#pragma once

// Layers x recipe -> program: reverse-mode differentiation with input-gradient and weight-gradient
// as separate instructions, and a memory plan that reuses what is dead. Pure functions; any thread.

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/program.h"
#include "kernels/recipe.h"
#include "proto/base/model_spec.h"

namespace runnel {

// Where the state of layers first_layer..last_layer lies. InvalidArgument if the range or the model
// is wrong.
absl::StatusOr<StateLayout> PlanState(const ModelSpec& model, int first_layer, int last_layer);

// Compiles the layers for micro-batches of `batch` samples. The loss is part of the stage that has
// the last layer. InvalidArgument names the layer and operator that the recipe has no rule for or
// whose output nobody reads, or what is wrong with the range.
absl::StatusOr<Program> CompileStage(const ModelSpec& model, int first_layer, int last_layer,
                                     int64_t batch, const Recipe& recipe);

}  // namespace runnel
