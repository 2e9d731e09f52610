#pragma once

// The table of optimizers, as everybody may know them: names, parameters, and the state that they
// keep. What a step computes stands in kernels/ir/optimizers, one file an optimizer.
//
// Plain data and pure functions; any thread.

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/base/training/choice.h"

namespace runnel {

// Largest number of state tensors beside a parameter, with its average.
inline constexpr size_t kMostSlots = 3;

struct Optimizer {
  ChoiceRow choice;
  // Each is a tensor like the parameter, zero at first.
  std::array<absl::string_view, kMostSlots> slot_names = {};
  bool uses_momentum = false;  // looks at --momentum
  // Defaults of --lr and --weight-decay with this optimizer; none: the model's.
  std::optional<double> learning_rate = {};
  std::optional<double> weight_decay = {};

  absl::Span<const absl::string_view> slots() const;
  // And behind them kAverageSlot.
  absl::Span<const absl::string_view> slots_with_average() const;
};

// optimizers.inc; sgd first.
absl::Span<const Optimizer> Optimizers();

struct OptimizerChoice {
  const Optimizer* optimizer = nullptr;
  std::vector<double> parameters;  // values for ChoiceRow::parameters
};
// "sgd", "adamw:0.9,0.999,1e-8". Errors as ParseChoice's.
absl::StatusOr<OptimizerChoice> ParseOptimizer(absl::string_view text);

std::string OptimizerHelp();

}  // namespace runnel
