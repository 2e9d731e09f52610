#pragma once

// Instructions of INT8 inference (code_rule.h) as kernels.

#include "absl/status/status.h"
#include "kernels/backends/opencl/device/session.h"
#include "kernels/backends/opencl/operands.h"

namespace runnel::opencl {

bool HasCodeKernels(OpCode code);

// Flags of a kRequantizeCodes for its kernel, as kernels/backends/opencl/cl/prelude.cl defines
// them.
cl_int CodeFlagsOf(const Operands& operands, const Instruction& requantize);

// Enqueues one that HasCodeKernels; kIntegerElements are built. Waits for nothing.
absl::Status EnqueueCodes(Session& session, const Operands& operands,
                          const Instruction& instruction);

}  // namespace runnel::opencl
