#include "kernels/ir/recipes/make_recipes.h"

// "bf16", "fp16": the instructions of fp32 on 16-bit activations, gradients and boundary tensors
// (kernels/ir/arithmetic/half_products.h). Weights, what the optimizer keeps, weight-gradients and
// statistics stay FP32; products round the weights as they read them. Gradients of fp16 are those
// of the loss times StepContext::loss_scale.
namespace runnel {

Recipe MakeBf16Recipe(const RecipeName& name) {
  Recipe halves = MakeFp32Recipe(name);
  halves.quantize = OpCode::kCopy;
  return halves;
}

Recipe MakeFp16Recipe(const RecipeName& name) { return MakeBf16Recipe(name); }

}  // namespace runnel
