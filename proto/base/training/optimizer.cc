#include "proto/base/training/optimizer.h"

#include <algorithm>
#include <iterator>

#include "proto/base/model/model_state.h"
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

absl::Span<const absl::string_view> Optimizer::slots_with_average() const {
  constexpr size_t kRows = std::size(kOptimizers);
  static const auto tables = [] {
    std::array<std::array<absl::string_view, kMostSlots>, kRows> made = {};
    for (size_t row = 0; row < kRows; ++row) {
      const absl::Span<const absl::string_view> own = kOptimizers[row].slots();
      std::copy(own.begin(), own.end(), made[row].begin());
      made[row][own.size()] = kAverageSlot;
    }
    return made;
  }();
  const auto row = static_cast<size_t>(this - std::data(kOptimizers));
  return absl::MakeConstSpan(tables[row]).first(slots().size() + 1);
}

absl::Span<const Optimizer> Optimizers() { return kOptimizers; }

absl::StatusOr<OptimizerChoice> ParseOptimizer(absl::string_view text) {
  RUNNEL_ASSIGN_OR_RETURN(Choice choice, ParseChoice("optimizer", Choices(), text));
  return OptimizerChoice{&kOptimizers[choice.row], std::move(choice.values)};
}

std::string OptimizerHelp() { return ChoiceHelp(Choices()); }

}  // namespace runnel
