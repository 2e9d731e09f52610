#pragma once

// Turns products of values on grids into products of their codes: sums of integers, corrected by sums
// of either operand's codes (arithmetic/code_grid.h).

#include "kernels/ir/recipe.h"
#include "kernels/ir/stage/stage_builder.h"

namespace runnel {

// Of every convolution and linear layer whose operands both come from affine or symmetric grids that
// nobody else reads. Floats stay: sums of more than 2^17 - 1 products, input-gradients of weights with
// a grid a channel, and recipes that are emulated (RecipeFamily), in evaluation too. Stands right
// behind DraftStage. What lies packed by a gate has a row for a grid at each sample; samples of one
// option share a grid, which lies in the row of the first of them.
void UseIntegerProducts(const Recipe& recipe, StageDraft& draft);

}  // namespace runnel
