#pragma once

// The instructions of integer recipes on backend cpu: one row an OpCode, byte for byte what ref
// gives (tests/conformance/integer_conformance_test.cc).

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/backends/cpu/call.h"
#include "kernels/backends/cpu/int8/int8_conv.h"
#include "kernels/backends/cpu/integer/loops.h"

namespace runnel::cpu {

absl::Span<const KernelRow> IntegerKernels();

// The tails of scaled operands.
inline const ScaleTail& TailOfInput(const Call& call, size_t i) {
  const Buffer& buffer = *call.inputs[i].buffer;
  return TailOf(static_cast<const std::byte*>(call.inputs[i].data), buffer.dtype, buffer.shape);
}
inline ScaleTail& TailOfOutput(const Call& call, size_t i) {
  const Buffer& buffer = *call.outputs[i].buffer;
  return TailOf(call.outputs[i].data, buffer.dtype, buffer.shape);
}

// Logical (row-major) index of the element that lies at `position`.
inline int64_t LogicalIndex(const Call& call, const Shape& shape, int64_t position) {
  if (!call.channels_last || shape.rank() < 3) return position;
  const Image image = ImageOf(shape);
  const int64_t c = position % image.c, at = position / image.c % image.positions();
  const int64_t n = position / image.c / image.positions();
  return (n * image.c + c) * image.positions() + at;
}

// mu of the step for the instruction's kind of operator.
int GradientBitsFor(const Call& call);

// integer_products.cc
absl::Status RunProductForward(absl::Span<const Call> calls);
absl::Status RunProductInputGradient(absl::Span<const Call> calls);
absl::Status RunRescaledForward(absl::Span<const Call> calls);
absl::Status RunRescaledInputGradient(absl::Span<const Call> calls);

// weight_gradients.cc
absl::Status RunProductWeightGradient(absl::Span<const Call> calls);
// A weight-gradient and the kNitiUpdate behind it, whose operand is nobody else's. Where the shift
// is mostly that of the last step, the sums become mantissas as they leave the product.
absl::Status RunWeightStep(absl::Span<const Call> calls);

// integer_elementwise.cc
absl::Status RunQuantize(absl::Span<const Call> calls);
absl::Status RunRescale(absl::Span<const Call> calls);
absl::Status RunInt8Relu(absl::Span<const Call> calls);
absl::Status RunInt8ReluGradient(absl::Span<const Call> calls);
absl::Status RunInt8Dropout(absl::Span<const Call> calls);
absl::Status RunInt8Add(absl::Span<const Call> calls);

// integer_pool.cc
absl::Status RunInt8MaxPool(absl::Span<const Call> calls);
absl::Status RunInt8MaxPoolGradient(absl::Span<const Call> calls);
absl::Status RunInt8AvgPool(absl::Span<const Call> calls);
absl::Status RunInt8AvgPoolGradient(absl::Span<const Call> calls);
absl::Status RunInt8GlobalAvgPool(absl::Span<const Call> calls);
absl::Status RunInt8GlobalAvgPoolGradient(absl::Span<const Call> calls);

// integer_update.cc
absl::Status RunIntegerLoss(absl::Span<const Call> calls);  // with and without gradient
absl::Status RunAddScaledGradient(absl::Span<const Call> calls);
absl::Status RunNitiUpdate(absl::Span<const Call> calls);

// Rounds `count` values by `shift` bits as the instruction's rule says, saturated; shift 0 only
// saturates. relu and mask as kRescale. The pointers stand at element `first` (in memory) of a
// tensor of this shape. Any thread.
void RoundToMantissas(const Call& call, const Shape& shape, int64_t first, int64_t count,
                      const int32_t* values, int shift, bool relu, const int8_t* mask, int8_t* out);

}  // namespace runnel::cpu
