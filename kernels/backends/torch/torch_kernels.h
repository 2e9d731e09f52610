#pragma once

// The instructions of backend torch: ATen calls on row-major tensors. What LibTorch has no form of
// (counter-based dropout, copies of any type) is ref's.

#include "absl/types/span.h"
#include "kernels/backends/host/interpreter.h"

namespace runnel {

absl::Span<const host::KernelRow> TorchKernels();

}  // namespace runnel
