#pragma once

// Products of the codes of grids (kernels/ir/op_traits.inc, kCodes) with their sums on the DSP. It has
// products of int8 alone, so each of the sums that ValueOfSums takes (kernels/ir/arithmetic/code_grid.h)
// is an operation of its own:
//
//   products        left codes times right codes
//   sums of left    left codes times ones, with one output channel a group
//   sums of right   ones times right codes, with one sample
//
// A gradient of more than 8 bits is two tensors of int8, whose products and sums are made apart. The
// host counts the terms and makes the FP32 values.

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "kernels/backends/hexagon/dsp_session.h"
#include "kernels/backends/hexagon/shared_memory.h"
#include "kernels/backends/host/call.h"
#include "kernels/backends/host/geometry.h"
#include "kernels/ir/program.h"

namespace runnel::hexagon {

bool IsProductOfCodes(OpCode code);
// Unimplemented: it takes samples by choice.
absl::Status CheckProductOfCodes(const Instruction& instruction);

// Memory for the sums of one product, and operands of ones. The programs of a session share it: it
// runs one list at a time. One thread.
class CodeScratch {
 public:
  explicit CodeScratch(std::shared_ptr<SharedMemory> memory) : memory_(std::move(memory)) {}

  // Room for each product of codes of the program. ResourceExhausted: what there was stays.
  absl::Status Reserve(const Program& program);

  // Offsets in the shared memory, in bytes.
  uint32_t ones() const { return memory_->OffsetOf(ones_->address()); }
  uint32_t sums() const { return memory_->OffsetOf(sums_->address()); }
  SharedMemory& memory() const { return *memory_; }

 private:
  const std::shared_ptr<SharedMemory> memory_;
  std::unique_ptr<Memory> ones_, sums_;  // null: no program has such products
};

// Runs a product of codes of this geometry, whose operands lie in the shared memory and for which
// `scratch` has room, and waits for it. list: as DspSession::Submit's. Errors as Submit and Wait.
absl::Status RunProductOfCodes(const host::Call& call, const host::Geometry& geometry,
                               const CodeScratch& scratch, DspSession& session, uint64_t list);

}  // namespace runnel::hexagon
