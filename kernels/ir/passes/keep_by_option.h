#pragma once

// A pass over a draft with gates, in front of the memory plan.

#include "kernels/ir/stage/stage_builder.h"

namespace runnel {

// A group of instructions that runs option by option (gate_options.h) reads for the second option what
// it has read for the first one. So no two values of a group share memory. The same bytes; a gate with
// one option that does not skip has no such groups.
void KeepByOption(StageDraft& draft);

}  // namespace runnel
