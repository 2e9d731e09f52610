#include "kernels/ir/recipes/make_recipes.h"

// "bf16": the instructions of fp32 on 16-bit activations, gradients and boundary tensors
// (kernels/ir/arithmetic/half_products.h). Weights, what the optimizer keeps, weight-gradients and
// statistics stay FP32; products round the weights as they read them.
namespace runnel {

Recipe MakeBf16Recipe(const RecipeName& name) {
  Recipe bf16 = MakeFp32Recipe(name);
  bf16.quantize = OpCode::kCopy;
  return bf16;
}

}  // namespace runnel
