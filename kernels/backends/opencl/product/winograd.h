#pragma once

// 3x3 convolutions of stride 1 as F(2x2, 3x3) in integers (cl/winograd.cl), with the sums of the direct convolution.

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/backends/opencl/device/area.h"
#include "kernels/backends/opencl/device/launch.h"
#include "kernels/backends/opencl/operands.h"
#include "kernels/backends/opencl/product/product_plan.h"

namespace runnel::opencl {

// For one executable: enqueues, waits for nothing.
class WinogradProducts {
 public:
  WinogradProducts(const Operands& operands, std::shared_ptr<Session> session)
      : operands_(operands), session_(std::move(session)) {}

  // Makes room for the factors of all products that are is_winograd, or of none: then errors as
  // CreateBuffer. ResourceExhausted also where the program's own memory would find no room once
  // more beside them, as the copies of a first run and the program of the next batch size need it.
  absl::Status Add(const std::unordered_map<const Instruction*, ProductPlan>& plans);

  // Enqueues a product that was added, by its built `kernels`. `add_after` adds the arguments between the operands and
  // the sizes. Factors of weights that never change (Program::constants) are computed once.
  absl::Status Enqueue(const Instruction& instruction, const ProductPlan& product,
                       const ProgramId& kernels, absl::FunctionRef<void(Launch&)> add_after);

  int64_t memory_bytes() const;

 private:
  struct Factors {
    DeviceBuffer buffer;
    bool are_made = false;
  };
  absl::Status AddAll(const std::unordered_map<const Instruction*, ProductPlan>& plans);
  absl::Status MakeWeights(const Instruction& instruction, const ProductPlan& product,
                           const ProgramId& kernels, Factors* factors);

  const Operands operands_;
  const std::shared_ptr<Session> session_;
  std::unordered_map<const Instruction*, Factors> weights_;
  DeviceBuffer inputs_;  // of the product that runs
};

}  // namespace runnel::opencl
