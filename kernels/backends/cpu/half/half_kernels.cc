#include "kernels/backends/cpu/half/half_kernels.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/backends/cpu/fp32/fp32_kernels.h"
#include "proto/base/status_macros.h"

namespace runnel::half {
namespace {

constexpr int64_t kChunk = 1 << 14;  // elements that one thread takes at least
constexpr int64_t kPiece = 1 << 10;  // elements whose FP32 stays in the first-level cache

// body(begin, count) on all elements of the output, by pieces.
template <typename Body>
absl::Status OverPieces(const Call& call, const Body& body) {
  const int64_t count = call.out_shape(0).elements();
  ParallelFor(call.machine, (count + kChunk - 1) / kChunk, [&](int, int64_t first, int64_t last) {
    const int64_t end = std::min(count, last * kChunk);
    for (int64_t at = first * kChunk; at < end; at += kPiece) body(at, std::min(kPiece, end - at));
  });
  return absl::OkStatus();
}

absl::Status Unary(const Call& call, void (*kernel)(const float*, int64_t, float*)) {
  const Conversions& from = OfInput(call, 0);
  return OverPieces(call, [&](int64_t at, int64_t count) {
    float x[kPiece];
    from.widen(call.in<uint16_t>(0) + at, count, x);
    kernel(x, count, x);
    Store(call, x, count, at);
  });
}

absl::Status Binary(const Call& call, void (*kernel)(const float*, const float*, int64_t, float*)) {
  const Conversions &a = OfInput(call, 0), &b = OfInput(call, 1);
  return OverPieces(call, [&](int64_t at, int64_t count) {
    float x[kPiece], y[kPiece];
    a.widen(call.in<uint16_t>(0) + at, count, x);
    b.widen(call.in<uint16_t>(1) + at, count, y);
    kernel(x, y, count, x);
    Store(call, x, count, at);
  });
}

absl::Status ReluForward(Calls calls) { return Unary(calls[0], calls[0].machine.half->relu); }
absl::Status Relu6Forward(Calls calls) { return Unary(calls[0], calls[0].machine.half->relu6); }
absl::Status ReluInputGradient(Calls calls) {
  return Binary(calls[0], calls[0].machine.half->relu_gradient);
}
absl::Status Relu6InputGradient(Calls calls) {
  return Binary(calls[0], calls[0].machine.half->relu6_gradient);
}
absl::Status GeluForward(Calls calls) {
  const fp32::Kernels& kernels = calls[0].kernels();
  return Unary(calls[0],
               calls[0].instruction->attributes.exact ? kernels.exact_gelu : kernels.gelu);
}
absl::Status GeluInputGradient(Calls calls) {
  const fp32::Kernels& kernels = calls[0].kernels();
  return Binary(calls[0], calls[0].instruction->attributes.exact ? kernels.exact_gelu_gradient
                                                                 : kernels.gelu_gradient);
}
absl::Status Add(Calls calls) { return Binary(calls[0], calls[0].machine.half->add); }

// Samples come as FP32; everything else is a view of halves that could not share memory, or a narrow
// stash.
absl::Status Copy(Calls calls) {
  const Call& call = calls[0];
  const DType from = call.inputs[0].buffer->dtype;
  const DType to = call.outputs[0].buffer->dtype;
  if (from == to || from != DType::kFloat32 || !IsHalf(to)) return fp32::Copy(calls);
  return OverPieces(call,
                    [&](int64_t at, int64_t count) { Store(call, call.in(0) + at, count, at); });
}

// Runs a kernel of FP32 on copies of the operands that are halves: for small operands, and where
// what is computed outweighs the copies.
template <absl::Status (*kKernel)(Calls)>
absl::Status Widened(Calls calls) {
  const Call& call = calls[0];
  std::vector<cpu::Operand> inputs(call.inputs.begin(), call.inputs.end());
  std::vector<cpu::Operand> outputs(call.outputs.begin(), call.outputs.end());
  const auto widen = [&call](cpu::Operand& operand) {
    if (!IsHalf(operand.buffer->dtype)) return;
    operand.data = reinterpret_cast<std::byte*>(call.Take<float>(operand.buffer->shape.elements()));
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    widen(inputs[i]);
    if (inputs[i].data == call.inputs[i].data) continue;
    OfInput(call, i).widen(call.in<uint16_t>(i), inputs[i].buffer->shape.elements(),
                           reinterpret_cast<float*>(inputs[i].data));
  }
  widen(outputs[0]);
  Call wide = call;
  wide.inputs = inputs;
  wide.outputs = outputs;
  fp32::Kernels fused = *call.machine.fp32;
  if (call.machine.half->row_product != nullptr) {
    fused.row_product = call.machine.half->row_product;
    wide.machine.fp32 = &fused;
  }
  RUNNEL_RETURN_IF_ERROR(kKernel({&wide, 1}));
  // Only the first output is ever a half.
  if (outputs[0].data != call.outputs[0].data)
    Store(call, reinterpret_cast<const float*>(outputs[0].data), call.out_shape(0).elements(), 0);
  return absl::OkStatus();
}

}  // namespace

absl::Span<const cpu::KernelRow> KernelRows() {
  using cpu::LayoutRule;
  static constexpr cpu::KernelRow kRows[] = {
      {OpCode::kConvForward, LayoutRule::kChannelsLast, Forward},
      {OpCode::kLinearForward, LayoutRule::kRowMajor, Forward},
      {OpCode::kEmbeddingForward, LayoutRule::kRowMajor, Widened<fp32::EmbeddingForward>},
      {OpCode::kLayerNormForward, LayoutRule::kRowMajor, Widened<fp32::LayerNormForward>},
      {OpCode::kGeluForward, LayoutRule::kSame, GeluForward},
      {OpCode::kSigmoidForward, LayoutRule::kSame, Widened<fp32::SigmoidForward>},
      {OpCode::kSigmoidInputGradient, LayoutRule::kSame, Widened<fp32::SigmoidInputGradient>},
      {OpCode::kHardSigmoidForward, LayoutRule::kSame, Widened<fp32::HardSigmoidForward>},
      {OpCode::kHardSigmoidInputGradient, LayoutRule::kSame,
       Widened<fp32::HardSigmoidInputGradient>},
      {OpCode::kLeakyReluForward, LayoutRule::kSame, Widened<fp32::LeakyReluForward>},
      {OpCode::kLeakyReluInputGradient, LayoutRule::kSame, Widened<fp32::LeakyReluInputGradient>},
      {OpCode::kMultiply, LayoutRule::kChannelsLast, Widened<fp32::Multiply>},
      {OpCode::kFactorGradient, LayoutRule::kChannelsLast, Widened<fp32::FactorGradient>},
      {OpCode::kConcatForward, LayoutRule::kChannelsLast, Widened<fp32::ConcatForward>},
      {OpCode::kFirstChannels, LayoutRule::kChannelsLast, Widened<fp32::FirstChannels>},
      {OpCode::kLastChannels, LayoutRule::kChannelsLast, Widened<fp32::LastChannels>},
      {OpCode::kSliceForward, LayoutRule::kChannelsLast, Widened<fp32::SliceForward>},
      {OpCode::kSliceInputGradient, LayoutRule::kChannelsLast, Widened<fp32::SliceInputGradient>},
      {OpCode::kShuffleForward, LayoutRule::kChannelsLast, Widened<fp32::ShuffleForward>},
      {OpCode::kShuffleInputGradient, LayoutRule::kChannelsLast,
       Widened<fp32::ShuffleInputGradient>},
      {OpCode::kAttentionForward, LayoutRule::kRowMajor, Widened<fp32::AttentionForward>},
      {OpCode::kBatchNormForward, LayoutRule::kChannelsLast, BatchNormForward},
      {OpCode::kBatchNormEval, LayoutRule::kChannelsLast, BatchNormForward},
      {OpCode::kBatchNormAgain, LayoutRule::kChannelsLast, BatchNormForward},
      {OpCode::kReluForward, LayoutRule::kSame, ReluForward},
      {OpCode::kRelu6Forward, LayoutRule::kSame, Relu6Forward},
      {OpCode::kDropoutForward, LayoutRule::kSame, Widened<fp32::Dropout>},
      {OpCode::kMaxPoolForward, LayoutRule::kChannelsLast, MaxPoolForward},
      {OpCode::kAvgPoolForward, LayoutRule::kChannelsLast, AvgPoolForward},
      {OpCode::kGlobalAvgPoolForward, LayoutRule::kChannelsLast, AvgPoolForward},
      {OpCode::kAddForward, LayoutRule::kSame, Add},
      {OpCode::kCopy, LayoutRule::kSame, Copy},
      {OpCode::kSoftmaxCrossEntropy, LayoutRule::kRowMajor, Widened<fp32::SoftmaxCrossEntropy>},
      {OpCode::kSoftmaxCrossEntropyEval, LayoutRule::kRowMajor,
       Widened<fp32::SoftmaxCrossEntropyEval>},
      {OpCode::kConvInputGradient, LayoutRule::kChannelsLast, InputGradient},
      {OpCode::kLinearInputGradient, LayoutRule::kRowMajor, InputGradient},
      {OpCode::kLayerNormInputGradient, LayoutRule::kRowMajor,
       Widened<fp32::LayerNormInputGradient>},
      {OpCode::kGeluInputGradient, LayoutRule::kSame, GeluInputGradient},
      {OpCode::kAttentionInputGradient, LayoutRule::kRowMajor,
       Widened<fp32::AttentionInputGradient>},
      {OpCode::kBatchNormInputGradient, LayoutRule::kChannelsLast, BatchNormInputGradient},
      {OpCode::kReluInputGradient, LayoutRule::kSame, ReluInputGradient},
      {OpCode::kRelu6InputGradient, LayoutRule::kSame, Relu6InputGradient},
      {OpCode::kDropoutInputGradient, LayoutRule::kSame, Widened<fp32::Dropout>},
      {OpCode::kMaxPoolInputGradient, LayoutRule::kChannelsLast, MaxPoolInputGradient},
      {OpCode::kAvgPoolInputGradient, LayoutRule::kChannelsLast, AvgPoolInputGradient},
      {OpCode::kGlobalAvgPoolInputGradient, LayoutRule::kChannelsLast, AvgPoolInputGradient},
      {OpCode::kAccumulate, LayoutRule::kSame, Add},
      {OpCode::kConvWeightGradient, LayoutRule::kChannelsLast, WeightGradient},
      {OpCode::kLinearWeightGradient, LayoutRule::kRowMajor, WeightGradient},
      {OpCode::kEmbeddingWeightGradient, LayoutRule::kRowMajor,
       Widened<fp32::EmbeddingWeightGradient>},
      {OpCode::kBatchNormWeightGradient, LayoutRule::kRowMajor, fp32::BatchNormWeightGradient},
      {OpCode::kOptimizerUpdate, LayoutRule::kRowMajor, fp32::UpdateByOptimizer},
  };
  return kRows;
}

}  // namespace runnel::half
