#pragma once

// Ranges of the shared memory that caches have to write back or forget.

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "kernels/backends/hexagon/op_list.h"

namespace runnel::hexagon {

// Disjoint and in order. Whole lines of 128 bytes, the longest that a cache here has.
class RangeSet {
 public:
  void Add(uint32_t offset, uint32_t bytes);
  // Joins neighbours, those with the smallest gaps first, until there are at most `most`.
  void JoinTo(size_t most);
  size_t size() const { return ends_.size(); }
  std::vector<DspRange> ranges() const;

 private:
  std::map<uint32_t, uint32_t> ends_;  // by begin
};

}  // namespace runnel::hexagon
