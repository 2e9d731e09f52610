#pragma once

// Instructions of recipes that fake-quantise (kernels/ir/arithmetic/fake_quantize.h) as kernels.

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backends/opencl/device/area.h"
#include "kernels/backends/opencl/operands.h"

namespace runnel::opencl {

bool HasGridKernels(OpCode code);

// For one executable: enqueues, waits for nothing.
class GridInstructions {
 public:
  // Builds the kernels and makes room for what they keep between each other. Errors as
  // Session::Build and CreateBuffer.
  static absl::StatusOr<std::unique_ptr<GridInstructions>> Create(const Operands& operands,
                                                                  std::shared_ptr<Session> session);

  // Enqueues an instruction for which HasGridKernels.
  absl::Status Enqueue(const Instruction& instruction, const StepContext& context);

 private:
  struct Row;
  friend bool HasGridKernels(OpCode code);
  static const Row* FindRow(OpCode code);

  GridInstructions(const Operands& operands, std::shared_ptr<Session> session)
      : operands_(operands), session_(std::move(session)) {}

  absl::Status Weight(const Instruction& instruction, const StepContext& context);
  absl::Status SignMean(const Instruction& instruction);
  absl::Status WeightGradient(const Instruction& instruction, const StepContext& context);
  absl::Status Activation(const Instruction& instruction, const StepContext& context);
  absl::Status ActivationGradient(const Instruction& instruction, const StepContext& context);
  absl::Status Error(const Instruction& instruction, const StepContext& context);

  // Puts the largest of `count` weights into found_.
  absl::Status FindLargest(const TensorRef& weights, int64_t count);
  Launch Kernel(const char* name) { return Launch(*session_, kFloatElements, name); }

  const Operands operands_;
  const std::shared_ptr<Session> session_;
  // Results that kernels leave for later ones.
  DeviceBuffer found_;     // the largest weight, or that of each sample's errors with its grid
  DeviceBuffer partials_;  // a sum of each group
};

}  // namespace runnel::opencl
