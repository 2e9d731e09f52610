#pragma once

// A pass over a draft (LayerSpec::recompute).

#include "kernels/ir/stage/stage_builder.h"

namespace runnel {

// What the forward makes inside such a layer and the layer's backward reads is made again in each
// backward part that reads it, right before the first reader, by the same instructions from the
// layer's input. Batch normalisations keep their statistics (kBatchNormAgain). Changes no value.
void RecomputeLayers(const ModelSpec& model, StageDraft& draft);

}  // namespace runnel
