#pragma once

// A pass over a draft (LayerSpec::stash).

#include "kernels/ir/stage/stage_builder.h"

namespace runnel {

// Whether a layer's stash has fewer bytes than the program's values (Program::values).
bool HasNarrowStash(const ModelSpec& model, DType values);

// What a layer's backward reads of the forward's activations, the boundary tensor that enters
// included, it reads from a copy of LayerSpec::stash, which lies in the stash in their place: written
// (kCopy) behind what makes the value, made a value again before the first reader of each backward
// part. The forward itself, raw samples, logits, gradients, statistics, weights and evaluation are as
// they were. A value's copy depends on the layer that reads it alone, so where the model is cut
// changes no byte. Behind passes that make values again.
void NarrowStash(const ModelSpec& model, StageDraft& draft);

}  // namespace runnel
