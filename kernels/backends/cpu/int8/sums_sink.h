#pragma once

// Takes the sums of a product in place of memory, while they are in the nearest cache.

#include <cstdint>

namespace runnel::cpu {

// Some columns of some outputs. Valid during the call only.
struct SumsOfTile {
  const int32_t* const* sums = nullptr;  // by row: `columns` of them
  const int64_t* places = nullptr;       // by row: element of the result that the first one is
  int rows = 0;
  int64_t first_column = 0;  // first column within the group
  int64_t columns = 0;
};

class SumsSink {
 public:
  virtual ~SumsSink() = default;
  // Any thread, several at a time; each element of the result once.
  virtual void Take(const SumsOfTile& tile) = 0;
};

}  // namespace runnel::cpu
