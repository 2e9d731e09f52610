#include "kernels/backends/cpu/fp32/fp32_kernels.h"

namespace runnel::fp32 {

absl::Span<const cpu::KernelRow> KernelRows() {
  using cpu::LayoutRule;
  static constexpr cpu::KernelRow kRows[] = {
      {OpCode::kConvForward, LayoutRule::kChannelsLast, ConvForward},
      {OpCode::kLinearForward, LayoutRule::kRowMajor, LinearForward},
      {OpCode::kEmbeddingForward, LayoutRule::kRowMajor, EmbeddingForward},
      {OpCode::kLayerNormForward, LayoutRule::kRowMajor, LayerNormForward},
      {OpCode::kLayerNormInputGradient, LayoutRule::kRowMajor, LayerNormInputGradient},
      {OpCode::kGeluForward, LayoutRule::kSame, GeluForward},
      {OpCode::kGeluInputGradient, LayoutRule::kSame, GeluInputGradient},
      {OpCode::kAttentionForward, LayoutRule::kRowMajor, AttentionForward},
      {OpCode::kAttentionInputGradient, LayoutRule::kRowMajor, AttentionInputGradient},
      {OpCode::kBatchNormForward, LayoutRule::kChannelsLast, BatchNormForward},
      {OpCode::kBatchNormEval, LayoutRule::kChannelsLast, BatchNormForward},
      {OpCode::kBatchNormAgain, LayoutRule::kChannelsLast, BatchNormForward},
      {OpCode::kReluForward, LayoutRule::kSame, ReluForward},
      {OpCode::kRelu6Forward, LayoutRule::kSame, Relu6Forward},
      {OpCode::kDropoutForward, LayoutRule::kSame, Dropout},
      {OpCode::kMaxPoolForward, LayoutRule::kChannelsLast, MaxPoolForward},
      {OpCode::kAvgPoolForward, LayoutRule::kChannelsLast, AvgPoolForward},
      {OpCode::kGlobalAvgPoolForward, LayoutRule::kChannelsLast, GlobalAvgPoolForward},
      {OpCode::kAddForward, LayoutRule::kSame, Add},
      {OpCode::kCopy, LayoutRule::kSame, Copy},
      {OpCode::kSoftmaxCrossEntropy, LayoutRule::kRowMajor, SoftmaxCrossEntropy},
      {OpCode::kSoftmaxCrossEntropyEval, LayoutRule::kRowMajor, SoftmaxCrossEntropyEval},
      {OpCode::kConvInputGradient, LayoutRule::kChannelsLast, ConvBackward},
      {OpCode::kLinearInputGradient, LayoutRule::kRowMajor, LinearInputGradient},
      {OpCode::kBatchNormInputGradient, LayoutRule::kChannelsLast, BatchNormInputGradient},
      {OpCode::kReluInputGradient, LayoutRule::kSame, ReluInputGradient},
      {OpCode::kRelu6InputGradient, LayoutRule::kSame, Relu6InputGradient},
      {OpCode::kDropoutInputGradient, LayoutRule::kSame, Dropout},
      {OpCode::kMaxPoolInputGradient, LayoutRule::kChannelsLast, MaxPoolInputGradient},
      {OpCode::kAvgPoolInputGradient, LayoutRule::kChannelsLast, AvgPoolInputGradient},
      {OpCode::kGlobalAvgPoolInputGradient, LayoutRule::kChannelsLast, GlobalAvgPoolInputGradient},
      {OpCode::kAccumulate, LayoutRule::kSame, Add},
      {OpCode::kConvWeightGradient, LayoutRule::kChannelsLast, ConvBackward},
      {OpCode::kLinearWeightGradient, LayoutRule::kRowMajor, LinearWeightGradient},
      {OpCode::kEmbeddingWeightGradient, LayoutRule::kRowMajor, EmbeddingWeightGradient},
      {OpCode::kBatchNormWeightGradient, LayoutRule::kRowMajor, BatchNormWeightGradient},
      {OpCode::kAffineWeight, LayoutRule::kRowMajor, AffineWeight},
      {OpCode::kAffineActivation, LayoutRule::kSame, AffineActivation},
      {OpCode::kAffineActivationEval, LayoutRule::kSame, AffineActivationEval},
      {OpCode::kAffineError, LayoutRule::kSame, AffineError},
      {OpCode::kFakeQuantizeWeight, LayoutRule::kRowMajor, FakeQuantizeWeight},
      {OpCode::kFakeQuantizeWeightGradient, LayoutRule::kRowMajor, FakeQuantizeWeightGradient},
      {OpCode::kFakeQuantizeActivation, LayoutRule::kSame, FakeQuantizeActivation},
      {OpCode::kFakeQuantizeActivationGradient, LayoutRule::kSame, FakeQuantizeActivationGradient},
      {OpCode::kFakeQuantizeError, LayoutRule::kSame, FakeQuantizeError},
      {OpCode::kOptimizerUpdate, LayoutRule::kRowMajor, UpdateByOptimizer},
  };
  return kRows;
}

}  // namespace runnel::fp32
