#pragma once

// One function an OpCode; operands as kernels/ir/program.h lists them. Private to kernels/backends/ref.

#include "absl/status/status.h"
#include "kernels/backends/host/call.h"

namespace runnel::ref {

using host::Call;
using host::Kernel;

// Writes a weight-gradient, or adds to what is there.
inline void StoreGradient(const Call& call, float value, float* place) {
  *place = call.adds() ? *place + value : value;
}

// `value` rounded to `shift` bits fewer, 0 for as it is, as the instruction's rule says; `element`
// is the logical index, which keys the draw of stochastic rounding.
int64_t RoundBy(const Call& call, int64_t value, int shift, int64_t element);

// mu of the step for the instruction's kind of operator.
int GradientBitsFor(const Call& call);

absl::Status ConvForward(const Call& call);
absl::Status ConvInputGradient(const Call& call);
absl::Status ConvWeightGradient(const Call& call);
absl::Status LinearForward(const Call& call);
absl::Status LinearInputGradient(const Call& call);
absl::Status LinearWeightGradient(const Call& call);
absl::Status HalfForward(const Call& call);  // conv and linear
absl::Status HalfInputGradient(const Call& call);
absl::Status HalfWeightGradient(const Call& call);
// Of programs of halves, which take them widened (arithmetic/transformer_math.h).
absl::Status LayerNormForward(const Call& call);
absl::Status LayerNormInputGradient(const Call& call);
absl::Status GeluForward(const Call& call);
absl::Status GeluInputGradient(const Call& call);
absl::Status AttentionForward(const Call& call);
absl::Status AttentionInputGradient(const Call& call);
absl::Status BatchNormForward(const Call& call);
absl::Status BatchNormEval(const Call& call);
absl::Status BatchNormAgain(const Call& call);
absl::Status BatchNormInputGradient(const Call& call);
absl::Status BatchNormWeightGradient(const Call& call);
absl::Status MaxPoolForward(const Call& call);
absl::Status MaxPoolInputGradient(const Call& call);
absl::Status AvgPoolForward(const Call& call);
absl::Status AvgPoolInputGradient(const Call& call);
absl::Status GlobalAvgPoolForward(const Call& call);
absl::Status GlobalAvgPoolInputGradient(const Call& call);
absl::Status AffineWeight(const Call& call);
absl::Status AffineActivation(const Call& call);
absl::Status AffineActivationEval(const Call& call);
absl::Status AffineError(const Call& call);
absl::Status AffineWeightCodes(const Call& call);
absl::Status AffineActivationCodes(const Call& call);
absl::Status AffineActivationCodesEval(const Call& call);
absl::Status PackCodes(const Call& call);
absl::Status UnpackCodes(const Call& call);
absl::Status AffineErrorCodes(const Call& call);
absl::Status CodesForward(const Call& call);
absl::Status CodesInputGradient(const Call& call);
absl::Status CodesWeightGradient(const Call& call);
absl::Status SymmetricWeightCodes(const Call& call);
absl::Status SymmetricActivationCodes(const Call& call);
absl::Status SymmetricActivationCodesEval(const Call& call);
absl::Status SymmetricErrorCodes(const Call& call);
absl::Status ClippedErrorCodes(const Call& call);
absl::Status SymmetricWeight(const Call& call);
absl::Status SymmetricActivation(const Call& call);
absl::Status SymmetricActivationEval(const Call& call);
absl::Status ClippedError(const Call& call);
absl::Status SymmetricError(const Call& call);
absl::Status RangeNormForward(const Call& call);
absl::Status RangeNormEval(const Call& call);
absl::Status RangeNormInputGradient(const Call& call);
absl::Status CounterDeviation(const Call& call);
absl::Status SmallFloats(const Call& call);
absl::Status ChunkedForward(const Call& call);
absl::Status ChunkedInputGradient(const Call& call);
absl::Status ChunkedWeightGradient(const Call& call);
absl::Status RoundedUpdate(const Call& call);
absl::Status AdaptWidth(const Call& call);
absl::Status Compensate(const Call& call);
absl::Status CompensationGradient(const Call& call);
absl::Status FixedPoint(const Call& call);
absl::Status ShiftError(const Call& call);
absl::Status FlagError(const Call& call);
absl::Status ShiftedReluInputGradient(const Call& call);
absl::Status FixedNormForward(const Call& call);
absl::Status FixedNormEval(const Call& call);
absl::Status FixedNormInputGradient(const Call& call);
absl::Status FixedUpdate(const Call& call);
absl::Status MultiLevelWeight(const Call& call);
absl::Status MultiLevelActivation(const Call& call);
absl::Status MultiLevelError(const Call& call);
absl::Status FakeQuantizeWeight(const Call& call);
absl::Status FakeQuantizeWeightGradient(const Call& call);
absl::Status FakeQuantizeActivation(const Call& call);
absl::Status FakeQuantizeActivationGradient(const Call& call);
absl::Status FakeQuantizeError(const Call& call);

absl::Status Quantize(const Call& call);
absl::Status Rescale(const Call& call);
absl::Status Int8ProductForward(const Call& call);  // conv and linear
absl::Status Int8ProductInputGradient(const Call& call);
absl::Status Int8ProductWeightGradient(const Call& call);
absl::Status Int8ProductForwardRescaled(const Call& call);
absl::Status Int8ProductInputGradientRescaled(const Call& call);
absl::Status Int8ReluForward(const Call& call);
absl::Status Int8ReluInputGradient(const Call& call);
absl::Status Int8DropoutForward(const Call& call);
absl::Status Int8DropoutInputGradient(const Call& call);
absl::Status Int8Add(const Call& call);
absl::Status Int8MaxPoolForward(const Call& call);
absl::Status Int8MaxPoolInputGradient(const Call& call);
absl::Status Int8AvgPoolForward(const Call& call);
absl::Status Int8AvgPoolInputGradient(const Call& call);
absl::Status Int8GlobalAvgPoolForward(const Call& call);
absl::Status Int8GlobalAvgPoolInputGradient(const Call& call);
absl::Status AddScaledGradient(const Call& call);
absl::Status NitiUpdate(const Call& call);
absl::Status IntegerSoftmaxCrossEntropy(const Call& call);
absl::Status IntegerSoftmaxCrossEntropyEval(const Call& call);

absl::Status EncodeCodes(const Call& call);
absl::Status RequantizeCodes(const Call& call);
absl::Status AddCodes(const Call& call);
absl::Status PadCodes(const Call& call);
absl::Status CodesToChannelsFirst(const Call& call);
absl::Status CodesToChannelsLast(const Call& call);
absl::Status Int8ProductToCodes(const Call& call);
absl::Status RealProductToCodes(const Call& call);

}  // namespace runnel::ref
