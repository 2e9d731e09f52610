#include "kernels/backends/cpu/fp32/fp32_kernels.h"

namespace runnel::fp32 {

namespace {

using cpu::LayoutRule;

constexpr cpu::KernelRow kRows[] = {
    {OpCode::kConvForward, LayoutRule::kChannelsLast, ConvForward},
    {OpCode::kLinearForward, LayoutRule::kRowMajor, LinearForward},
    {OpCode::kEmbeddingForward, LayoutRule::kRowMajor, EmbeddingForward},
    {OpCode::kLayerNormForward, LayoutRule::kRowMajor, LayerNormForward},
    {OpCode::kLayerNormInputGradient, LayoutRule::kRowMajor, LayerNormInputGradient},
    {OpCode::kGeluForward, LayoutRule::kSame, GeluForward},
    {OpCode::kGeluInputGradient, LayoutRule::kSame, GeluInputGradient},
    {OpCode::kSigmoidForward, LayoutRule::kSame, SigmoidForward},
    {OpCode::kSigmoidInputGradient, LayoutRule::kSame, SigmoidInputGradient},
    {OpCode::kHardSigmoidForward, LayoutRule::kSame, HardSigmoidForward},
    {OpCode::kHardSigmoidInputGradient, LayoutRule::kSame, HardSigmoidInputGradient},
    {OpCode::kLeakyReluForward, LayoutRule::kSame, LeakyReluForward},
    {OpCode::kLeakyReluInputGradient, LayoutRule::kSame, LeakyReluInputGradient},
    {OpCode::kMultiply, LayoutRule::kChannelsLast, Multiply},
    {OpCode::kFactorGradient, LayoutRule::kChannelsLast, FactorGradient},
    {OpCode::kConcatForward, LayoutRule::kChannelsLast, ConcatForward},
    {OpCode::kFirstChannels, LayoutRule::kChannelsLast, FirstChannels},
    {OpCode::kLastChannels, LayoutRule::kChannelsLast, LastChannels},
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
    {OpCode::kSymmetricWeight, LayoutRule::kRowMajor, SymmetricWeight},
    {OpCode::kSymmetricActivation, LayoutRule::kRowMajor, SymmetricActivation},
    {OpCode::kSymmetricActivationEval, LayoutRule::kRowMajor, SymmetricActivationEval},
    {OpCode::kClippedError, LayoutRule::kRowMajor, ClippedError},
    {OpCode::kCounterDeviation, LayoutRule::kRowMajor, CounterDeviation},
    {OpCode::kMultiLevelWeight, LayoutRule::kRowMajor, MultiLevelWeight},
    {OpCode::kMultiLevelActivation, LayoutRule::kRowMajor, MultiLevelActivation},
    {OpCode::kMultiLevelError, LayoutRule::kRowMajor, MultiLevelError},
    {OpCode::kFakeQuantizeWeight, LayoutRule::kRowMajor, FakeQuantizeWeight},
    {OpCode::kFakeQuantizeWeightGradient, LayoutRule::kRowMajor, FakeQuantizeWeightGradient},
    {OpCode::kFakeQuantizeActivation, LayoutRule::kSame, FakeQuantizeActivation},
    {OpCode::kFakeQuantizeActivationGradient, LayoutRule::kSame, FakeQuantizeActivationGradient},
    {OpCode::kFakeQuantizeError, LayoutRule::kSame, FakeQuantizeError},
    {OpCode::kOptimizerUpdate, LayoutRule::kRowMajor, UpdateByOptimizer},
};

}  // namespace

absl::Span<const cpu::KernelRow> KernelRows() { return kRows; }

}  // namespace runnel::fp32
