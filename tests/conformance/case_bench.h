#pragma once

// A case (backend_cases.h) with memory: a program of one instruction.

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backends/backend.h"
#include "tests/conformance/backend_cases.h"

namespace runnel {

// The case outlives it.
class Bench {
 public:
  // in_place: output 0 is the memory of input 0.
  explicit Bench(const Case& c, bool in_place = false) : case_(c) {
    Instruction instruction;
    instruction.code = c.code;
    instruction.attributes = c.attributes;
    instruction.grid = c.grid;
    instruction.optimizer = c.optimizer;
    instruction.layer = 3;
    instruction.op = 2;
    for (const CaseOperand& o : c.inputs) instruction.inputs.push_back(Place(o));
    for (size_t i = 0; i < c.outputs.size(); ++i)
      instruction.outputs.push_back(in_place && i == 0 ? instruction.inputs[0]
                                                       : Place(c.outputs[i]));
    program_.batch = c.inputs[0].shape[0];
    program_.stash_bytes = sizes_[static_cast<int>(Storage::kStash)];
    program_.scratch_bytes = sizes_[static_cast<int>(Storage::kScratch)];
    program_.parts[static_cast<int>(c.part())].push_back(instruction);
    for (int i = 0; i < kStorageCount; ++i) {
      memory_[i].assign(static_cast<size_t>(sizes_[i]) + 128, std::byte{0x5a});
      const auto address = reinterpret_cast<uintptr_t>(memory_[i].data());
      bindings_.base[i] = memory_[i].data() + (64 - address % 64) % 64;
    }
    for (size_t i = 0; i < c.inputs.size(); ++i) Fill(instruction.inputs[i], c.inputs[i]);
    for (size_t i = in_place ? 1 : 0; i < c.outputs.size(); ++i)
      Fill(instruction.outputs[i], c.outputs[i]);
  }

  absl::Status Run(Backend* backend) {
    auto executable = backend->Prepare(program_);
    if (!executable.ok()) return executable.status();
    return (*executable)->Run(case_.part(), case_.context, bindings_);
  }

  // Bytes of operand i, inputs first.
  const std::byte* Data(size_t i) const {
    const Instruction& instruction = program_.part(case_.part())[0];
    const size_t inputs = instruction.inputs.size();
    const BufferIndex index = i < inputs ? instruction.inputs[i] : instruction.outputs[i - inputs];
    const Buffer& buffer = program_.buffers[index];
    return bindings_[buffer.storage] + buffer.offset_bytes;
  }

 private:
  BufferIndex Place(const CaseOperand& o) {
    int64_t& size = sizes_[static_cast<int>(o.storage)];
    Buffer buffer = {o.storage, o.dtype, o.shape, size};
    size += (static_cast<int64_t>(o.bytes.size()) + 63) / 64 * 64;
    program_.buffers.push_back(buffer);
    return static_cast<BufferIndex>(program_.buffers.size()) - 1;
  }
  void Fill(BufferIndex index, const CaseOperand& o) {
    const Buffer& buffer = program_.buffers[index];
    std::memcpy(bindings_[buffer.storage] + buffer.offset_bytes, o.bytes.data(), o.bytes.size());
  }

  const Case& case_;
  Program program_;
  std::array<int64_t, kStorageCount> sizes_ = {};
  std::array<std::vector<std::byte>, kStorageCount> memory_;
  Bindings bindings_;
};

// Inputs first.
inline const CaseOperand& OperandOf(const Case& c, size_t i) {
  return i < c.inputs.size() ? c.inputs[i] : c.outputs[i - c.inputs.size()];
}

// Of the outputs.
inline void ExpectSameBytes(const Case& c, const Bench& a, const Bench& b) {
  for (size_t i = c.inputs.size(); i < c.inputs.size() + c.outputs.size(); ++i) {
    EXPECT_EQ(std::memcmp(a.Data(i), b.Data(i), OperandOf(c, i).bytes.size()), 0)
        << "operand " << i;
  }
}

}  // namespace runnel
