#include "kernels/ir/passes/scatter_into_sums.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <vector>

namespace runnel {
namespace {

bool IsSum(OpCode code) { return code == OpCode::kAddForward || code == OpCode::kAccumulate; }

// How often each value is read in the whole program.
std::vector<int> ReadersByValue(const Program& program) {
  std::vector<int> readers(program.buffers.size());
  for (const std::vector<Instruction>& part : program.parts) {
    for (const Instruction& instruction : part) {
      for (BufferIndex input : instruction.inputs) ++readers[static_cast<size_t>(input)];
    }
  }
  return readers;
}

}  // namespace

void ScatterIntoSums(StageDraft& draft) {
  Program& program = draft.program;
  const std::vector<int> readers = ReadersByValue(program);
  for (std::vector<Instruction>& part : program.parts) {
    std::map<BufferIndex, size_t> scattered;  // by result that is read once: the instruction
    std::vector<bool> is_gone(part.size());
    for (size_t i = 0; i < part.size(); ++i) {
      Instruction& instruction = part[i];
      if (instruction.code == OpCode::kScatterSamples &&
          instruction.inputs.size() == kScatterBase) {
        const BufferIndex result = instruction.outputs[0];
        if (readers[static_cast<size_t>(result)] == 1) scattered[result] = i;
        continue;
      }
      if (!IsSum(instruction.code) || instruction.inputs[0] == instruction.inputs[1]) continue;
      for (size_t k = 0; k < 2; ++k) {
        const auto from = scattered.find(instruction.inputs[k]);
        if (from == scattered.end()) continue;
        const BufferIndex base = instruction.inputs[1 - k], sum = instruction.outputs[0];
        is_gone[from->second] = true;
        instruction = part[from->second];
        instruction.inputs.push_back(base);
        instruction.outputs = {sum};
        break;
      }
    }
    size_t kept = 0;
    for (size_t i = 0; i < part.size(); ++i) {
      if (!is_gone[i]) {
        if (kept != i) part[kept] = std::move(part[i]);
        ++kept;
      }
    }
    part.resize(kept);
  }
}

}  // namespace runnel
