#pragma once

// Marks the 3x3 convolutions of FP32's evaluation that F(2x2, 3x3) may compute
// (Instruction::winograd). Only evaluation, since its sums are other ones than those of training,
// and by a sample's shape alone, so that neither the batch nor a cut changes a result. Not in
// ModelSpec::frozen_front: training runs these layers too, and whoever computes their outputs gets
// the same bytes. Used by the compiler.

#include "kernels/ir/recipe.h"
#include "kernels/ir/stage/stage_builder.h"
#include "proto/base/model/model_spec.h"

namespace runnel {

void MarkWinograd(const ModelSpec& model, const Recipe& recipe, StageDraft& draft);

}  // namespace runnel
