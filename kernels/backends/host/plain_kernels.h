#pragma once

// Kernels that several backends have: plain loops over tensors of the host.

#include "absl/types/span.h"
#include "kernels/backends/host/call.h"

namespace runnel::host {

// Forward and gradient are the same map.
absl::Status Dropout(const Call& call);
absl::Status Copy(const Call& call);
// The elements of one floating type as those of another, by way of FP32, which holds all of them.
void ConvertFloats(absl::Span<const std::byte> from, DType from_type, absl::Span<std::byte> to,
                   DType to_type);

// elementwise.cc.
absl::Status ReluForward(const Call& call);
absl::Status Relu6Forward(const Call& call);
absl::Status ReluInputGradient(const Call& call);
absl::Status Relu6InputGradient(const Call& call);
absl::Status ReluMask(const Call& call);
absl::Status Relu6Mask(const Call& call);
absl::Status MaskedInputGradient(const Call& call);
absl::Status Sum(const Call& call);  // add and accumulate

// loss.cc.
absl::Status SoftmaxCrossEntropy(const Call& call);
absl::Status SoftmaxCrossEntropyEval(const Call& call);

// InvalidArgument: a token that is no row of a table.
absl::Status CheckTokens(absl::Span<const int32_t> tokens, int64_t rows);
absl::Status EmbeddingForward(const Call& call);
absl::Status EmbeddingWeightGradient(const Call& call);

// transformer_kernels.cc.
absl::Status LayerNormForward(const Call& call);
absl::Status LayerNormInputGradient(const Call& call);
absl::Status GeluForward(const Call& call);
absl::Status GeluInputGradient(const Call& call);
absl::Status AttentionForward(const Call& call);
absl::Status AttentionInputGradient(const Call& call);

// branch_kernels.cc.
absl::Status SigmoidForward(const Call& call);
absl::Status SigmoidInputGradient(const Call& call);
absl::Status HardSigmoidForward(const Call& call);
absl::Status HardSigmoidInputGradient(const Call& call);
absl::Status LeakyReluForward(const Call& call);
absl::Status LeakyReluInputGradient(const Call& call);
absl::Status Multiply(const Call& call);
absl::Status FactorGradient(const Call& call);
absl::Status ConcatForward(const Call& call);
absl::Status FirstChannels(const Call& call);
absl::Status LastChannels(const Call& call);
absl::Status SliceForward(const Call& call);
absl::Status SliceInputGradient(const Call& call);
absl::Status ShuffleForward(const Call& call);
absl::Status ShuffleInputGradient(const Call& call);

// lstm_kernels.cc.
absl::Status LstmForward(const Call& call);
absl::Status LstmInputGradient(const Call& call);
absl::Status LstmStateGradient(const Call& call);

// sample_kernels.cc. A sample has `size` elements, in whatever order: all operands in one.
void HoldSamples(const Instruction& gate, const StepContext& context, int64_t samples,
                 float* choice);
void TakeAllSamples(const Instruction& gate, int64_t samples, float* choice);
// exploration may be null.
void ChooseSamples(const Instruction& gate, const StepContext& context, const float* logits,
                   int64_t samples, float* choice, float* exploration);
// A choice, or an exploration, as the kernels below read it.
struct ChoiceRows {
  const float* values = nullptr;
  int64_t samples = 0;
  int64_t columns = 0;

  // The sample of a packed row; -1: the row is empty, and so are those behind it.
  int64_t SampleOf(int64_t row) const {
    const auto sample = static_cast<int64_t>(values[row * columns + 1]);
    return sample < samples ? sample : -1;
  }
};
void GatherSamples(const float* x, const ChoiceRows& choice, int64_t size, float* packed);
// base may be null, or y.
void ScatterSamples(const float* packed, const ChoiceRows& choice, const float* base, int64_t size,
                    float* y);
void MaskGradient(const float* dy, const float* packed, const ChoiceRows& choice,
                  const float* explored, const ChoiceRows& exploration, int64_t size,
                  float* dchoice);
void ChoiceGradient(const Instruction& gate, const StepContext& context, const float* dchoice,
                    const ChoiceRows& choice, float* dlogits);
absl::Status HoldSamples(const Call& call);
absl::Status AllSamples(const Call& call);
absl::Status ChooseSamples(const Call& call);
absl::Status MaskGradient(const Call& call);
absl::Status ChoiceGradient(const Call& call);
absl::Status GatherSamples(const Call& call);
absl::Status ScatterSamples(const Call& call);

}  // namespace runnel::host
