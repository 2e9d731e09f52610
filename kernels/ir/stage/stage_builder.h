#pragma once

// Makes instructions of layers, before any value has a place in memory: the forward, its
// differentiation and the state's layout. Used by the compiler only. A pure function; any thread.

#include <vector>

#include "absl/status/statusor.h"
#include "kernels/ir/compiler.h"
#include "kernels/ir/program.h"
#include "kernels/ir/recipe.h"
#include "proto/base/model/model_spec.h"

namespace runnel {

// A program whose buffers are values that are written once; `placed` says which have their storage
// and offset already (boundary tensors, state, labels, metrics).
struct StageDraft {
  Program program;
  std::vector<bool> placed;
};

// `infos` is InferShapes(model, batch); the range lies within the model.
//
// The order of instructions and of the terms of every sum is that of the operators, so cutting the
// model elsewhere changes no result: within a layer a value's gradient is the sum over its readers
// from the last to the first, and a layer's output has one gradient only.
// The model passes CheckModel.
absl::StatusOr<StageDraft> DraftStage(const ModelSpec& model, const std::vector<LayerInfo>& infos,
                                      int first_layer, int last_layer, const Recipe& recipe,
                                      const CompileOptions& options);

// Parameters one after the other from 64-byte aligned offsets, gradients and statistics likewise.
StateLayout LayOutState(const std::vector<LayerInfo>& infos, int first_layer, int last_layer,
                        const Recipe& recipe, const CompileOptions& options);

// Type of the gradient of an operator's weight, (out_channels, ...), with this output for
// micro-batches of `batch` samples: kInt32, or kInt64 where the sum over samples and positions
// could overflow.
DType GradientTypeOf(const Shape& op_output, const Shape& weight, int64_t batch);

}  // namespace runnel
