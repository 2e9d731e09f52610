#pragma once

// How an evaluation's labels and the classes that the model gave them go together.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace runnel {

// Of more classes there is no matrix.
inline constexpr int64_t kMostConfusedClasses = 128;

struct ClassCounts {
  int64_t labels = 0;      // that were counted; 0: nobody counted
  int64_t among_five = 0;  // labels among the five largest outputs
  // By label, then by the class of the largest output: classes * classes counts. Empty where there
  // are more classes than kMostConfusedClasses.
  std::vector<int64_t> confusion = {};

  // Counts of other labels of the same model.
  void Add(const ClassCounts& other) {
    labels += other.labels;
    among_five += other.among_five;
    if (confusion.empty()) confusion.resize(other.confusion.size());
    for (size_t i = 0; i < other.confusion.size() && i < confusion.size(); ++i)
      confusion[i] += other.confusion[i];
  }

  friend bool operator==(const ClassCounts&, const ClassCounts&) = default;
};

}  // namespace runnel
