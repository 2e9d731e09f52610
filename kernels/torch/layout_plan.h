#pragma once

// Which operands of a program lie channels-last and where one has to be turned. Decided once, when
// a program is prepared.

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/program.h"
#include "kernels/torch/kernel.h"

namespace runnel::torch_kernels {

// A (C, spatial) plane per sample, to be turned between row-major and channels-last. Only float.
struct Turn {
  enum class Way : uint8_t { kNone, kToChannelsLast, kToRowMajor };
  Way way = Way::kNone;
  int64_t samples = 0, channels = 0, positions = 0;
  int element_bytes = 4;
  int64_t workspace_offset = 0;  // of the turned copy, a multiple of 64
};

struct Step {
  const Instruction* instruction = nullptr;
  const KernelRow* kernel = nullptr;
  bool channels_last = false;
  std::vector<Turn> inputs;   // source -> workspace before the kernel runs
  std::vector<Turn> outputs;  // workspace -> target afterwards
};

struct LayoutPlan {
  std::array<std::vector<Step>, kPartCount> parts;
  int64_t workspace_bytes = 0;
};

// `program` must outlive the result. Unimplemented names the first instruction without a kernel.
absl::StatusOr<LayoutPlan> PlanLayout(const Program& program);

// Runs one turn.
void RunTurn(const Turn& turn, const std::byte* source, std::byte* target);

}  // namespace runnel::torch_kernels
