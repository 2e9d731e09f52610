// 8-bit floats with chunk-based sums (Wang et al., NeurIPS 2018): "fp8_chunk", "fp8_chunk:CHUNK",
// "fp8_chunk:fp32". All values are FP32; what convolutions and linear layers read is rounded to
// small floats (kernels/ir/arithmetic/float_grid.h), to the nearest:
//
//                 input    weight   gradient of the output
//   first         1/6/9    1/5/2    1/5/2
//   last          1/6/9    1/6/9    1/6/9
//   all others    1/5/2    1/5/2    1/5/2
//
// Sums of a product are 1/6/9 after each addition, in chunks of 64 terms, or CHUNK; "fp32": they are
// FP32's. A step's weight-gradient is the FP32 sum of those of its micro-batches.
// Step: weights and what the optimizer keeps are rounded to 1/6/9 at random behind it; its own
//   arithmetic is FP32 (the authors round after each of three additions).
// Gradients are those of the loss times StepContext::loss_scale, 1024 unless --loss-scale says
//   otherwise. Batch norm and loss are FP32.

#include "absl/strings/numbers.h"
#include "kernels/ir/recipes/make_recipes.h"

namespace runnel {
namespace {

constexpr int kDefaultChunk = 64;
constexpr GridRule k8Bits = {.bits = 2, .exponent_bits = 5};
constexpr GridRule k16Bits = {.bits = 9, .exponent_bits = 6};

ProductGrids SmallFloatsOf(const GridRule& inputs, const GridRule& weights, GridRule errors) {
  errors.is_gradient = true;
  return GridsOfAllProducts(Quantizer{OpCode::kSmallFloat, weights},
                            InputQuantizer{OpCode::kSmallFloat, OpCode::kSmallFloat, inputs},
                            Quantizer{OpCode::kSmallFloat, errors});
}

void SumInChunks(Recipe& recipe, int chunk) {
  recipe.operator_grid = k16Bits;
  recipe.operator_grid.chunk = chunk;
  for (OpRule& rule : recipe.rules) {
    if (rule.op == OpKind::kConv) {
      rule.forward = rule.forward_eval = OpCode::kChunkedConvForward;
      rule.input_gradient = OpCode::kChunkedConvInputGradient;
      rule.weight_gradient = OpCode::kChunkedConvWeightGradient;
    } else if (rule.op == OpKind::kLinear) {
      rule.forward = rule.forward_eval = OpCode::kChunkedLinearForward;
      rule.input_gradient = OpCode::kChunkedLinearInputGradient;
      rule.weight_gradient = OpCode::kChunkedLinearWeightGradient;
    }
  }
}

}  // namespace

Recipe MakeFp8ChunkRecipe(const RecipeName& name) {
  static constexpr Place kFirst[] = {Place::kFirst}, kLast[] = {Place::kLast};
  const std::string parameter = name.parameters.empty() ? "" : name.parameters[0];
  Recipe fp8 = MakeFp32Recipe(name);
  int chunk = kDefaultChunk;
  static_cast<void>(absl::SimpleAtoi(parameter, &chunk));  // a number, says the pattern, or fp32
  if (parameter != "fp32") SumInChunks(fp8, parameter.empty() ? kDefaultChunk : chunk);
  fp8.grids = {{.places = kFirst, .grids = SmallFloatsOf(k16Bits, k8Bits, k8Bits)},
               {.places = kLast, .grids = SmallFloatsOf(k16Bits, k16Bits, k16Bits)},
               {.grids = SmallFloatsOf(k8Bits, k8Bits, k8Bits)}};
  fp8.step_grid = k16Bits;
  return fp8;
}

}  // namespace runnel
