#pragma once

// Folds the ReLU that follows a rescaling, and the ReLU mask that follows the rescaling of an
// error, into the kRescale itself: one pass over memory less each. Used by the compiler between
// drafting and memory planning. A pure function; any thread.

#include "kernels/ir/stage/stage_builder.h"

namespace runnel {

// Results are the same bytes. Only values that nobody else reads are folded away.
void FoldRelu(StageDraft& draft);

}  // namespace runnel
