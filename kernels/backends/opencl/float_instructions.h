#pragma once

// Instructions of FP32 as kernels, without the products.

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backends/opencl/operands.h"

namespace runnel::opencl {

bool HasFloatKernels(OpCode code);

// For one executable: enqueues, waits for nothing.
class FloatInstructions {
 public:
  FloatInstructions(const Operands& operands, std::shared_ptr<Session> session)
      : operands_(operands), session_(std::move(session)) {}

  // Builds the kernels. As Session::Build.
  absl::Status Prepare() { return session_->Build(kFloatElements); }
  // Enqueues an instruction for which HasFloatKernels.
  absl::Status Enqueue(const Instruction& instruction, const StepContext& context);

 private:
  struct Row;
  friend bool HasFloatKernels(OpCode code);
  static const Row* FindRow(OpCode code);

  absl::Status Map(const Instruction& instruction, const StepContext& context);
  absl::Status Dropout(const Instruction& instruction, const StepContext& context);
  absl::Status MaxPool(const Instruction& instruction, const StepContext& context);
  absl::Status Pool(const Instruction& instruction, const StepContext& context);
  absl::Status BatchNormForward(const Instruction& instruction, const StepContext& context);
  absl::Status BatchNormApply(const Instruction& instruction, const StepContext& context);
  absl::Status BatchNormGradient(const Instruction& instruction, const StepContext& context);
  absl::Status BatchNormWeightGradient(const Instruction& instruction, const StepContext& context);
  absl::Status LossGradient(const Instruction& instruction, const StepContext& context);
  absl::Status Update(const Instruction& instruction, const StepContext& context);

  // The kernel of the instruction's row, with all inputs and then all outputs as its first
  // arguments.
  Launch OnOperands(const Instruction& instruction);
  Launch OnOperands(const Instruction& instruction, const char* kernel);

  const Operands operands_;
  const std::shared_ptr<Session> session_;
};

}  // namespace runnel::opencl
