#pragma once

// Joins a product with the kRescale behind it, so that its sums are nowhere in memory, and gives it
// its kept scale if scales are kept (Mandheling, section 3.4). Used by the compiler between
// drafting and memory planning. A pure function; any thread.

#include "kernels/ir/compiler.h"
#include "kernels/ir/stage/stage_builder.h"

namespace runnel {

// Does nothing unless scales are kept, or are speculated on by a backend that can. Evaluation keeps
// no scale: its bytes are those of kDynamic.
void FuseRescale(const CompileOptions& options, StageDraft& draft);

}  // namespace runnel
