// Octo (Zhou et al., USENIX ATC 2021): "octo". All values are FP32; what convolutions read, the
// first and the last one too, lies on symmetric grids of 8 bits. Linear layers, batch norm and the
// optimizer's step are FP32. Written after the authors' demonstration; it lacks their loss-aware
// compensation, a learned correction behind each convolution.
//
// Forward: weights and the operator's input, max|x| of the tensor (in evaluation too), rounded at
//   random, in evaluation to the nearest. The demonstration's unit is (max - min) / 510 with codes
//   of 9 bits and no zero; with 8 bits that would cut a ReLU's values at half of their maximum.
// Backward: all to the nearest. The gradient of the operator's output is first clipped to 0.95 of
//   its least and its largest value; weights and input anew from the FP32 values. A bias' gradient
//   is the sum of the rounded gradients.

#include "kernels/ir/recipes/make_recipes.h"

namespace runnel {

Recipe MakeOctoRecipe(const RecipeName& name) {
  constexpr float kKeptRange = 0.95f;
  const GridRule nearest = {.bits = 8};
  const GridRule inputs = {.bits = 8, .draws = 1}, weights = {.bits = 8, .draws = 2};
  const Quantizer error = {OpCode::kSymmetricError,
                           {.bits = 8, .is_gradient = true, .clip = kKeptRange}};
  ProductGrids grids;
  grids.forward = {
      InputQuantizer{OpCode::kSymmetricActivation, OpCode::kSymmetricActivation, inputs},
      Quantizer{OpCode::kSymmetricWeight, weights}};
  grids.input_gradient = {error, Quantizer{OpCode::kSymmetricWeight, nearest}};
  grids.weight_gradient = {error, Quantizer{OpCode::kSymmetricActivation, nearest}};
  Recipe octo = MakeFp32Recipe(name);
  octo.grids = {{.op = OpKind::kConv, .grids = grids}};
  return octo;
}

}  // namespace runnel
