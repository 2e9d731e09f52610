#include "kernels/backends/ref/ref_backend.h"

#include "kernels/backends/host/interpreter.h"
#include "kernels/backends/host/optimizer_update.h"
#include "kernels/backends/host/plain_kernels.h"
#include "kernels/backends/host/widened_call.h"
#include "kernels/backends/ref/ref_kernels.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr host::KernelRow kKernels[] = {
    {OpCode::kConvForward, ref::ConvForward},
    {OpCode::kLinearForward, ref::LinearForward},
    {OpCode::kEmbeddingForward, host::EmbeddingForward},
    {OpCode::kLayerNormForward, host::LayerNormForward},
    {OpCode::kLayerNormInputGradient, host::LayerNormInputGradient},
    {OpCode::kGeluForward, host::GeluForward},
    {OpCode::kGeluInputGradient, host::GeluInputGradient},
    {OpCode::kSigmoidForward, host::SigmoidForward},
    {OpCode::kSigmoidInputGradient, host::SigmoidInputGradient},
    {OpCode::kHardSigmoidForward, host::HardSigmoidForward},
    {OpCode::kHardSigmoidInputGradient, host::HardSigmoidInputGradient},
    {OpCode::kLeakyReluForward, host::LeakyReluForward},
    {OpCode::kLeakyReluInputGradient, host::LeakyReluInputGradient},
    {OpCode::kMultiply, host::Multiply},
    {OpCode::kFactorGradient, host::FactorGradient},
    {OpCode::kConcatForward, host::ConcatForward},
    {OpCode::kFirstChannels, host::FirstChannels},
    {OpCode::kLastChannels, host::LastChannels},
    {OpCode::kSliceForward, host::SliceForward},
    {OpCode::kSliceInputGradient, host::SliceInputGradient},
    {OpCode::kShuffleForward, host::ShuffleForward},
    {OpCode::kShuffleInputGradient, host::ShuffleInputGradient},
    {OpCode::kAttentionForward, host::AttentionForward},
    {OpCode::kAttentionInputGradient, host::AttentionInputGradient},
    {OpCode::kBatchNormForward, ref::BatchNormForward},
    {OpCode::kBatchNormEval, ref::BatchNormEval},
    {OpCode::kBatchNormAgain, ref::BatchNormAgain},
    {OpCode::kReluForward, host::ReluForward},
    {OpCode::kRelu6Forward, host::Relu6Forward},
    {OpCode::kDropoutForward, host::Dropout},
    {OpCode::kMaxPoolForward, ref::MaxPoolForward},
    {OpCode::kAvgPoolForward, ref::AvgPoolForward},
    {OpCode::kGlobalAvgPoolForward, ref::GlobalAvgPoolForward},
    {OpCode::kAddForward, host::Sum},
    {OpCode::kCopy, host::Copy},
    {OpCode::kSoftmaxCrossEntropy, host::SoftmaxCrossEntropy},
    {OpCode::kSoftmaxCrossEntropyEval, host::SoftmaxCrossEntropyEval},
    {OpCode::kConvInputGradient, ref::ConvInputGradient},
    {OpCode::kLinearInputGradient, ref::LinearInputGradient},
    {OpCode::kBatchNormInputGradient, ref::BatchNormInputGradient},
    {OpCode::kReluInputGradient, host::ReluInputGradient},
    {OpCode::kRelu6InputGradient, host::Relu6InputGradient},
    {OpCode::kDropoutInputGradient, host::Dropout},
    {OpCode::kMaxPoolInputGradient, ref::MaxPoolInputGradient},
    {OpCode::kAvgPoolInputGradient, ref::AvgPoolInputGradient},
    {OpCode::kGlobalAvgPoolInputGradient, ref::GlobalAvgPoolInputGradient},
    {OpCode::kAccumulate, host::Sum},
    {OpCode::kConvWeightGradient, ref::ConvWeightGradient},
    {OpCode::kLinearWeightGradient, ref::LinearWeightGradient},
    {OpCode::kEmbeddingWeightGradient, host::EmbeddingWeightGradient},
    {OpCode::kBatchNormWeightGradient, ref::BatchNormWeightGradient},
    {OpCode::kAffineWeight, ref::AffineWeight},
    {OpCode::kAffineActivation, ref::AffineActivation},
    {OpCode::kAffineActivationEval, ref::AffineActivationEval},
    {OpCode::kAffineError, ref::AffineError},
    {OpCode::kSymmetricWeight, ref::SymmetricWeight},
    {OpCode::kSymmetricActivation, ref::SymmetricActivation},
    {OpCode::kSymmetricActivationEval, ref::SymmetricActivationEval},
    {OpCode::kClippedError, ref::ClippedError},
    {OpCode::kCounterDeviation, ref::CounterDeviation},
    {OpCode::kMultiLevelWeight, ref::MultiLevelWeight},
    {OpCode::kMultiLevelActivation, ref::MultiLevelActivation},
    {OpCode::kMultiLevelError, ref::MultiLevelError},
    {OpCode::kFakeQuantizeWeight, ref::FakeQuantizeWeight},
    {OpCode::kFakeQuantizeWeightGradient, ref::FakeQuantizeWeightGradient},
    {OpCode::kFakeQuantizeActivation, ref::FakeQuantizeActivation},
    {OpCode::kFakeQuantizeActivationGradient, ref::FakeQuantizeActivationGradient},
    {OpCode::kFakeQuantizeError, ref::FakeQuantizeError},
    {OpCode::kOptimizerUpdate, host::UpdateByOptimizer},
    {OpCode::kQuantize, ref::Quantize},
    {OpCode::kInt8ConvForward, ref::Int8ProductForward},
    {OpCode::kInt8LinearForward, ref::Int8ProductForward},
    {OpCode::kInt8ConvForwardRescaled, ref::Int8ProductForwardRescaled},
    {OpCode::kInt8LinearForwardRescaled, ref::Int8ProductForwardRescaled},
    {OpCode::kInt8ConvInputGradientRescaled, ref::Int8ProductInputGradientRescaled},
    {OpCode::kInt8LinearInputGradientRescaled, ref::Int8ProductInputGradientRescaled},
    {OpCode::kRescale, ref::Rescale},
    {OpCode::kInt8ReluForward, ref::Int8ReluForward},
    {OpCode::kInt8DropoutForward, ref::Int8DropoutForward},
    {OpCode::kInt8MaxPoolForward, ref::Int8MaxPoolForward},
    {OpCode::kInt8AvgPoolForward, ref::Int8AvgPoolForward},
    {OpCode::kInt8GlobalAvgPoolForward, ref::Int8GlobalAvgPoolForward},
    {OpCode::kInt8Add, ref::Int8Add},
    {OpCode::kInt8ConvInputGradient, ref::Int8ProductInputGradient},
    {OpCode::kInt8LinearInputGradient, ref::Int8ProductInputGradient},
    {OpCode::kInt8ReluInputGradient, ref::Int8ReluInputGradient},
    {OpCode::kInt8DropoutInputGradient, ref::Int8DropoutInputGradient},
    {OpCode::kInt8MaxPoolInputGradient, ref::Int8MaxPoolInputGradient},
    {OpCode::kInt8AvgPoolInputGradient, ref::Int8AvgPoolInputGradient},
    {OpCode::kInt8GlobalAvgPoolInputGradient, ref::Int8GlobalAvgPoolInputGradient},
    {OpCode::kInt8ConvWeightGradient, ref::Int8ProductWeightGradient},
    {OpCode::kInt8LinearWeightGradient, ref::Int8ProductWeightGradient},
    {OpCode::kAddScaledGradient, ref::AddScaledGradient},
    {OpCode::kNitiUpdate, ref::NitiUpdate},
    {OpCode::kIntegerSoftmaxCrossEntropy, ref::IntegerSoftmaxCrossEntropy},
    {OpCode::kIntegerSoftmaxCrossEntropyEval, ref::IntegerSoftmaxCrossEntropyEval},
    {OpCode::kEncodeCodes, ref::EncodeCodes},
    {OpCode::kRequantizeCodes, ref::RequantizeCodes},
    {OpCode::kAddCodes, ref::AddCodes},
    {OpCode::kPadCodes, ref::PadCodes},
    {OpCode::kCodesToChannelsFirst, ref::CodesToChannelsFirst},
    {OpCode::kCodesToChannelsLast, ref::CodesToChannelsLast},
    {OpCode::kInt8ProductToCodes, ref::Int8ProductToCodes},
    {OpCode::kRealProductToCodes, ref::RealProductToCodes},
};

// Of programs of halves.
constexpr host::KernelRow kHalfKernels[] = {
    {OpCode::kConvForward, ref::HalfForward},
    {OpCode::kLinearForward, ref::HalfForward},
    {OpCode::kEmbeddingForward, host::Widened<host::EmbeddingForward>},
    {OpCode::kLayerNormForward, host::Widened<ref::LayerNormForward>},
    {OpCode::kLayerNormInputGradient, host::Widened<ref::LayerNormInputGradient>},
    {OpCode::kGeluForward, host::Widened<ref::GeluForward>},
    {OpCode::kGeluInputGradient, host::Widened<ref::GeluInputGradient>},
    {OpCode::kSigmoidForward, host::Widened<host::SigmoidForward>},
    {OpCode::kSigmoidInputGradient, host::Widened<host::SigmoidInputGradient>},
    {OpCode::kHardSigmoidForward, host::Widened<host::HardSigmoidForward>},
    {OpCode::kHardSigmoidInputGradient, host::Widened<host::HardSigmoidInputGradient>},
    {OpCode::kLeakyReluForward, host::Widened<host::LeakyReluForward>},
    {OpCode::kLeakyReluInputGradient, host::Widened<host::LeakyReluInputGradient>},
    {OpCode::kMultiply, host::Widened<host::Multiply>},
    {OpCode::kFactorGradient, host::Widened<host::FactorGradient>},
    {OpCode::kConcatForward, host::Widened<host::ConcatForward>},
    {OpCode::kFirstChannels, host::Widened<host::FirstChannels>},
    {OpCode::kLastChannels, host::Widened<host::LastChannels>},
    {OpCode::kSliceForward, host::Widened<host::SliceForward>},
    {OpCode::kSliceInputGradient, host::Widened<host::SliceInputGradient>},
    {OpCode::kShuffleForward, host::Widened<host::ShuffleForward>},
    {OpCode::kShuffleInputGradient, host::Widened<host::ShuffleInputGradient>},
    {OpCode::kAttentionForward, host::Widened<ref::AttentionForward>},
    {OpCode::kAttentionInputGradient, host::Widened<ref::AttentionInputGradient>},
    {OpCode::kBatchNormForward, host::Widened<ref::BatchNormForward>},
    {OpCode::kBatchNormEval, host::Widened<ref::BatchNormEval>},
    {OpCode::kBatchNormAgain, host::Widened<ref::BatchNormAgain>},
    {OpCode::kReluForward, host::Widened<host::ReluForward>},
    {OpCode::kRelu6Forward, host::Widened<host::Relu6Forward>},
    {OpCode::kDropoutForward, host::Widened<host::Dropout>},
    {OpCode::kMaxPoolForward, host::Widened<ref::MaxPoolForward>},
    {OpCode::kAvgPoolForward, host::Widened<ref::AvgPoolForward>},
    {OpCode::kGlobalAvgPoolForward, host::Widened<ref::GlobalAvgPoolForward>},
    {OpCode::kAddForward, host::Widened<host::Sum>},
    {OpCode::kCopy, host::Widened<host::Copy>},
    {OpCode::kSoftmaxCrossEntropy, host::Widened<host::SoftmaxCrossEntropy>},
    {OpCode::kSoftmaxCrossEntropyEval, host::Widened<host::SoftmaxCrossEntropyEval>},
    {OpCode::kConvInputGradient, ref::HalfInputGradient},
    {OpCode::kLinearInputGradient, ref::HalfInputGradient},
    {OpCode::kBatchNormInputGradient, host::Widened<ref::BatchNormInputGradient>},
    {OpCode::kReluInputGradient, host::Widened<host::ReluInputGradient>},
    {OpCode::kRelu6InputGradient, host::Widened<host::Relu6InputGradient>},
    {OpCode::kDropoutInputGradient, host::Widened<host::Dropout>},
    {OpCode::kMaxPoolInputGradient, host::Widened<ref::MaxPoolInputGradient>},
    {OpCode::kAvgPoolInputGradient, host::Widened<ref::AvgPoolInputGradient>},
    {OpCode::kGlobalAvgPoolInputGradient, host::Widened<ref::GlobalAvgPoolInputGradient>},
    {OpCode::kAccumulate, host::Widened<host::Sum>},
    {OpCode::kConvWeightGradient, ref::HalfWeightGradient},
    {OpCode::kLinearWeightGradient, ref::HalfWeightGradient},
    {OpCode::kEmbeddingWeightGradient, host::Widened<host::EmbeddingWeightGradient>},
    {OpCode::kBatchNormWeightGradient, ref::BatchNormWeightGradient},
    {OpCode::kOptimizerUpdate, host::UpdateByOptimizer},
};

class RefBackend : public Backend {
 public:
  BackendTraits traits() const override {
    return {
        .name = "ref",
        .numerics_class = "ref",
        .rescales_in_products = true,
        .codes_in_products = true,
        .computes_halves = true,
        .shifts_slices = true,
        .keeps_values = true,
        .dilates = true,
        .pads_by_side = true,
        .pads_means = true,
        .rates = {
            .bytes_per_second = 0.5e9, .instruction_seconds = 1e-6, .switch_cost = {5e-6, 0.2e-9}}};
  }
  std::string description() const override { return "plain loops, one thread"; }

  absl::StatusOr<std::unique_ptr<Executable>> Prepare(const Program& program) override {
    RUNNEL_RETURN_IF_ERROR(CheckWindows(traits(), program));
    if (IsHalf(program.values)) return host::Interpret(program, name(), kHalfKernels);
    return host::Interpret(program, name(), kKernels);
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeRefBackend(int /*threads*/) {
  return std::make_unique<RefBackend>();
}

}  // namespace runnel
