#pragma once

// Instructions of integer recipes as kernels, without the products.

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"
#include "kernels/backends/opencl/device/area.h"
#include "kernels/backends/opencl/operands.h"

namespace runnel::opencl {

// Whether the device has its part in it. The metrics of kIntegerSoftmaxCrossEntropy, which take a
// logarithm of real numbers, and kIntegerSoftmaxCrossEntropyEval are the host's part.
bool HasKernels(OpCode code);

// For one executable: enqueues, waits for nothing.
class Instructions {
 public:
  // Builds the kernels and makes room for what they keep between each other. ResourceExhausted,
  // FailedPrecondition, Unavailable as Session.
  static absl::StatusOr<std::unique_ptr<Instructions>> Create(const Operands& operands,
                                                              std::shared_ptr<Session> session);

  // Enqueues an instruction for which HasKernels.
  absl::Status Enqueue(const Instruction& instruction, const StepContext& context);
  int64_t memory_bytes() const { return control_.bytes() + targets_.bytes(); }

 private:
  struct Row;
  friend bool HasKernels(OpCode code);
  static const Row* FindRow(OpCode code);

  Instructions(const Operands& operands, std::shared_ptr<Session> session)
      : operands_(operands), session_(std::move(session)) {}

  absl::Status Copy(const Instruction& instruction, const StepContext& context);
  absl::Status Quantize(const Instruction& instruction, const StepContext& context);
  absl::Status Rescale(const Instruction& instruction, const StepContext& context);
  absl::Status Relu(const Instruction& instruction, const StepContext& context);
  absl::Status ReluGradient(const Instruction& instruction, const StepContext& context);
  absl::Status Dropout(const Instruction& instruction, const StepContext& context);
  absl::Status Add(const Instruction& instruction, const StepContext& context);
  absl::Status MaxPool(const Instruction& instruction, const StepContext& context);
  absl::Status MaxPoolGradient(const Instruction& instruction, const StepContext& context);
  absl::Status AvgPool(const Instruction& instruction, const StepContext& context);
  absl::Status AvgPoolGradient(const Instruction& instruction, const StepContext& context);
  absl::Status AddGradient(const Instruction& instruction, const StepContext& context);
  absl::Status Update(const Instruction& instruction, const StepContext& context);
  absl::Status LossGradient(const Instruction& instruction, const StepContext& context);

  Launch Kernel(const char* name) { return Launch(*session_, kIntegerElements, name); }

  const Operands operands_;
  const std::shared_ptr<Session> session_;
  // Results that kernels leave for later ones.
  DeviceBuffer control_;  // a maximum, or the plan of a sum
  DeviceBuffer targets_;  // a maximum of each group
};

}  // namespace runnel::opencl
