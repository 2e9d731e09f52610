#pragma once

// Layers x recipe -> program: reverse-mode differentiation with input-gradient and weight-gradient
// as separate instructions, and a memory plan that reuses what is dead. Pure functions; any thread.

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/ir/program.h"
#include "kernels/ir/recipe.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/training/batch_split.h"

namespace runnel {

struct CompileOptions {
  // Integer recipes: a step has several micro-batches, whose gradients are added up.
  bool accumulates_gradients = false;
  // The largest micro-batch of all programs that share the state; decides how wide integer
  // gradients are.
  int64_t max_batch = 1;
  // FP32: what batch normalisations give is made again in the backward instead of being stashed,
  // and where no gradient leaves the stage, each operator's weight-gradient runs right before its
  // input-gradient, so that activations and gradients are not all alive at once. The same bytes.
  bool recomputes = false;
  // No other micro-batch's forward comes between a forward and its backward, as in the plain loop
  // and in stages with the cap 1: values kept in between share kScratch over time, and kStash is
  // empty.
  bool one_in_flight = false;
  // Parts of other micro-batches may come between kInputGradient and kWeightGradient, each
  // micro-batch with its own kScratch from the one to the other: so kInputGradient does no
  // weight-gradients although `recomputes`. Not with one_in_flight.
  bool defers_weight_gradients = false;
  // With one_in_flight, where a step has one micro-batch: each tensor is updated as soon as the
  // backward no longer reads it, so gradients are never all alive at once and have no storage.
  // kUpdate is empty; the backward changes kNewParameters, which must be the very memory of
  // kParameters, and kSlots. The same bytes.
  bool steps_in_backward = false;
  // Integer recipes. Where scales are kept, products have a KeptScale in kStatistics and rescale
  // their own sums in training; so they do under kSpeculate, with the bytes of kDynamic, if
  // rescales_in_products.
  RescaleRule rescale;
  bool rescales_in_products = false;  // BackendTraits
  // Recipes of floats: the type of what the forward keeps for the backward, rounded once by the
  // instruction that writes it, to the nearest, ties to even. So is each layer's output, also where
  // it leaves the stage as FP32, so that a cut changes no byte. Raw samples, logits, gradients,
  // statistics and evaluation stay FP32. A type of BackendTraits::stash.
  DType stash = DType::kFloat32;
  // Integer recipes. kAuto leaves products whole: it is for those who can measure
  // (SplitByProfile, backends/tuner.h).
  BatchSplitRule batch_split;
  // Recipes with grids: products that can be are those of codes (passes/integer_products.h,
  // BackendTraits::multiplies_codes).
  bool integer_products = false;
  // What a ReLU alone would keep for its gradient is kept as bits (passes/mask_stash.h), codes of few
  // bits as pairs (passes/pack_codes.h); BackendTraits::masks_stash. The same bytes.
  bool masks_stash = false;
  // The largest bits that --precision gives activations; 0: those of the recipe's name.
  int most_forward_bits = 0;
  // Recipes of floats. A row of Optimizers(); null: sgd.
  const Optimizer* optimizer = nullptr;
  // Recipes of floats. Behind the optimizer's slots lies kAverageSlot, which no instruction touches.
  bool averages_weights = false;
};

// The layout of the state of layers first_layer..last_layer; the same for programs with the same
// options. InvalidArgument if the range or the model is wrong.
absl::StatusOr<StateLayout> PlanState(const ModelSpec& model, int first_layer, int last_layer,
                                      const Recipe& recipe, const CompileOptions& options);

// Compiles the layers for micro-batches of `batch` samples. The loss is part of the stage with the
// last layer. InvalidArgument names the layer and operator that the recipe cannot train
// (CheckModel) or whose output is unused, an invalid range, or a batch over options.max_batch.
absl::StatusOr<Program> CompileStage(const ModelSpec& model, int first_layer, int last_layer,
                                     int64_t batch, const Recipe& recipe,
                                     const CompileOptions& options);
// Compiles with options {.max_batch = batch}.
absl::StatusOr<Program> CompileStage(const ModelSpec& model, int first_layer, int last_layer,
                                     int64_t batch, const Recipe& recipe);

// What a product of a recipe with grids computes with, for people: "int8", "int16" (the gradient has
// more than 8 bits by the recipe's name, or for an option of a gate) or "emulated" (floats on grids); empty for other recipes and
// instructions.
absl::string_view ProductNumbers(const Recipe& recipe, const Instruction& instruction);

}  // namespace runnel
