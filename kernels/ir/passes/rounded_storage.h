#pragma once

// A pass over a draft (CompileOptions::stash).

#include "kernels/ir/recipe.h"
#include "kernels/ir/stage/stage_builder.h"

namespace runnel {

// Says which values of the forward are rounded to `type`: what a backward reads (an operator's
// input or output, by Saved and by its weight-gradient) and every layer's output, but for the
// logits. Whether a value is one of them depends on its layer alone, so where the model is cut
// changes no value.
//
// A rounded value becomes a tensor of the type, and so do its copies. Where a boundary tensor is among the
// copies it stays FP32: one that enters is read as it is, for whoever wrote it has rounded it; one
// that leaves has its values_of. What a ReLU alone reads becomes one too if the result is, so
// that the result can take its place: a ReLU of a rounded value is the rounded ReLU of the value.
//
// Of a recipe of floats. Before whatever copies instructions or places buffers.
void StoreRounded(const Recipe& recipe, DType type, StageDraft& draft);

}  // namespace runnel
