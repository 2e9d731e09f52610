#pragma once

// Convolutions and linear layers of a program, forward and backward, integers and floats.

#include <memory>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backends/opencl/device/area.h"
#include "kernels/backends/opencl/operands.h"
#include "kernels/backends/opencl/product/product_plan.h"
#include "kernels/backends/opencl/product/weight_images.h"
#include "kernels/backends/opencl/product/winograd.h"

namespace runnel::opencl {

// For one executable: enqueues, waits for nothing. A product of INT8 inference is computed when its
// sums are requantised, if one kernel can do both.
class Products {
 public:
  // Plans the program's products, builds their kernels and makes room for sums of slices. Errors as
  // Session::Build and CreateBuffer.
  static absl::StatusOr<std::unique_ptr<Products>> Create(const Operands& operands,
                                                          std::shared_ptr<Session> session);

  // Whether it is a product, or a kRequantizeCodes that is done with one.
  bool Has(const Instruction& instruction) const;
  // Enqueues a product for which Has.
  absl::Status Enqueue(const Instruction& instruction, const StepContext& context);
  // Before a part, and when `instruction` was enqueued: halves of what may be another weight now
  // are made anew when they are read next.
  void ForgetWeights();
  void ForgetWritten(const Instruction& instruction);
  // Whether it is a product that is computed as F(2x2, 3x3).
  bool IsWinograd(const Instruction& instruction) const;
  // Bytes of halves, slices, maxima and Winograd's factors.
  int64_t memory_bytes() const;

 private:
  Products(const Operands& operands, std::shared_ptr<Session> session)
      : operands_(operands),
        session_(session),
        images_(session),
        winograd_(operands, std::move(session)) {}

  // Of what was planned. Errors as those of Create.
  absl::Status Prepare();
  // Builds a product's kernels. A tile whose groups the device does not run them in, or over which
  // its driver hung, gives way to a smaller one. FailedPrecondition: there is none. As
  // Session::Build.
  absl::Status BuildKernels(ProductPlan* product);
  // Likewise of one that is_winograd. Where the device does not compile it or has not the groups, it
  // becomes a direct one, whose kernels are not built yet.
  absl::Status BuildWinograd(const Instruction& instruction, ProductPlan* product);
  void MakeDirect(const Instruction& instruction, ProductPlan* product) const;
  // Plans the program's products; of those whose sums are not cut into slices some give codes.
  void Plan();
  absl::Status Codes(const Instruction& requantize);
  absl::Status Integers(const Instruction& instruction, const ProductPlan& product);
  absl::Status Floats(const Instruction& instruction, const ProductPlan& product, bool adds);
  // Makes room for the halves of a product's weight, if it reads some.
  absl::Status AddHalves(const Instruction& instruction);
  // The weight as the product reads it.
  absl::StatusOr<TensorRef> Weight(const Instruction& instruction);
  // The second operand of a product, as its tile reads it.
  absl::StatusOr<WeightOperand> View(const Instruction& instruction, const TensorRef& weight);
  absl::Status BiasGradient(const Instruction& instruction, bool adds);

  const Operands operands_;
  const std::shared_ptr<Session> session_;
  WeightImages images_;
  WinogradProducts winograd_;
  std::unordered_map<const Instruction*, ProductPlan> plans_;
  std::unordered_map<const Instruction*, const Instruction*>
      coded_;  // products by kRequantizeCodes
  // The halves of one weight: current in this part, or still to be made.
  struct Halves {
    DeviceBuffer buffer;
    bool are_made = false;
  };
  std::unordered_map<BufferIndex, Halves> halves_;
  DeviceBuffer targets_;  // a maximum of each group
  DeviceBuffer slices_;   // sums of a part of the depth
};

}  // namespace runnel::opencl
