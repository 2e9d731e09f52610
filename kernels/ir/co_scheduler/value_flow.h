#pragma once

// Finds the instruction that writes each value that another one reads. Programs name memory, which
// values share over time; here each value is one thing. A pure function; any thread.

#include <array>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/ir/program.h"

namespace runnel {

// A value that one instruction writes into kOutput, kInputGradient, kStash or kScratch, or a value
// in kInput or kOutputGradient. All else is state, which outlives a part, or belongs to the host.
struct FlowValue {
  Buffer place;  // as named by its writer, or by the first reader of an input
  Part part = Part::kForward;
  int writer = -1;  // instruction of `part`; -1: the caller
  // Whether it is still there when its part is done.
  bool survives_part = false;
  struct Reader {
    Part part;
    int instruction;
  };
  std::vector<Reader> readers;
};

inline constexpr int kNoValue = -1;  // for operands that are no such value

struct ProgramFlow {
  struct Operands {
    std::vector<int> inputs;   // numbers of values, as Instruction::inputs
    std::vector<int> outputs;  // in the order of Instruction::outputs
  };
  std::vector<FlowValue> values;
  std::array<std::vector<Operands>, kPartCount> operands;  // by instruction

  const Operands& of(Part part, int instruction) const {
    return operands[static_cast<size_t>(part)][static_cast<size_t>(instruction)];
  }
};

// The storages whose contents FlowValues are.
bool HoldsValues(Storage storage);

// Internal: an instruction reads what no instruction wrote, or parts of several values.
absl::StatusOr<ProgramFlow> FollowValues(const Program& program);

}  // namespace runnel
