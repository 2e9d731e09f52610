#include <iterator>

#include "kernels/ir/recipes/make_recipes.h"

// Plain single-precision training with SGD and momentum.
namespace runnel {
namespace {

// Flatten, and dropout in evaluation, are copies that the memory plan turns into views.
constexpr OpRule kRules[] = {
    {OpKind::kConv, OpCode::kConvForward, OpCode::kConvForward, OpCode::kConvInputGradient,
     OpCode::kConvWeightGradient, Saved::kNothing},
    {OpKind::kLinear, OpCode::kLinearForward, OpCode::kLinearForward, OpCode::kLinearInputGradient,
     OpCode::kLinearWeightGradient, Saved::kNothing},
    {OpKind::kBatchNorm, OpCode::kBatchNormForward, OpCode::kBatchNormEval,
     OpCode::kBatchNormInputGradient, OpCode::kBatchNormWeightGradient, Saved::kInputAndStats},
    {OpKind::kRelu, OpCode::kReluForward, OpCode::kReluForward, OpCode::kReluInputGradient,
     std::nullopt, Saved::kOutput},
    {OpKind::kRelu6, OpCode::kRelu6Forward, OpCode::kRelu6Forward, OpCode::kRelu6InputGradient,
     std::nullopt, Saved::kOutput},
    {OpKind::kDropout, OpCode::kDropoutForward, OpCode::kCopy, OpCode::kDropoutInputGradient,
     std::nullopt, Saved::kNothing},
    {OpKind::kMaxPool, OpCode::kMaxPoolForward, OpCode::kMaxPoolForward,
     OpCode::kMaxPoolInputGradient, std::nullopt, Saved::kIndices},
    {OpKind::kAvgPool, OpCode::kAvgPoolForward, OpCode::kAvgPoolForward,
     OpCode::kAvgPoolInputGradient, std::nullopt, Saved::kNothing},
    {OpKind::kGlobalAvgPool, OpCode::kGlobalAvgPoolForward, OpCode::kGlobalAvgPoolForward,
     OpCode::kGlobalAvgPoolInputGradient, std::nullopt, Saved::kNothing},
    {OpKind::kAdd, OpCode::kAddForward, OpCode::kAddForward, OpCode::kCopy, std::nullopt,
     Saved::kNothing},
    {OpKind::kFlatten, OpCode::kCopy, OpCode::kCopy, OpCode::kCopy, std::nullopt, Saved::kNothing},
    // Tokens have no gradient, so none is ever asked for.
    {OpKind::kEmbedding, OpCode::kEmbeddingForward, OpCode::kEmbeddingForward, OpCode::kCopy,
     OpCode::kEmbeddingWeightGradient, Saved::kNothing},
    {OpKind::kLayerNorm, OpCode::kLayerNormForward, OpCode::kLayerNormForward,
     OpCode::kLayerNormInputGradient, OpCode::kBatchNormWeightGradient, Saved::kInputAndStats},
    {OpKind::kGelu, OpCode::kGeluForward, OpCode::kGeluForward, OpCode::kGeluInputGradient,
     std::nullopt, Saved::kInput},
    {OpKind::kSigmoid, OpCode::kSigmoidForward, OpCode::kSigmoidForward,
     OpCode::kSigmoidInputGradient, std::nullopt, Saved::kOutput},
    {OpKind::kHardSigmoid, OpCode::kHardSigmoidForward, OpCode::kHardSigmoidForward,
     OpCode::kHardSigmoidInputGradient, std::nullopt, Saved::kOutput},
    {OpKind::kLeakyRelu, OpCode::kLeakyReluForward, OpCode::kLeakyReluForward,
     OpCode::kLeakyReluInputGradient, std::nullopt, Saved::kOutput},
    {.op = OpKind::kMultiply,
     .forward = OpCode::kMultiply,
     .forward_eval = OpCode::kMultiply,
     .input_gradient = OpCode::kMultiply,
     .saved = Saved::kOtherInput,
     .second_gradient = OpCode::kFactorGradient},
    {.op = OpKind::kConcat,
     .forward = OpCode::kConcatForward,
     .forward_eval = OpCode::kConcatForward,
     .input_gradient = OpCode::kFirstChannels,
     .second_gradient = OpCode::kLastChannels},
    {OpKind::kSlice, OpCode::kSliceForward, OpCode::kSliceForward, OpCode::kSliceInputGradient,
     std::nullopt, Saved::kNothing},
    {OpKind::kShuffle, OpCode::kShuffleForward, OpCode::kShuffleForward,
     OpCode::kShuffleInputGradient, std::nullopt, Saved::kNothing},
    // A held gate has no gradient.
    {.op = OpKind::kGate,
     .forward = OpCode::kHoldSamples,
     .forward_eval = OpCode::kAllSamples,
     .input_gradient = OpCode::kChoiceGradient,
     .saved = Saved::kOutput,
     .learned_forward = OpCode::kChooseSamples},
    {OpKind::kPack, OpCode::kGatherSamples, OpCode::kGatherSamples, OpCode::kScatterSamples,
     std::nullopt, Saved::kOtherInput},
    {.op = OpKind::kUnpack,
     .forward = OpCode::kScatterSamples,
     .forward_eval = OpCode::kScatterSamples,
     .input_gradient = OpCode::kGatherSamples,
     .saved = Saved::kOtherInput,
     .second_gradient = OpCode::kMaskGradient},
    {.op = OpKind::kLstmCell,
     .forward = OpCode::kLstmForward,
     .forward_eval = OpCode::kLstmForward,
     .input_gradient = OpCode::kLstmInputGradient,
     .saved = Saved::kAllInputs,
     .second_gradient = OpCode::kLstmStateGradient},
    // What it reads is the state itself.
    {OpKind::kCarriedState, OpCode::kCopy, OpCode::kCopy, OpCode::kCopy, std::nullopt,
     Saved::kNothing},
    {OpKind::kAttention, OpCode::kAttentionForward, OpCode::kAttentionForward,
     OpCode::kAttentionInputGradient, std::nullopt, Saved::kInputOutputAndSums},
};

}  // namespace

Recipe MakeFp32Recipe(const RecipeName& /*name*/) {
  return {.rules = {std::begin(kRules), std::end(kRules)}};
}

}  // namespace runnel
