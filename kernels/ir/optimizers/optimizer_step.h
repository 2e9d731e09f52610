#pragma once

// What a step of an optimizer computes: the same float operations on every element, one after the
// other, so that a step of all tensors, of one, or of a slice of one gives the same bytes. A new
// optimizer is a row in proto/base/training/optimizers.inc and three parts here:
//
//   NAME.h     IdStep and IdDirection of one element, in the common part of C++ and OpenCL C, which
//              every backend compiles; a line in element_steps.h includes it
//   NAME.cc    IdScalars: what all elements of a step share
//
// Pure functions; any thread.

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/ir/optimizers/optimizer_scalars.h"
#include "kernels/ir/step_context.h"
#include "proto/base/training/optimizer.h"

namespace runnel {

struct OptimizerStep {
  const Optimizer* optimizer = nullptr;  // its row
  // The row's index. A backend in a shared object has a table of its own, so rows are told apart by
  // it and not by their addresses.
  int row = 0;
  OptimizerScalars (*scalars)(const StepContext& context) = nullptr;
  OptimizerUpdate update = nullptr;
  // Predicted weights if steps go on as the slots say: out[i] = weights[i] - distance * d, d being
  // the change of a step of rate 1. `out` may be `weights`.
  void (*look_ahead)(const OptimizerScalars& scalars, const float* weights,
                     const float* const* slots, float distance, int64_t count,
                     float* out) = nullptr;
};

// Steps in the order of Optimizers().
absl::Span<const OptimizerStep> OptimizerSteps();
// The step of this row of Optimizers(); null: sgd.
const OptimizerStep& StepOf(const Optimizer* optimizer);

}  // namespace runnel
