// SBM (Banner et al., 2018) as FracTrain has it for its baseline: "sbm:W,A,G", the bits of weights,
// activations and gradients. All values are FP32; what convolutions and linear layers read, the
// first and the last one too, lies on grids of 2^bits values over a range.
//
// Weights: the range of each output channel, to the nearest. The input-gradient, whose sums go over
//   output channels, reads them on one grid of the tensor's range.
// Activations: an operator's input, the range of the whole micro-batch, to the nearest; evaluation
//   has the mean range of training.
// Gradients: of the operator's output, the range of the whole tensor, rounded stochastically. Input-
//   and weight-gradient both read the result.
// "sbm_range:W,A,G" is Banner's own: batch norm by ranges in 8 bits (kRangeNormForward), and the
// gradient bifurcates: the input-gradient reads it on the grid of G bits, the weight-gradient on one
// of 16, both by the same draws.
//
// sbm: operands of depthwise convolutions are on grids of 8 bits, gradients of 16, whatever the name
// and the level of --precision say, as FracTrain has them: a sum has 9 terms there, and a model with
// 8 bits of these gradients does not learn.
//
// Gradients pass straight through all three. With sbm, batch norm, biases and the optimizer's step are FP32.

#include "absl/strings/numbers.h"
#include "kernels/ir/recipes/make_recipes.h"

namespace runnel {
namespace {

GridRule GridOf(const std::string& parameter) {
  GridRule grid;
  static_cast<void>(absl::SimpleAtoi(parameter, &grid.bits));  // a number, says the pattern
  return grid;
}

ProductGrids GridsOf(const GridRule& weights, const GridRule& inputs, GridRule errors) {
  errors.is_gradient = true;
  ProductGrids grids = GridsOfAllProducts(
      Quantizer{OpCode::kAffineWeight, weights},
      InputQuantizer{OpCode::kAffineActivation, OpCode::kAffineActivationEval, inputs},
      Quantizer{OpCode::kAffineError, errors});
  grids.input_gradient.weight->grid.of_tensor = true;
  return grids;
}

Recipe OnGridsOfRange(const RecipeName& name) {
  Recipe recipe = MakeFp32Recipe(name);
  recipe.grids = {{.grids = GridsOf(GridOf(name.parameters[0]), GridOf(name.parameters[1]),
                                    GridOf(name.parameters[2]))}};
  return recipe;
}

}  // namespace

Recipe MakeSbmRecipe(const RecipeName& name) {
  static constexpr Place kDepthwise[] = {Place::kDepthwise};
  constexpr GridRule kForward = {.bits = kSbmDepthwise.forward, .is_fixed = true};
  constexpr GridRule kBackward = {.bits = kSbmDepthwise.backward, .is_fixed = true};
  Recipe sbm = OnGridsOfRange(name);
  sbm.grids.insert(sbm.grids.begin(),
                   {.places = kDepthwise, .grids = GridsOf(kForward, kForward, kBackward)});
  return sbm;
}

Recipe MakeSbmRangeRecipe(const RecipeName& name) {
  Recipe range = OnGridsOfRange(name);
  range.grids[0].grids.weight_gradient.error->grid.bits = 16;
  range.operator_grid.bits = 8;
  for (OpRule& rule : range.rules) {
    if (rule.op != OpKind::kBatchNorm) continue;
    rule.forward = OpCode::kRangeNormForward;
    rule.forward_eval = OpCode::kRangeNormEval;
    rule.input_gradient = OpCode::kRangeNormInputGradient;
  }
  return range;
}

}  // namespace runnel
