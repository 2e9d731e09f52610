#pragma once

// Peak memory of training steps, each side in a process of its own: this binary again, started with
// kMemoryChild as its first argument.
//
// What is counted: the child loads its libraries, runs a step of LeNet at batch 1 (so that code
// pages, generated kernels and one-time tables are there), gives freed memory back and notes its
// resident set: the baseline. Then it makes the model, gives back what making it left over, resets
// the kernel's high-water mark and runs two steps. The result is VmHWM minus the baseline: weights,
// gradients, optimizer state, activations and every temporary; not the samples, which both sides
// read. The peer runs with glibc's own allocator settings there, which need less memory than those
// that it is timed with.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace runnel::bench {

inline constexpr char kMemoryChild[] = "memory-child";

enum class Side { kOurs, kTorch, kTorchChannelsLast };

struct MemoryQuestion {
  Side side = Side::kOurs;
  std::string model;
  std::string recipe;   // ours only
  std::string backend;  // ours only
  int threads = 1;
  int64_t batch = 1;
};

// Asks a child process.
absl::StatusOr<int64_t> PeakBytes(const MemoryQuestion& question);
// The child: `arguments` are those behind kMemoryChild. Returns the exit code.
int RunMemoryChild(const std::vector<std::string>& arguments);

}  // namespace runnel::bench
