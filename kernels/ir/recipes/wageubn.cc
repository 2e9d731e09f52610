// WAGEUBN (Yang et al., Neural Networks 2020): "wageubn", "wageubn:E2", E2 the bits of a product's
// gradients, 8 (default) or 16. All values are FP32; they lie on fixed points in (-1, 1)
// (kernels/ir/arithmetic/fixed_point.h), to the nearest:
//
//   weights                          8 bits; too large ones saturate
//   inputs of operators              steps of 8 bits, as far as they go (see below)
//   gradient behind a ReLU           8 bits times a power of two
//   gradient of an operator's output 8 bits and a flag between two ranges, or 16, times a power of two
//   batch norm                       statistics 16 bits, scale and shift 8, normalised values 8
//   a step's weight-gradient         128 codes of 2^-14, at random, whatever its magnitude
//   step                             rate 10 bits, momentum 13, weights that step 24
//
// The first and the last operator with weights are FP32, and step in FP32. The momentum of the paper
// is 1/4, its rate 0.05. Its code does not clip activations, and nothing keeps them within (-1, 1):
// behind sums of blocks nearly all are beyond, and batch norms of products with inputs that saturate
// have next to no deviation to divide by. Products in 8 bits would need such inputs scaled.

#include "absl/strings/numbers.h"
#include "kernels/ir/recipes/make_recipes.h"

namespace runnel {

Recipe MakeWageubnRecipe(const RecipeName& name) {
  constexpr int kBits = 8, kStoredBits = 24;
  int error_bits = kBits;
  if (!name.parameters.empty())
    static_cast<void>(absl::SimpleAtoi(name.parameters[0], &error_bits));  // says the pattern
  const GridRule grid = {.bits = kBits};
  const GridRule errors = {.bits = error_bits, .is_gradient = true};
  const OpCode error = error_bits == kBits ? OpCode::kFlagError : OpCode::kShiftError;
  Recipe wageubn = MakeFp32Recipe(name);
  wageubn.operator_grid.bits = kBits;
  for (OpRule& rule : wageubn.rules) {
    if (rule.op == OpKind::kRelu) rule.input_gradient = OpCode::kShiftedReluInputGradient;
    if (rule.op != OpKind::kBatchNorm) continue;
    rule.forward = OpCode::kFixedNormForward;
    rule.forward_eval = OpCode::kFixedNormEval;
    rule.input_gradient = OpCode::kFixedNormInputGradient;
  }
  const GridRule activations = {.bits = kBits, .is_open = true};
  const InputQuantizer input = {OpCode::kFixedPoint, OpCode::kFixedPoint, activations};
  wageubn.grids = {{.places = kInnerPlaces,
                    .grids = GridsOfAllProducts(Quantizer{OpCode::kFixedPoint, grid}, input,
                                                Quantizer{error, errors})}};
  wageubn.step_grid = GridRule{.bits = kStoredBits};
  wageubn.step = OpCode::kFixedUpdate;
  return wageubn;
}

}  // namespace runnel
