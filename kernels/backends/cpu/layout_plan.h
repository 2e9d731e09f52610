#pragma once

// Decides which operands of a program lie channels-last and where one has to be turned. Done once,
// when a program is prepared.
// || Activations of rank >= 3 inside a stage lie channels-last; tensors that enter or leave a stage
// are row-major as their shape says. So every operator sees the same layout wherever the model is
// cut.

#include <array>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/backends/cpu/call.h"
#include "kernels/ir/program.h"

namespace runnel::cpu {

// A (C, spatial) plane per sample, to be turned between row-major and channels-last.
struct Turn {
  enum class Way : uint8_t { kNone, kToChannelsLast, kToRowMajor };
  Way way = Way::kNone;
  int64_t samples = 0, channels = 0, positions = 0;
  int element_bytes = 4;
  int64_t tail_offset = 0;       // tail of a scaled tensor, copied along; else 0
  int64_t workspace_offset = 0;  // place of the turned copy, a multiple of 64
};

struct PlannedInstruction {
  const Instruction* instruction = nullptr;
  const KernelRow* kernel = nullptr;
  bool channels_last = false;
  std::vector<Turn> inputs;   // source -> workspace before the kernel runs
  std::vector<Turn> outputs;  // workspace -> target afterwards

  bool turns() const;
};

struct LayoutPlan {
  std::array<std::vector<PlannedInstruction>, kPartCount> parts;
  int64_t workspace_bytes = 0;
};

// `program` must outlive the result. `find` gives null for codes that there is no kernel for;
// Unimplemented names the first instruction of that kind.
absl::StatusOr<LayoutPlan> PlanLayout(const Program& program,
                                      absl::FunctionRef<const KernelRow*(OpCode)> find);

// Runs one turn.
void RunTurn(const Machine& machine, const Turn& turn, const std::byte* source, std::byte* target);

}  // namespace runnel::cpu
