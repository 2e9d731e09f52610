#pragma once

// A sum with samples that kScatterSamples puts in their places is that instruction with a base: the
// zeros of samples that skip are never written, nor added. The bytes are the same, but that -0 stays
// -0 where it was added to 0. A pure function; any thread.

#include "kernels/ir/stage/stage_builder.h"

namespace runnel {

void ScatterIntoSums(StageDraft& draft);

}  // namespace runnel
