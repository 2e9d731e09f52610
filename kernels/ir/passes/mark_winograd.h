#pragma once

// Marks the 3x3 convolutions of FP32's evaluation that F(2x2, 3x3) may compute
// (Instruction::winograd). Only evaluation, since its sums are other ones than those of training,
// and by a sample's shape alone, so that neither the batch nor a cut changes a result. Used by the
// compiler.

#include "kernels/ir/recipe.h"
#include "kernels/ir/stage_builder.h"

namespace runnel {

void MarkWinograd(const Recipe& recipe, StageDraft& draft);

}  // namespace runnel
