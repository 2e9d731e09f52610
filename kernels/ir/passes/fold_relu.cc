#include "kernels/ir/passes/fold_relu.h"

#include <vector>

namespace runnel {
namespace {

// How many instructions of all parts read each buffer.
std::vector<int> CountReaders(const Program& program) {
  std::vector<int> readers(program.buffers.size());
  for (const auto& part : program.parts) {
    for (const Instruction& instruction : part) {
      for (BufferIndex input : instruction.inputs) ++readers[input];
    }
  }
  return readers;
}

// True if `relu` is what may be folded into `rescale`: it alone reads the result.
bool Folds(const Instruction& rescale, const Instruction& relu, const StageDraft& draft,
           const std::vector<int>& readers) {
  if (rescale.code != OpCode::kRescale || rescale.inputs.size() != 1 || rescale.integer.relu) {
    return false;
  }
  if (relu.code != OpCode::kInt8ReluForward && relu.code != OpCode::kInt8ReluInputGradient) {
    return false;
  }
  const BufferIndex between = rescale.outputs[0];
  return relu.inputs[0] == between && readers[between] == 1 && !draft.placed[between];
}

}  // namespace

void FoldRelu(StageDraft& draft) {
  const std::vector<int> readers = CountReaders(draft.program);
  for (std::vector<Instruction>& part : draft.program.parts) {
    std::vector<Instruction> folded;
    for (Instruction& instruction : part) {
      if (folded.empty() || !Folds(folded.back(), instruction, draft, readers)) {
        folded.push_back(std::move(instruction));
        continue;
      }
      Instruction& rescale = folded.back();
      rescale.outputs = instruction.outputs;
      if (instruction.code == OpCode::kInt8ReluForward) {
        rescale.integer.relu = true;
      } else {
        rescale.inputs.push_back(instruction.inputs[1]);
      }
    }
    part = std::move(folded);
  }
}

}  // namespace runnel
