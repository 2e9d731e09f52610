#pragma once

// A pass over a draft (CompileOptions::recomputes).

#include "kernels/ir/stage_builder.h"

namespace runnel {

// What a batch normalisation gives, alone or through the ReLU behind it, is made again
// (kBatchNormAgain) in each backward part that reads it, right before the first reader, so that
// only the normalisation's input lives until then. Where no gradient leaves the stage and
// weight-gradients are not deferred (CompileOptions), the weight-gradients of convolutions and
// linear layers move to kInputGradient, each right before its operator's input-gradient.
// Convolutions keep what a normalisation next to them reads, so that a backend can run both at
// once. Changes no value.
void Recompute(bool defers_weight_gradients, StageDraft& draft);

}  // namespace runnel
