#include "kernels/ir/passes/mark_winograd.h"

#include <algorithm>

namespace runnel {
namespace {

// Fewer channels, and the transforms cost more than they save; fewer positions, and reading the
// larger weights does.
constexpr int64_t kLeastChannels = 32;
constexpr int64_t kLeastPositions = 100;

bool IsMarked(const Program& program, const Instruction& instruction) {
  if (instruction.code != OpCode::kConvForward) return false;
  const OpSpec& op = instruction.attributes;
  const Buffer& weight = program.buffers[instruction.inputs[1]];
  const Shape& y = program.buffers[instruction.outputs[0]].shape;
  const auto all = [](const auto& values, int64_t wanted) {
    return std::all_of(values.begin(), values.end(), [=](int64_t v) { return v == wanted; });
  };
  if (weight.storage != Storage::kParameters && weight.storage != Storage::kStatistics)
    return false;
  return y.rank() == 4 && op.groups == 1 && all(op.kernel, 3) && all(op.stride, 1) &&
         all(op.dilation, 1) && std::min(weight.shape[0], weight.shape[1]) >= kLeastChannels &&
         y[2] * y[3] >= kLeastPositions;
}

}  // namespace

void MarkWinograd(const ModelSpec& model, const Recipe& recipe, StageDraft& draft) {
  const NumberFormat& numbers = recipe.numbers;
  if (numbers.activation != DType::kFloat32 || recipe.family->grids.any() ||
      !numbers.operator_state.empty())
    return;
  const int front = model.frozen_front();
  for (Instruction& instruction : draft.program.parts[static_cast<int>(Part::kForwardEval)])
    instruction.winograd = instruction.layer >= front && IsMarked(draft.program, instruction);
}

}  // namespace runnel
