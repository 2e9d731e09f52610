#include "kernels/ir/passes/keep_by_option.h"

#include <set>
#include <vector>

#include "kernels/ir/gate_options.h"

namespace runnel {
namespace {

// What instructions [begin, end) read and write lives as long as all of them.
void KeepGroup(const std::vector<bool>& placed, size_t begin, size_t end,
               std::vector<Instruction>& part) {
  std::set<BufferIndex> values;
  for (size_t i = begin; i < end; ++i) {
    for (const auto* operands : {&part[i].inputs, &part[i].outputs})
      for (const BufferIndex value : *operands)
        if (!placed[static_cast<size_t>(value)]) values.insert(value);
  }
  for (Instruction* at : {&part[begin], &part[end - 1]})
    at->keeps.insert(at->keeps.end(), values.begin(), values.end());
}

}  // namespace

void KeepByOption(StageDraft& draft) {
  const std::vector<const OpSpec*> gates = GatesByChoice(draft.program);
  for (std::vector<Instruction>& part : draft.program.parts) {
    size_t begin = 0;
    while (begin < part.size()) {
      size_t end = begin + 1;
      const BufferIndex gate = part[begin].gate;
      if (RunsByOption(part[begin])) {
        while (end < part.size() && part[end].gate == gate && RunsByOption(part[end])) ++end;
        if (LevelsOf(*gates[static_cast<size_t>(gate)]) > 1)
          KeepGroup(draft.placed, begin, end, part);
      }
      begin = end;
    }
  }
}

}  // namespace runnel
