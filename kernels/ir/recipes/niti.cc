// NITI: integer-only INT8 training, in the three profiles that exist: "niti" (Mandheling's CPU),
// "niti:niti2020" and "niti:niti2021" (the published code of these years). Every tensor is int8
// with one exponent; no operator has a bias or a batch norm; the step's size is the number of bits
// that a gradient keeps (GradientBits).

#include <iterator>

#include "kernels/ir/recipes/make_recipes.h"

namespace runnel {
namespace {

// No rule for batch norm: the re-scaling of every tensor stands in for it. No rule for ReLU6: its
// bound of 6 means nothing to a mantissa.
constexpr OpRule kRules[] = {
    {OpKind::kConv, OpCode::kInt8ConvForward, OpCode::kInt8ConvForward,
     OpCode::kInt8ConvInputGradient, OpCode::kInt8ConvWeightGradient, Saved::kNothing, true, true},
    {OpKind::kLinear, OpCode::kInt8LinearForward, OpCode::kInt8LinearForward,
     OpCode::kInt8LinearInputGradient, OpCode::kInt8LinearWeightGradient, Saved::kNothing, true,
     true},
    {OpKind::kRelu, OpCode::kInt8ReluForward, OpCode::kInt8ReluForward,
     OpCode::kInt8ReluInputGradient, std::nullopt, Saved::kOutput},
    {OpKind::kDropout, OpCode::kInt8DropoutForward, OpCode::kCopy,
     OpCode::kInt8DropoutInputGradient, std::nullopt, Saved::kNothing},
    {OpKind::kMaxPool, OpCode::kInt8MaxPoolForward, OpCode::kInt8MaxPoolForward,
     OpCode::kInt8MaxPoolInputGradient, std::nullopt, Saved::kIndices},
    {OpKind::kAvgPool, OpCode::kInt8AvgPoolForward, OpCode::kInt8AvgPoolForward,
     OpCode::kInt8AvgPoolInputGradient, std::nullopt, Saved::kNothing, true, false},
    {OpKind::kGlobalAvgPool, OpCode::kInt8GlobalAvgPoolForward, OpCode::kInt8GlobalAvgPoolForward,
     OpCode::kInt8GlobalAvgPoolInputGradient, std::nullopt, Saved::kNothing, true, false},
    {OpKind::kAdd, OpCode::kInt8Add, OpCode::kInt8Add, OpCode::kCopy, std::nullopt,
     Saved::kNothing},
    {OpKind::kFlatten, OpCode::kCopy, OpCode::kCopy, OpCode::kCopy, std::nullopt, Saved::kNothing},
};

}  // namespace

Recipe MakeNitiRecipe(const RecipeName& name) {
  const std::string profile = name.parameters.empty() ? "" : name.parameters[0];
  Recipe niti = {.rules = {std::begin(kRules), std::end(kRules)},
                 .quantize = OpCode::kQuantize,
                 .add_gradients = OpCode::kInt8Add,
                 .add_weight_gradient = OpCode::kAddScaledGradient,
                 .loss = OpCode::kIntegerSoftmaxCrossEntropy,
                 .loss_eval = OpCode::kIntegerSoftmaxCrossEntropyEval,
                 .update = OpCode::kNitiUpdate,
                 .rescale = {.rounding = Rounding::kPseudoStochastic, .promote_one_to_two = true}};
  if (profile == "niti2020" || profile == "niti2021") niti.loss_rounding = Rounding::kStochastic;
  if (profile == "niti2021") {
    niti.rescale = {.rounding = Rounding::kHalfAway, .power_of_two_input = true};
  }
  return niti;
}

}  // namespace runnel
