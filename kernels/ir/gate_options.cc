#include "kernels/ir/gate_options.h"

#include "proto/base/training/precision/gate_options.h"

namespace runnel {

std::vector<const OpSpec*> GatesByChoice(const Program& program) {
  std::vector<const OpSpec*> gates(program.buffers.size());
  for (const std::vector<Instruction>& part : program.parts) {
    for (const Instruction& instruction : part) {
      const bool chooses = instruction.code == OpCode::kHoldSamples ||
                           instruction.code == OpCode::kAllSamples ||
                           instruction.code == OpCode::kChooseSamples;
      if (!chooses) continue;
      for (const BufferIndex choice : instruction.outputs)
        gates[static_cast<size_t>(choice)] = &instruction.attributes;
    }
  }
  return gates;
}

int LevelsOf(const OpSpec& gate) {
  int levels = 0;
  for (int option = 0; option < OptionCount(gate); ++option) levels += Skips(gate, option) ? 0 : 1;
  return levels;
}

bool RunsByOption(const Instruction& instruction) {
  const OpTraits& traits = TraitsOf(instruction.code);
  return instruction.gate != kNoGate &&
         (traits.is_product() || traits.numbers == Numbers::kGridFloats);
}

}  // namespace runnel
