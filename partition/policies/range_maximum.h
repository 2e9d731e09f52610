#pragma once

// The largest of neighbouring numbers.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace runnel::policies {

class RangeMaximum {
 public:
  // Behind those that are there.
  void Add(int64_t number) {
    if (levels_.empty()) levels_.emplace_back();
    levels_[0].push_back(number);
    const size_t count = levels_[0].size();
    for (size_t level = 1, width = 2; width <= count; ++level, width *= 2) {
      if (levels_.size() == level) levels_.emplace_back();
      const std::vector<int64_t>& half = levels_[level - 1];
      levels_[level].push_back(std::max(half[count - width], half[count - width / 2]));
    }
  }
  // Of those from `first` to `last`, both included.
  int64_t Between(int first, int last) const {
    const auto count = static_cast<size_t>(last - first + 1);
    const auto level = static_cast<size_t>(std::bit_width(count)) - 1;
    const std::vector<int64_t>& numbers = levels_[level];
    return std::max(numbers[static_cast<size_t>(first)],
                    numbers[static_cast<size_t>(last) + 1 - (size_t{1} << level)]);
  }

 private:
  std::vector<std::vector<int64_t>> levels_;  // [k][i]: of 2^k from i on
};

}  // namespace runnel::policies
