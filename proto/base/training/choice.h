#pragma once

// A choice among the rows of a table, with numbers: "sgd", "cosine:0.01", "adamw:0.9,0.999". What
// stands behind the colon are values of the row's parameters in their order; those that are left
// out have their defaults. Optimizers (optimizer.h) and rates (rates/rate.h) are chosen so.
//
// Plain data and pure functions; any thread.

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/base/setting_row.h"

namespace runnel {

// The elements before the first one without a name.
template <typename T, size_t N>
absl::Span<const T> Named(const std::array<T, N>& rows) {
  size_t count = 0;
  while (count < N && !rows[count].name.empty()) ++count;
  return absl::MakeConstSpan(rows).first(count);
}

struct ChoiceParameter {
  absl::string_view name;  // in capitals, as --help has it
  double fallback = 0;     // the value where none is given
  SettingRange range = {};
};

struct ChoiceRow {
  absl::string_view name;
  absl::string_view summary;  // for --help
  std::array<ChoiceParameter, 4> parameter_rows = {};

  absl::Span<const ChoiceParameter> parameters() const { return Named(parameter_rows); }
};

struct Choice {
  size_t row = 0;              // in the table
  std::vector<double> values;  // of all of the row's parameters
};

// `what` is what the table has, for messages: "optimizer". InvalidArgument names the text and lists
// the rows, or says which parameters its row has, or what the value of one must be.
absl::StatusOr<Choice> ParseChoice(absl::string_view what, absl::Span<const ChoiceRow> rows,
                                   absl::string_view text);

// "sgd (with momentum), adamw[:BETA1,BETA2] (...)": for --help.
std::string ChoiceHelp(absl::Span<const ChoiceRow> rows);

}  // namespace runnel
