#pragma once

// The choice of a gate: a float[n, columns]. Column 0 of row i: the option of sample i, an index into
// the pairs of OpSpec::options, or kNothingExplored. Column 1 of row j: the sample that lies in packed
// row j. Packed are the samples that do not skip, by option, those of one option in their order; the
// rest of column 1 is -1. Behind them
//   held gates            have nothing,
//   a choice that learns  the probability of each option,
//   an exploration        has the weight of the sample's gradient (Explored), then nothing.
// Pure functions; any thread.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "proto/base/training/precision/gate_options.h"

namespace runnel {

inline constexpr int64_t kHeldColumns = 2;
// Where probabilities begin, and where the weight of an exploration lies.
inline constexpr int64_t kOptionColumns = 2;
// Of a gate that learns.
inline int64_t ColumnsOf(const OpSpec& gate) { return kOptionColumns + OptionCount(gate); }

// Column 1 by column 0.
inline void OrderSamples(const OpSpec& gate, int64_t samples, int64_t columns, float* choice) {
  int64_t row = 0;
  for (int option = 0; option < OptionCount(gate); ++option) {
    if (Skips(gate, option)) continue;
    for (int64_t i = 0; i < samples; ++i) {
      if (static_cast<int>(choice[i * columns]) == option)
        choice[row++ * columns + 1] = static_cast<float>(i);
    }
  }
  for (; row < samples; ++row) choice[row * columns + 1] = -1;
}

// Rows of packed samples that have one option.
struct OptionRows {
  int option = 0;
  int64_t first = 0;
  int64_t count = 0;
};
// Of all options, skipping included, which have no rows.
inline std::vector<OptionRows> RowsByOption(const OpSpec& gate, int64_t samples, int64_t columns,
                                            const float* choice) {
  std::vector<OptionRows> rows(static_cast<size_t>(OptionCount(gate)));
  for (int64_t i = 0; i < samples; ++i) {
    if (choice[i * columns] >= 0) ++rows[static_cast<size_t>(choice[i * columns])].count;
  }
  int64_t first = 0;
  for (int option = 0; option < OptionCount(gate); ++option) {
    OptionRows& row = rows[static_cast<size_t>(option)];
    row.option = option;
    row.first = first;
    if (!Skips(gate, option)) first += row.count;
  }
  return rows;
}

// Softmax of a sample's logits, in double.
inline std::vector<double> Probabilities(const float* logits, int count) {
  std::vector<double> p(static_cast<size_t>(count));
  const double largest = *std::max_element(logits, logits + count);
  double sum = 0;
  for (int k = 0; k < count; ++k)
    sum += p[static_cast<size_t>(k)] = std::exp(static_cast<double>(logits[k]) - largest);
  for (double& one : p) one /= sum;
  return p;
}

// The option of the largest logit, of equal ones the first; a NaN is none.
inline int LargestLogit(const float* logits, int count) {
  int chosen = 0;
  for (int k = 1; k < count; ++k) {
    if (logits[k] > logits[chosen]) chosen = k;
  }
  return chosen;
}

}  // namespace runnel
