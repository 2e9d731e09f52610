#pragma once

// Passes over a draft (CompileOptions::recomputes). They change no value.

#include "kernels/ir/stage/stage_builder.h"

namespace runnel {

// Where no gradient leaves the stage the weight-gradients of convolutions and linear layers move to
// kInputGradient, each right before its operator's input-gradient. Not where weight-gradients are
// deferred (CompileOptions).
void MoveWeightGradients(StageDraft& draft);

// Makes results of batch normalisations, alone or through the ReLU behind them, again
// (kBatchNormAgain) in each backward part that reads them, right before the first reader, so that
// only the normalisation's input lives until then. Not in layers that RecomputeLayers has done.
// Convolutions keep the inputs of a normalisation next to them, so that a backend can run both at
// once. With a narrow stash (passes/narrow_stash.h) what a norm gives another layer is not made again:
// a cut between the two would change what that layer reads.
void RecomputeNorms(const ModelSpec& model, StageDraft& draft);

}  // namespace runnel
