#pragma once

// The instructions of programs of halves (Program::values), channels-last where fp32's are. All
// instruction sets give the bytes of ref.

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backends/cpu/call.h"
#include "kernels/backends/cpu/half/loops.h"

namespace runnel::half {

using cpu::Call;
using cpu::Image;
using cpu::ImageOf;
using cpu::ParallelFor;
using cpu::Window;
using Calls = absl::Span<const Call>;

// A row an instruction.
absl::Span<const cpu::KernelRow> KernelRows();

absl::Status Forward(Calls calls);  // of convolutions and linear layers
absl::Status InputGradient(Calls calls);
absl::Status WeightGradient(Calls calls);
absl::Status BatchNormForward(Calls calls);  // also of kBatchNormEval and kBatchNormAgain
absl::Status BatchNormInputGradient(Calls calls);
absl::Status MaxPoolForward(Calls calls);
absl::Status MaxPoolInputGradient(Calls calls);
absl::Status AvgPoolForward(Calls calls);  // also global
absl::Status AvgPoolInputGradient(Calls calls);

// Conversions of an operand that is a half.
inline const Conversions& OfInput(const Call& call, size_t i) {
  return call.machine.half->of(call.inputs[i].buffer->dtype);
}
inline const Conversions& OfOutput(const Call& call, size_t i) {
  return call.machine.half->of(call.outputs[i].buffer->dtype);
}
// Rounds values into elements of the first output, from `at` on, and counts what it does not hold.
inline void Store(const Call& call, const float* values, int64_t count, int64_t at) {
  const RangeCounts counts = OfOutput(call, 0).narrow(values, count, call.out<uint16_t>(0) + at);
  if (call.context->range != nullptr) call.context->range->Add(call.instruction->code, counts);
}

}  // namespace runnel::half
