// Octo with its loss-aware compensation: "octo_lac". As octo (octo.cc); behind each convolution
//
//   y = convolution + gain * compensation + offset,
//
// three learned tensors of one sample's shape, which step as all parameters do; an L2 penalty of 0.1
// pulls compensation and offset to 0. They are FP32 and behind the rounding, their gradients are of
// the output's unrounded gradient. They are state of the convolution (NumberFormat::operator_state).
// The authors' demonstration has one of each for every sample of a batch, too.

#include "kernels/ir/recipes/make_recipes.h"

namespace runnel {

Recipe MakeOctoLacRecipe(const RecipeName& name) { return MakeOctoRecipe(name); }

}  // namespace runnel
