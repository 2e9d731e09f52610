#pragma once

// Operands of a program's instructions as kernels take them.

#include "kernels/backends/backend.h"
#include "kernels/backends/opencl/device/launch.h"
#include "kernels/backends/opencl/staging.h"
#include "kernels/ir/program.h"

namespace runnel::opencl {

// Places of an instruction's operands. Borrows both.
class Operands {
 public:
  Operands(const Program& program, const Staging& staging) : program_(program), staging_(staging) {}

  const Program& program() const { return program_; }
  const Buffer& buffer(BufferIndex index) const {
    return program_.buffers[static_cast<size_t>(index)];
  }
  TensorRef In(const Instruction& instruction, size_t i) const {
    return staging_.At(instruction.inputs[i]);
  }
  TensorRef Out(const Instruction& instruction, size_t i) const {
    return staging_.At(instruction.outputs[i]);
  }
  // Elements of the first output.
  int64_t Elements(const Instruction& instruction) const {
    return buffer(instruction.outputs[0]).shape.elements();
  }

 private:
  const Program& program_;
  const Staging& staging_;
};

// Rounding and draws of an instruction, as kernels/backends/opencl/cl/prelude.cl lays them out.
struct KernelRule {
  cl_int rounding, promote_one_to_two, relu, power_of_two;
  cl_uint key[2], sequence[2], threshold;
  cl_int added_exponent;
};
KernelRule RuleOf(const Instruction& instruction, const StepContext& context);

// (N, C, ...) seen as n x channels runs of `inner` elements, as kernels/backends/opencl/cl/floats.cl lays it
// out.
struct KernelChannels {
  cl_int n, channels, inner;
};
inline KernelChannels ChannelsOf(const Shape& shape) {
  return {static_cast<cl_int>(shape[0]), static_cast<cl_int>(shape[1]),
          static_cast<cl_int>(shape.elements() / (shape[0] * shape[1]))};
}

inline cl_int Flag(bool value) { return value ? 1 : 0; }

}  // namespace runnel::opencl
