#pragma once

// A pass over a draft (CompileOptions::steps_in_backward).

#include "kernels/ir/stage/stage_builder.h"

namespace runnel {

// Moves the optimizer step of each FP32 tensor into the backward: right behind the last instruction
// that writes its gradient or reads its value. Gradients become values like all others. Changes no
// value; the last pass before the memory plan.
void StepInBackward(StageDraft& draft);

}  // namespace runnel
