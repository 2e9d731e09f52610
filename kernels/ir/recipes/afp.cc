// Adaptive fixed point (Zhang et al., CVPR 2020): "afp". All values are FP32; what convolutions and
// linear layers read lies on fixed points of 8, 16 or 24 bits, to the nearest
// (kernels/ir/arithmetic/fixed_width.h). Not compared with the authors' code.
//
// Weights, activations and the gradients of the operators' outputs have a width each, by operator,
//   first and last layer too. It follows from what rounding did to the mean of the tensor in the
//   micro-batches so far, so it is a state of the layer and needs no barrier. A weight has two such
//   states, one of the forward's and one of the input-gradient's, as the two may be micro-batches
//   apart; they see the same values, so they agree.
// Evaluation has the widths of training. Input- and weight-gradient read the same gradient.
// Between measurements what is too large saturates. Batch norm, biases and the step are FP32.

#include "kernels/ir/recipes/make_recipes.h"

namespace runnel {

Recipe MakeAfpRecipe(const RecipeName& name) {
  const GridRule grid = {.bits = 8};
  const GridRule errors = {.bits = 8, .is_gradient = true};
  Recipe afp = MakeFp32Recipe(name);
  const InputQuantizer input = {OpCode::kAdaptWidth, OpCode::kAdaptWidth, grid};
  afp.grids = {{.grids = GridsOfAllProducts(Quantizer{OpCode::kAdaptWidth, grid}, input,
                                            Quantizer{OpCode::kAdaptWidth, errors})}};
  return afp;
}

}  // namespace runnel
