#include "kernels/recipes/niti.h"

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

Recipe Niti(absl::string_view name) {
  return {.name = name,
          .activation = DType::kInt8,
          .rules = kRules,
          .quantize = OpCode::kQuantize,
          .add_gradients = OpCode::kInt8Add,
          .parameter = DType::kInt8,
          .loss = OpCode::kIntegerSoftmaxCrossEntropy,
          .loss_eval = OpCode::kIntegerSoftmaxCrossEntropyEval,
          .update = OpCode::kNitiUpdate,
          .rescale = {.rounding = Rounding::kPseudoStochastic, .promote_one_to_two = true}};
}

}  // namespace

const Recipe& NitiMandhelingRecipe() {
  static const Recipe recipe = Niti("niti");
  return recipe;
}

const Recipe& Niti2020Recipe() {
  static const Recipe recipe = [] {
    Recipe niti = Niti("niti:niti2020");
    niti.loss_rounding = Rounding::kStochastic;
    return niti;
  }();
  return recipe;
}

const Recipe& Niti2021Recipe() {
  static const Recipe recipe = [] {
    Recipe niti = Niti("niti:niti2021");
    niti.rescale = {.rounding = Rounding::kHalfAway, .power_of_two_input = true};
    niti.loss_rounding = Rounding::kStochastic;
    return niti;
  }();
  return recipe;
}

}  // namespace runnel
