#pragma once

// A pass over a draft (CompileOptions::masks_stash).

#include "kernels/ir/stage/stage_builder.h"

namespace runnel {

// Where nothing but gradients of a ReLU would read its result in the backward, a mask of one bit an
// element (kReluMask) is kept in its place. The same bytes. Not of samples by choice (gates). Behind
// passes that make values again; for programs of FP32 whose stash is not narrower.
void MaskStash(StageDraft& draft);

}  // namespace runnel
