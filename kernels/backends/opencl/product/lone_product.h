#pragma once

// A product of a program alone, with operands of its own, to try a tile on it.

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"
#include "kernels/ir/program.h"

namespace runnel::opencl {

// A program whose forward is the product, `copies` times. All operands lie in kStash, one behind
// the other; the last instruction brings something to kOutput, so that a run waits for the device.
struct LoneProduct {
  Program program;
  BufferIndex output = 0;
};

// `instruction` IsProduct.
LoneProduct TakeProduct(const Program& program, const Instruction& instruction, int copies);
// A product of the same kind, with sizes that `ref` computes in milliseconds.
LoneProduct TakeSmallProduct(const Program& program, const Instruction& instruction);

// Random operands; all floats positive if `magnitudes`. Errors as Backend::Allocate.
absl::StatusOr<std::unique_ptr<Memory>> MakeOperands(const LoneProduct& product, Backend& backend,
                                                     bool magnitudes);
// Values that no product has, where the result comes to lie.
absl::Status SpoilOutput(const LoneProduct& product, Memory& operands);
// The first output with its tail.
absl::StatusOr<std::vector<std::byte>> ReadOutput(const LoneProduct& product, Memory& operands);
absl::Status RunProduct(Executable& executable, Memory& operands);

}  // namespace runnel::opencl
