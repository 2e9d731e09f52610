#pragma once

// Instructions of halves by the kernels of FP32.

#include "absl/types/span.h"
#include "kernels/backends/host/call.h"

namespace runnel::host {

// Runs `kernel` on FP32 copies of the operands that are halves, then rounds those that it wrote.
absl::Status RunWidened(const Call& call, Kernel kernel);

template <Kernel kKernel>
absl::Status Widened(const Call& call) {
  return RunWidened(call, kKernel);
}

// Rounds values into an operand of halves, and counts what it does not hold.
void StoreHalves(const Call& call, BufferIndex operand, absl::Span<const float> values);

// The values of an operand, widened.
std::vector<float> WidenedInput(const Call& call, size_t i);

}  // namespace runnel::host
