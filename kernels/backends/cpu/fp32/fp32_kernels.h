#pragma once

// The FP32 instructions of backend cpu. Each function runs the instruction of calls[0], and with
// more calls also those that follow it (fused_steps.h).

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backends/cpu/call.h"
#include "kernels/backends/cpu/fp32/kernel_table.h"

namespace runnel::fp32 {

using cpu::Call;
using cpu::Image;
using cpu::ImageOf;
using cpu::ParallelFor;
using cpu::Window;
using cpu::WindowOf;
using Calls = absl::Span<const Call>;

// A row an instruction.
absl::Span<const cpu::KernelRow> KernelRows();

absl::Status ConvForward(Calls calls);
absl::Status ConvBackward(Calls calls);  // either gradient, or both
absl::Status FinishedProduct(Calls calls);
absl::Status LinearForward(Calls calls);
absl::Status LinearInputGradient(Calls calls);
absl::Status LinearWeightGradient(Calls calls);
absl::Status EmbeddingForward(Calls calls);
absl::Status EmbeddingWeightGradient(Calls calls);
absl::Status LayerNormForward(Calls calls);
absl::Status LayerNormInputGradient(Calls calls);
absl::Status GeluForward(Calls calls);
absl::Status GeluInputGradient(Calls calls);
absl::Status SigmoidForward(Calls calls);
absl::Status SigmoidInputGradient(Calls calls);
absl::Status HardSigmoidForward(Calls calls);
absl::Status HardSigmoidInputGradient(Calls calls);
absl::Status LeakyReluForward(Calls calls);
absl::Status LeakyReluInputGradient(Calls calls);
absl::Status Multiply(Calls calls);
absl::Status FactorGradient(Calls calls);
absl::Status ConcatForward(Calls calls);
absl::Status FirstChannels(Calls calls);
absl::Status LastChannels(Calls calls);
absl::Status SliceForward(Calls calls);
absl::Status SliceInputGradient(Calls calls);
absl::Status HoldSamples(Calls calls);
absl::Status AllSamples(Calls calls);
absl::Status ChooseSamples(Calls calls);
absl::Status GatherSamples(Calls calls);
absl::Status ScatterSamples(Calls calls);
absl::Status MaskGradient(Calls calls);
absl::Status ChoiceGradient(Calls calls);
absl::Status LstmForward(Calls calls);
absl::Status LstmInputGradient(Calls calls);
absl::Status LstmStateGradient(Calls calls);
absl::Status ShuffleForward(Calls calls);
absl::Status ShuffleInputGradient(Calls calls);
absl::Status AttentionForward(Calls calls);
absl::Status AttentionInputGradient(Calls calls);
absl::Status BatchNormForward(Calls calls);
absl::Status BatchNormInputGradient(Calls calls);
absl::Status BatchNormWeightGradient(Calls calls);
absl::Status ReluForward(Calls calls);
absl::Status Relu6Forward(Calls calls);
absl::Status ReluInputGradient(Calls calls);
absl::Status Relu6InputGradient(Calls calls);
absl::Status ReluMask(Calls calls);
absl::Status Relu6Mask(Calls calls);
absl::Status MaskedInputGradient(Calls calls);
absl::Status Add(Calls calls);
absl::Status Copy(Calls calls);
absl::Status UpdateByOptimizer(Calls calls);
absl::Status AffineWeight(Calls calls);
absl::Status AffineActivation(Calls calls);
absl::Status AffineActivationEval(Calls calls);
absl::Status AffineError(Calls calls);
absl::Status SymmetricWeight(Calls calls);
absl::Status SymmetricActivation(Calls calls);
absl::Status SymmetricActivationEval(Calls calls);
absl::Status ClippedError(Calls calls);
absl::Status SymmetricError(Calls calls);
absl::Status CounterDeviation(Calls calls);
absl::Status SmallFloats(Calls calls);
absl::Status RoundedUpdate(Calls calls);
absl::Status Compensate(Calls calls);
absl::Status CompensationGradient(Calls calls);
absl::Status FixedUpdate(Calls calls);
absl::Status FakeQuantizeWeight(Calls calls);
absl::Status FakeQuantizeWeightGradient(Calls calls);
absl::Status FakeQuantizeActivation(Calls calls);
absl::Status FakeQuantizeActivationGradient(Calls calls);
absl::Status FakeQuantizeError(Calls calls);
absl::Status Dropout(Calls calls);
absl::Status MaxPoolForward(Calls calls);
absl::Status MaxPoolInputGradient(Calls calls);
absl::Status AvgPoolForward(Calls calls);
absl::Status AvgPoolInputGradient(Calls calls);
absl::Status GlobalAvgPoolForward(Calls calls);
absl::Status GlobalAvgPoolInputGradient(Calls calls);
absl::Status SoftmaxCrossEntropy(Calls calls);
absl::Status SoftmaxCrossEntropyEval(Calls calls);

// Sums of the columns of a (rows, columns) matrix; double across blocks of rows.
void ColumnSums(const Call& call, const float* x, int64_t rows, int64_t columns, float* sums);

}  // namespace runnel::fp32
