#include "proto/base/training/optimizer.h"

#include "proto/base/status_macros.h"

namespace runnel {
namespace {

#define RUNNEL_OPTIMIZER(Id, ...) Optimizer{__VA_ARGS__},
constexpr Optimizer kOptimizers[] = {
#include "proto/base/training/optimizers.inc"
};
#undef RUNNEL_OPTIMIZER

std::vector<ChoiceRow> Choices() {
  std::vector<ChoiceRow> rows;
  for (const Optimizer& optimizer : kOptimizers) rows.push_back(optimizer.choice);
  return rows;
}

}  // namespace

absl::Span<const absl::string_view> Optimizer::slots() const {
  size_t count = 0;
  while (count < kMostSlots && !slot_names[count].empty()) ++count;
  return absl::MakeConstSpan(slot_names).first(count);
}

absl::Span<const Optimizer> Optimizers() { return kOptimizers; }

absl::StatusOr<OptimizerChoice> ParseOptimizer(absl::string_view text) {
  RUNNEL_ASSIGN_OR_RETURN(Choice choice, ParseChoice("optimizer", Choices(), text));
  return OptimizerChoice{&kOptimizers[choice.row], std::move(choice.values)};
}

std::string OptimizerHelp() { return ChoiceHelp(Choices()); }

}  // namespace runnel
