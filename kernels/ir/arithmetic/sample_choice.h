#pragma once

// The choice of a gate: a float[n, kChoiceColumns] of whole numbers. Column 0 of row i: the option of
// sample i, an index into the pairs of OpSpec::options. Column 1 of row j: the sample that lies in
// packed row j. Packed are the samples that do not skip, by option, those of one option in their
// order; the rest of column 1 is -1. Pure functions; any thread.

#include <cstdint>
#include <vector>

#include "proto/base/training/gate_options.h"

namespace runnel {

inline constexpr int64_t kChoiceColumns = 2;

// Column 1 by column 0.
inline void OrderSamples(const OpSpec& gate, int64_t samples, float* choice) {
  int64_t row = 0;
  for (int option = 0; option < OptionCount(gate); ++option) {
    if (Skips(gate, option)) continue;
    for (int64_t i = 0; i < samples; ++i) {
      if (static_cast<int>(choice[i * kChoiceColumns]) == option)
        choice[row++ * kChoiceColumns + 1] = static_cast<float>(i);
    }
  }
  for (; row < samples; ++row) choice[row * kChoiceColumns + 1] = -1;
}

// Rows of packed samples that have one option.
struct OptionRows {
  int option = 0;
  int64_t first = 0;
  int64_t count = 0;
};
// Of all options, skipping included, which have no rows.
inline std::vector<OptionRows> RowsByOption(const OpSpec& gate, int64_t samples,
                                            const float* choice) {
  std::vector<OptionRows> rows(static_cast<size_t>(OptionCount(gate)));
  for (int64_t i = 0; i < samples; ++i)
    ++rows[static_cast<size_t>(choice[i * kChoiceColumns])].count;
  int64_t first = 0;
  for (int option = 0; option < OptionCount(gate); ++option) {
    OptionRows& row = rows[static_cast<size_t>(option)];
    row.option = option;
    row.first = first;
    if (!Skips(gate, option)) first += row.count;
  }
  return rows;
}

}  // namespace runnel
