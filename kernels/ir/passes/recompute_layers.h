#pragma once

// A pass over a draft (LayerSpec::recompute).

#include "kernels/ir/stage/stage_builder.h"

namespace runnel {

// What the forward makes inside such a layer and the layer's backward reads is made again in each
// backward part that reads it, right before the first reader, by the same instructions from the
// layer's input, or from its codes, which are kept in its place where nothing else of the backward
// reads it. Batch normalisations keep their statistics (kBatchNormAgain). Changes no value.
// masks_follow: MaskStash does.
void RecomputeLayers(const ModelSpec& model, bool masks_follow, StageDraft& draft);

}  // namespace runnel
