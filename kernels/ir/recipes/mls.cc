// MLS, multi-level scaling (Zhong et al., 2020): "mls:E,M", the bits of exponents and mantissas. All
// values are FP32; what convolutions and linear layers read, but for the model's first and last one,
// are signed floats of 1 + E + M bits in [-1, 1], times a scale of the tensor and one of their group
// (kernels/ir/arithmetic/multi_level.h). Not compared with the authors' code, which is not public.
//
// Weights, activations and the gradients of the operators' outputs alike; elements are rounded
// stochastically, in evaluation to the nearest. Both passes of a micro-batch read the same weights,
// input- and weight-gradient the same gradients; those pass straight through. The paper has groups
// for convolutions; a linear layer's are its rows.

#include "absl/strings/numbers.h"
#include "kernels/ir/recipes/make_recipes.h"

namespace runnel {

Recipe MakeMlsRecipe(const RecipeName& name) {
  GridRule grid;
  static_cast<void>(absl::SimpleAtoi(name.parameters[0], &grid.exponent_bits));  // numbers, says
  static_cast<void>(absl::SimpleAtoi(name.parameters[1], &grid.bits));           // the pattern
  GridRule errors = grid;
  errors.is_gradient = true;
  Recipe mls = MakeFp32Recipe(name);
  const InputQuantizer input = {OpCode::kMultiLevelActivation, OpCode::kMultiLevelActivation, grid};
  mls.grids = {{.places = kInnerPlaces,
                .grids = GridsOfAllProducts(Quantizer{OpCode::kMultiLevelWeight, grid}, input,
                                            Quantizer{OpCode::kMultiLevelError, errors})}};
  return mls;
}

}  // namespace runnel
