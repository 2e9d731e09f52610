#pragma once

// A program of a test's own for Part::kForwardEval, with memory for it.

#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backends/backend.h"
#include "tests/kernels/stage_harness.h"

namespace runnel {

class ProgramBench {
 public:
  // The buffer, behind those that its storage has already.
  BufferIndex Add(Buffer buffer) {
    int64_t& end = ends_[static_cast<size_t>(buffer.storage)];
    buffer.offset_bytes = end;
    end += (buffer.bytes() + 63) / 64 * 64;
    program.buffers.push_back(std::move(buffer));
    return static_cast<BufferIndex>(program.buffers.size()) - 1;
  }
  // With what lies there before a run, zeros behind.
  BufferIndex AddGiven(Buffer buffer, std::vector<std::byte> bytes) {
    const BufferIndex index = Add(std::move(buffer));
    given_.emplace_back(index, std::move(bytes));
    return index;
  }
  // Another buffer with the same bytes.
  BufferIndex View(BufferIndex of) {
    program.buffers.push_back(Buffer(program.buffers[static_cast<size_t>(of)]));
    return static_cast<BufferIndex>(program.buffers.size()) - 1;
  }
  std::vector<Instruction>& part() {
    return program.parts[static_cast<size_t>(Part::kForwardEval)];
  }
  Instruction& Emit(OpCode code, std::vector<BufferIndex> inputs, BufferIndex output) {
    return part().emplace_back(Instruction{code, std::move(inputs), {output}});
  }

  // What lies in kOutput afterwards. All memory is full of what no kernel would write.
  std::vector<std::byte> Run(Backend& backend) const {
    auto executable = backend.Prepare(program);
    EXPECT_TRUE(executable.ok()) << executable.status();
    std::vector<std::byte> output;
    if (!executable.ok()) return output;
    const absl::Status status = TryRun(**executable, &output);
    EXPECT_TRUE(status.ok()) << status;
    return output;
  }
  // Likewise, of what was made ready.
  absl::Status TryRun(Executable& executable, std::vector<std::byte>* output) const {
    std::vector<AlignedBytes> memory;
    Bindings bindings;
    for (size_t i = 0; i < kStorageCount; ++i) {
      memory.emplace_back(ends_[i]);
      std::memset(memory.back().data(), 0x5a, static_cast<size_t>(ends_[i]));
      if (ends_[i] > 0) bindings.base[i] = memory.back().data();
    }
    for (const auto& [index, bytes] : given_) {
      const Buffer& buffer = program.buffers[static_cast<size_t>(index)];
      std::byte* to = bindings[buffer.storage] + buffer.offset_bytes;
      std::memset(to, 0, static_cast<size_t>(buffer.bytes()));
      std::memcpy(to, bytes.data(), bytes.size());
    }
    const absl::Status status = executable.Run(Part::kForwardEval, {}, bindings);
    const std::byte* from = bindings[Storage::kOutput];
    output->assign(from, from + ends_[static_cast<size_t>(Storage::kOutput)]);
    return status;
  }

  Program program;

 private:
  std::array<int64_t, kStorageCount> ends_ = {};
  std::vector<std::pair<BufferIndex, std::vector<std::byte>>> given_;
};

}  // namespace runnel
