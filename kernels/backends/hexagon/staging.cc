#include "kernels/backends/hexagon/staging.h"

#include <algorithm>
#include <cstring>

#include "proto/base/status_macros.h"

namespace runnel::hexagon {
namespace {

// The elements, and the tail of a scaled tensor; what lies between is the owner's.
void CopyTensor(const Buffer& buffer, const std::byte* from, std::byte* to) {
  const auto bytes =
      static_cast<size_t>(buffer.shape.elements()) * static_cast<size_t>(SizeOf(buffer.dtype));
  std::memcpy(to, from, bytes);
  if (!buffer.scaled) return;
  const auto tail = static_cast<size_t>(buffer.bytes()) - sizeof(ScaleTail);
  std::memcpy(to + tail, from + tail, sizeof(ScaleTail));
}

// The metrics are the host's alone.
bool IsTheDsps(const Buffer& buffer) { return buffer.storage != Storage::kMetrics; }

}  // namespace

bool Staging::IsStaged(Storage storage, const Bindings& bindings) const {
  return !memory_->Contains(bindings[storage]);
}

absl::Status Staging::Place(Storage storage, const Bindings& bindings) {
  const int i = static_cast<int>(storage);
  if (!IsStaged(storage, bindings)) {
    base_[storage] = bindings[storage];
    return absl::OkStatus();
  }
  if (copies_[i] == nullptr) {
    int64_t bytes = 0;
    for (const Buffer& buffer : program_.buffers) {
      if (buffer.storage == storage) bytes = std::max(bytes, buffer.offset_bytes + buffer.bytes());
    }
    RUNNEL_ASSIGN_OR_RETURN(copies_[i], memory_->Allocate(bytes));
  }
  base_[storage] = copies_[i]->address();
  return absl::OkStatus();
}

absl::Status Staging::Enter(Part part, const Bindings& bindings) {
  for (const Instruction& instruction : program_.part(part)) {
    for (const auto* operands : {&instruction.inputs, &instruction.outputs}) {
      for (BufferIndex index : *operands) {
        const Buffer& buffer = program_.buffers[index];
        if (!IsTheDsps(buffer)) continue;
        RUNNEL_RETURN_IF_ERROR(Place(buffer.storage, bindings));
        if (!IsStaged(buffer.storage, bindings)) continue;
        CopyTensor(buffer, bindings[buffer.storage] + buffer.offset_bytes, Address(index));
        memory_->RecordChange(OffsetOf(index), static_cast<uint32_t>(buffer.bytes()));
      }
    }
  }
  return absl::OkStatus();
}

void Staging::Leave(Part part, const Bindings& bindings) const {
  for (const Instruction& instruction : program_.part(part)) {
    for (BufferIndex index : instruction.outputs) {
      const Buffer& buffer = program_.buffers[index];
      if (!IsTheDsps(buffer) || !IsStaged(buffer.storage, bindings)) continue;
      CopyTensor(buffer, Address(index), bindings[buffer.storage] + buffer.offset_bytes);
    }
  }
}

uint32_t Staging::OffsetOf(BufferIndex index) const {
  const Buffer& buffer = program_.buffers[index];
  const std::byte* base = base_[buffer.storage];
  return memory_->OffsetOf(base + buffer.offset_bytes);
}

uint64_t Staging::VersionOf(BufferIndex index) const {
  const Storage storage = program_.buffers[index].storage;
  const auto& copy = copies_[static_cast<int>(storage)];
  // A copy is another one each time.
  const bool copied = copy != nullptr && copy->address() == base_[storage];
  return copied ? 0 : memory_->VersionOf(base_[storage]);
}

}  // namespace runnel::hexagon
