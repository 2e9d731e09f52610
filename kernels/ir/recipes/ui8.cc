// Unified INT8 training (Zhu et al., CVPR 2020): "ui8". All values are FP32; what convolutions and
// linear layers read, but for the model's first and last one, lies on symmetric grids of 8 bits. Not
// compared with the authors' code, which is not public.
//
// Weights: max|w| of the tensor, to the nearest. Activations: max|x| of the micro-batch, in
//   evaluation its mean in training.
// Gradients: of the operator's output, clipped at the bound that turns their direction least (the
//   distance d = 1 - cosine), rounded stochastically. The bound is sought for each micro-batch, so
//   there is no history to keep. Input- and weight-gradient both read the result.
// Step: the operator's weight-gradients are multiplied by max(e^(-20 d), 0.1), which is its rate but
//   for momentum of before and weight decay.

#include "kernels/ir/recipes/make_recipes.h"

namespace runnel {

Recipe MakeUi8Recipe(const RecipeName& name) {
  const GridRule grid = {.bits = 8};
  const GridRule errors = {.bits = 8, .is_gradient = true};
  Recipe ui8 = MakeFp32Recipe(name);
  const InputQuantizer input = {OpCode::kSymmetricActivation, OpCode::kSymmetricActivationEval,
                                grid};
  ProductGrids grids = GridsOfAllProducts(Quantizer{OpCode::kSymmetricWeight, grid}, input,
                                          Quantizer{OpCode::kClippedError, errors});
  grids.master_gradient = OpCode::kCounterDeviation;
  ui8.grids = {{.places = kInnerPlaces, .grids = grids}};
  return ui8;
}

}  // namespace runnel
