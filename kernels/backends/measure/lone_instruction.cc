#include "kernels/backends/measure/lone_instruction.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/backends/host/host_memory.h"
#include "kernels/backends/measure/random_operands.h"
#include "kernels/ir/co_scheduler/value_flow.h"
#include "proto/base/status_macros.h"

namespace runnel {

Program Alone(const Program& program, Part part, Instruction instruction) {
  Program alone;
  alone.first_layer = alone.last_layer = instruction.layer;
  alone.batch = program.batch;
  std::array<int64_t, kStorageCount> ends = {};
  const auto place = [&](std::vector<BufferIndex>& operands, Storage values) {
    for (BufferIndex& index : operands) {
      Buffer buffer = program.buffers[static_cast<size_t>(index)];
      if (HoldsValues(buffer.storage)) buffer.storage = values;
      int64_t& end = ends[static_cast<size_t>(buffer.storage)];
      buffer.offset_bytes = end;
      buffer.packed_by = kNoGate;
      end += (buffer.bytes() + 63) / 64 * 64;
      index = static_cast<BufferIndex>(alone.buffers.size());
      alone.buffers.push_back(buffer);
    }
  };
  place(instruction.inputs, Storage::kInput);
  place(instruction.outputs, Storage::kOutput);
  instruction.keeps.clear();
  instruction.gate = kNoGate;  // all samples run
  alone.parts[static_cast<size_t>(part)].push_back(std::move(instruction));
  return alone;
}

absl::StatusOr<Surroundings> Surround(const Program& alone) {
  Surroundings around;
  std::array<int64_t, kStorageCount> bytes = {};
  for (const Buffer& buffer : alone.buffers) {
    int64_t& size = bytes[static_cast<size_t>(buffer.storage)];
    size = std::max(size, buffer.offset_bytes + buffer.bytes());
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == 0) continue;
    RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Memory> area, AllocateHostMemory(bytes[i]));
    around.bindings.base[i] = area->address();
    around.areas.push_back(std::move(area));
  }
  for (const Buffer& buffer : alone.buffers)
    FillRandomly(buffer, around.bindings[buffer.storage] + buffer.offset_bytes);
  return around;
}

}  // namespace runnel
