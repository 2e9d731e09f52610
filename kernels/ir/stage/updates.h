#pragma once

// The instructions that step a stage's parameters. Used by StageBuilder only. One thread.

#include <vector>

#include "kernels/ir/compiler.h"
#include "kernels/ir/stage/op_nodes.h"
#include "kernels/ir/stage/program_writer.h"

namespace runnel {

// One for all FP32 parameters; a recipe with scaled parameters or a step_grid has one a tensor.
void EmitUpdates(ProgramWriter& writer, const std::vector<OpNode>& nodes,
                 const CompileOptions& options);

}  // namespace runnel
