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

void SplitBatches(const BatchSplitRule& rule, Rounding gradient_rounding, Program& program) {
  if (rule.samples == 0 || rule.samples >= program.batch) return;
  for (std::vector<Instruction>& part : program.parts) {
    for (Instruction& instruction : part) {
      if (!TraitsOf(instruction.code).is_integer_product()) continue;
      instruction.split.samples = rule.samples;
      if (rule.mode != BatchSplitMode::kShifted ||
          !TraitsOf(instruction.code).is_integer_weight_gradient())
        continue;
      instruction.split.shifted = true;
      instruction.integer.rounding = gradient_rounding;
    }
  }
}

}  // namespace runnel
