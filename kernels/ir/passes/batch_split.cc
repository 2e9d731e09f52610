#include "kernels/ir/passes/batch_split.h"

#include <vector>

namespace runnel {

int64_t FastestSlice(int64_t batch, absl::Span<const BatchSeconds> profile) {
  int64_t best = batch;
  double least = -1;
  for (const BatchSeconds& one : profile) {
    if (one.samples < 1 || one.samples > batch || batch % one.samples != 0) continue;
    const double seconds = static_cast<double>(batch / one.samples) * one.seconds;
    const bool is_better = least < 0 || seconds < least || (seconds == least && one.samples > best);
    if (!is_better) continue;
    best = one.samples;
    least = seconds;
  }
  return best;
}

bool IsWeightGradient(OpCode code) {
  return code == OpCode::kInt8ConvWeightGradient || code == OpCode::kInt8LinearWeightGradient;
}

bool TakesSlices(OpCode code) {
  switch (code) {
    case OpCode::kInt8ConvForward:
    case OpCode::kInt8LinearForward:
    case OpCode::kInt8ConvInputGradient:
    case OpCode::kInt8LinearInputGradient:
    case OpCode::kInt8ConvForwardRescaled:
    case OpCode::kInt8LinearForwardRescaled:
    case OpCode::kInt8ConvInputGradientRescaled:
    case OpCode::kInt8LinearInputGradientRescaled:
      return true;
    default:
      return IsWeightGradient(code);
  }
}

void SplitBatches(const BatchSplitRule& rule, Rounding gradient_rounding, Program& program) {
  if (rule.samples == 0 || rule.samples >= program.batch) return;
  for (std::vector<Instruction>& part : program.parts) {
    for (Instruction& instruction : part) {
      if (!TakesSlices(instruction.code)) continue;
      instruction.split.samples = rule.samples;
      if (rule.mode != BatchSplitMode::kShifted || !IsWeightGradient(instruction.code)) continue;
      instruction.split.shifted = true;
      instruction.integer.rounding = gradient_rounding;
    }
  }
}

}  // namespace runnel
