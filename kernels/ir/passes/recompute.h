#pragma once

// A pass over a draft (CompileOptions::recomputes).

#include "kernels/ir/stage_builder.h"

namespace runnel {

// Makes results of batch normalisations, alone or through the ReLU behind them, again
// (kBatchNormAgain) in each backward part that reads them, right before the first reader, so that
// only the normalisation's input lives until then. Where no gradient leaves the stage and
// weight-gradients are not deferred (CompileOptions), the weight-gradients of convolutions and
// linear layers move to kInputGradient, each right before its operator's input-gradient.
// Convolutions keep the inputs of a normalisation next to them, so that a backend can run both at
// once. Changes no value.
void Recompute(bool defers_weight_gradients, StageDraft& draft);

}  // namespace runnel
