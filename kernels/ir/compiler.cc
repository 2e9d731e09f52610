#include "kernels/ir/compiler.h"

#include "absl/strings/str_cat.h"
#include "kernels/ir/memory_plan.h"
#include "kernels/ir/passes/batch_split.h"
#include "kernels/ir/passes/commute_pools.h"
#include "kernels/ir/passes/fold_relu.h"
#include "kernels/ir/passes/fuse_rescale.h"
#include "kernels/ir/passes/integer_products.h"
#include "kernels/ir/passes/keep_by_option.h"
#include "kernels/ir/passes/mark_winograd.h"
#include "kernels/ir/passes/mask_stash.h"
#include "kernels/ir/passes/narrow_stash.h"
#include "kernels/ir/passes/pack_codes.h"
#include "kernels/ir/passes/recompute.h"
#include "kernels/ir/passes/recompute_layers.h"
#include "kernels/ir/passes/rounded_storage.h"
#include "kernels/ir/passes/scatter_into_sums.h"
#include "kernels/ir/passes/step_in_backward.h"
#include "kernels/ir/stage/stage_builder.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

absl::Status CheckRange(const ModelSpec& model, int first_layer, int last_layer) {
  if (first_layer >= 0 && first_layer <= last_layer && last_layer < model.layer_count()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("layers ", first_layer, "..", last_layer,
                                                 " are no range of model ", model.name, " with ",
                                                 model.layer_count(), " layers"));
}

}  // namespace

absl::StatusOr<StateLayout> PlanState(const ModelSpec& model, int first_layer, int last_layer,
                                      const Recipe& recipe, const CompileOptions& options) {
  RUNNEL_RETURN_IF_ERROR(CheckRange(model, first_layer, last_layer));
  RUNNEL_ASSIGN_OR_RETURN(std::vector<LayerInfo> infos, InferShapes(model, 1));
  return LayOutState(infos, first_layer, last_layer, recipe, options);
}

absl::StatusOr<Program> CompileStage(const ModelSpec& model, int first_layer, int last_layer,
                                     int64_t batch, const Recipe& recipe,
                                     const CompileOptions& options) {
  RUNNEL_RETURN_IF_ERROR(CheckRange(model, first_layer, last_layer));
  RUNNEL_RETURN_IF_ERROR(CheckModel(recipe, model));
  if (options.steps_in_backward && !options.one_in_flight) {
    return absl::InvalidArgumentError("steps_in_backward needs one_in_flight");
  }
  // A step between products of one option would come before the gradients of the others.
  if (options.steps_in_backward && HasGates(model)) {
    return absl::InvalidArgumentError("steps_in_backward cannot be with gates");
  }
  if (options.defers_weight_gradients && options.one_in_flight) {
    return absl::InvalidArgumentError("defers_weight_gradients cannot be with one_in_flight");
  }
  if (options.rescale.keeps() && !options.rescales_in_products) {
    return absl::InvalidArgumentError("kept scales need rescales_in_products");
  }
  if (options.steps_in_backward && options.accumulates_gradients) {
    return absl::InvalidArgumentError("steps_in_backward cannot be with accumulates_gradients");
  }
  if (batch > options.max_batch) {
    return absl::InvalidArgumentError(absl::StrCat(
        "micro-batches of ", batch, " samples, the state was laid out for ", options.max_batch));
  }
  const ModelSpec commuted = CommutePools(model);
  RUNNEL_ASSIGN_OR_RETURN(std::vector<LayerInfo> infos, InferShapes(commuted, batch));
  RUNNEL_ASSIGN_OR_RETURN(StageDraft draft,
                          DraftStage(commuted, infos, first_layer, last_layer, recipe, options));
  if (options.integer_products) UseIntegerProducts(recipe, draft);
  FoldRelu(draft);
  MarkWinograd(commuted, recipe, draft);
  ScatterIntoSums(draft);
  FuseRescale(options, draft);
  const bool is_float = !IsScaled(recipe.numbers.activation);
  if (options.stash != DType::kFloat32 && is_float) StoreRounded(recipe, options.stash, draft);
  const bool narrows = is_float && HasNarrowStash(commuted, recipe.numbers.activation);
  if (options.recomputes && is_float && !options.defers_weight_gradients)
    MoveWeightGradients(draft);
  const bool masks = options.masks_stash && !narrows && options.stash == DType::kFloat32 &&
                     recipe.numbers.activation == DType::kFloat32;
  RecomputeLayers(commuted, masks, draft);
  // With a narrow stash on every backend, since it changes what the backward reads.
  if ((options.recomputes && is_float) || narrows) RecomputeNorms(commuted, draft);
  if (masks) MaskStash(draft);
  if (narrows) NarrowStash(commuted, draft);
  if (options.masks_stash) PackCodes(options.most_forward_bits, draft);
  if (options.steps_in_backward) StepInBackward(draft);
  if (HasGates(model)) KeepByOption(draft);
  PlanMemory(draft.placed, options.one_in_flight, draft.program);
  SplitBatches(options.batch_split, recipe.gradient_rounding, draft.program);
  return std::move(draft.program);
}

absl::StatusOr<Program> CompileStage(const ModelSpec& model, int first_layer, int last_layer,
                                     int64_t batch, const Recipe& recipe) {
  CompileOptions options;
  options.max_batch = batch;
  return CompileStage(model, first_layer, last_layer, batch, recipe, options);
}

}  // namespace runnel
