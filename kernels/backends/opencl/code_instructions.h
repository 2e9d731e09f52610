#pragma once

// Instructions of INT8 inference (code_rule.h) as kernels.

#include "absl/status/status.h"
#include "kernels/backends/opencl/device/session.h"
#include "kernels/backends/opencl/operands.h"

namespace runnel::opencl {

bool HasCodeKernels(OpCode code);

// Of a kRequantizeCodes: what its kernel adds up and gives, as kernels/backends/opencl/cl/prelude.cl has it.
cl_int CodeFlagsOf(const Operands& operands, const Instruction& requantize);

// Enqueues one that HasCodeKernels; kIntegerElements are built. Waits for nothing.
absl::Status EnqueueCodes(Session& session, const Operands& operands,
                          const Instruction& instruction);

}  // namespace runnel::opencl
