// DoReFa-Net (Zhou et al., 2016): "dorefa:W,A,G", the bits of weights, activations and gradients, 1
// to 8 each, or 32 for full precision. All values are FP32; those below lie on grids of 2^bits
// values.
//
// Weights: of convolutions and linear layers, but for the model's first and last one. Products read
//   quantize_W(tanh(w) / (2 max|tanh w|) + 1/2) * 2 - 1, with 1 bit sign(w) * mean|w|; SGD keeps
//   and steps the FP32 w. The gradient passes straight through the rounding and then through tanh
//   and the division, the maximum's own share included. With 1 bit it is passed on as it is.
// Activations: a grid needs bounds, and it is ReLU and ReLU6 that have one. Each becomes
//   quantize_A(clip(x, 0, 1)), behind the batch norm where there is one; the gradient passes where
//   0 <= x <= 1. What no ReLU bounds stays in full precision: the input, a linear bottleneck's
//   output, the sum of a shortcut. With A = 32 the model's ReLUs stay as they are.
// Gradients: of the outputs of the operators whose weights are quantised, before any batch norm,
//   rounded stochastically on a grid of each sample's own range. Input- and weight-gradient both
//   read the result.
//
// Models without batch norm train too, if less well with few bits: their clipped activations are
// often 1, for weights up to 1 make large sums.

#include "absl/strings/numbers.h"
#include "kernels/ir/recipes/make_recipes.h"

namespace runnel {
namespace {

constexpr int kFullPrecision = 32;

GridRule GridOf(const std::string& parameter) {
  GridRule grid;
  static_cast<void>(absl::SimpleAtoi(parameter, &grid.bits));  // a number, says the pattern
  return grid;
}

void QuantizeActivations(Recipe& recipe) {
  for (OpRule& rule : recipe.rules) {
    if (rule.op != OpKind::kRelu && rule.op != OpKind::kRelu6) continue;
    rule.forward = rule.forward_eval = OpCode::kFakeQuantizeActivation;
    rule.input_gradient = OpCode::kFakeQuantizeActivationGradient;
    rule.saved = Saved::kInput;
  }
}

}  // namespace

Recipe MakeDorefaRecipe(const RecipeName& name) {
  GridRule weights = GridOf(name.parameters[0]);
  if (weights.bits == 1) weights.weights = WeightGrid::kSignMean;
  GridRule errors = GridOf(name.parameters[2]);
  errors.is_gradient = true;
  Recipe dorefa = MakeFp32Recipe(name);
  dorefa.operator_grid = GridOf(name.parameters[1]);
  if (dorefa.operator_grid.bits != kFullPrecision) QuantizeActivations(dorefa);
  std::optional<Quantizer> weight, error;
  if (weights.bits != kFullPrecision) weight = {OpCode::kFakeQuantizeWeight, weights};
  if (errors.bits != kFullPrecision) error = {OpCode::kFakeQuantizeError, errors};
  ProductGrids grids = GridsOfAllProducts(weight, std::nullopt, error);
  if (weight) grids.master_gradient = OpCode::kFakeQuantizeWeightGradient;
  dorefa.grids = {{.places = kInnerPlaces, .grids = grids}};
  return dorefa;
}

}  // namespace runnel
