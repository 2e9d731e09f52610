#pragma once

// Instructions of halves by the kernels of FP32.

#include "kernels/backends/host/call.h"

namespace runnel::host {

// Runs `kernel` on FP32 copies of the operands that are halves, then rounds those that it wrote.
absl::Status RunWidened(const Call& call, Kernel kernel);

template <Kernel kKernel>
absl::Status Widened(const Call& call) {
  return RunWidened(call, kKernel);
}

// The values of an operand, widened.
std::vector<float> WidenedInput(const Call& call, size_t i);

}  // namespace runnel::host
