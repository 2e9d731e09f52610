#pragma once

// Places of the operands of a program's part in the memory that the DSP shares: in their area
// already, or in a copy of the host's.

#include <array>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backends/backend.h"
#include "kernels/backends/hexagon/shared_memory.h"
#include "kernels/ir/program.h"

namespace runnel::hexagon {

// For one executable.
class Staging {
 public:
  // Both outlive it.
  Staging(const Program& program, std::shared_ptr<SharedMemory> memory)
      : program_(program), memory_(std::move(memory)) {}

  // Copies in the operands that the part reads from memory that the DSP does not see.
  // ResourceExhausted.
  absl::Status Enter(Part part, const Bindings& bindings);
  // Copies out the part's results of such memory.
  void Leave(Part part, const Bindings& bindings) const;

  // Offset of an operand in the shared memory.
  uint32_t OffsetOf(BufferIndex index) const;
  uint64_t VersionOf(BufferIndex index) const;
  // Storages of the part that Enter was called for, in the shared memory.
  const Bindings& bindings() const { return base_; }
  std::byte* Address(BufferIndex index) const { return memory_->base() + OffsetOf(index); }

 private:
  bool IsStaged(Storage storage, const Bindings& bindings) const;
  absl::Status Place(Storage storage, const Bindings& bindings);

  const Program& program_;
  const std::shared_ptr<SharedMemory> memory_;
  Bindings base_;  // in the shared memory
  std::array<std::unique_ptr<Memory>, kStorageCount> copies_;
};

}  // namespace runnel::hexagon
