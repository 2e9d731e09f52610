#pragma once

// Instructions of integer recipes as operations of the DSP.

#include <optional>

#include "absl/functional/function_ref.h"
#include "kernels/backends/backend.h"
#include "kernels/backends/hexagon/op_list.h"
#include "kernels/backends/host/geometry.h"
#include "kernels/ir/program.h"

namespace runnel::hexagon {

// The DSP's code of an instruction. kIntegerSoftmaxCrossEntropy's metrics, which take a logarithm
// of real numbers, and kIntegerSoftmaxCrossEntropyEval are the host's part.
std::optional<DspCode> DspCodeOf(OpCode code);
// Whether the host has a part in it, after the DSP's.
bool HasHostPart(OpCode code);

// Offset of an operand in the shared memory.
using OffsetFn = absl::FunctionRef<uint32_t(BufferIndex)>;
// Version of the bytes of the operand's area: SharedMemory::VersionOf.
using VersionFn = absl::FunctionRef<uint64_t(BufferIndex)>;

DspOp Encode(const Program& program, const Instruction& instruction, const StepContext& context,
             OffsetFn offset_of, VersionFn version_of);
// Fills in the operator's input, output, window and groups.
void EncodeSizes(const host::Geometry& geometry, DspOp* op);

}  // namespace runnel::hexagon
