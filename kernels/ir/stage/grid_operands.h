#pragma once

// The operands of products on a recipe's grids: which instructions make them, and what the products
// read in their place. Used by StageBuilder only. One thread.

#include <vector>

#include "kernels/ir/stage/op_nodes.h"
#include "kernels/ir/stage/program_writer.h"

namespace runnel {

// What the forward reads in place of its input x.
BufferIndex InputFor(ProgramWriter& writer, Part part, const OpNode& node, BufferIndex x);

// The weight that the product of this part reads: of a quantizer's making, or the parameter itself.
// Made anew in each part, which costs less than keeping it for each micro-batch in flight.
BufferIndex WeightFor(ProgramWriter& writer, Part part, const OpNode& node);
// The parameters as operands of a forward.
void AppendWeights(ProgramWriter& writer, Part part, const OpNode& node,
                   std::vector<BufferIndex>* inputs);

// The operands of the node's gradients on their grids, before either product. What both products
// read on one grid is made once, and so is the input that the forward has read. `dy`: the gradient
// of the output, and then what the input-gradient reads. `leads_on`: an input-gradient will be made.
void EmitGradientGrids(ProgramWriter& writer, OpNode& node, bool leads_on, BufferIndex& dy);

}  // namespace runnel
