#include "kernels/backends/hexagon/range_set.h"

#include <algorithm>

namespace runnel::hexagon {

void RangeSet::Add(uint32_t offset, uint32_t bytes) {
  constexpr uint32_t kLine = 128;
  if (bytes == 0) return;
  uint32_t begin = offset / kLine * kLine, end = (offset + bytes + kLine - 1) / kLine * kLine;
  auto next = ends_.upper_bound(begin);
  if (next != ends_.begin() && std::prev(next)->second >= begin) --next;
  while (next != ends_.end() && next->first <= end) {
    begin = std::min(begin, next->first);
    end = std::max(end, next->second);
    next = ends_.erase(next);
  }
  ends_[begin] = end;
}

void RangeSet::JoinTo(size_t most) {
  if (ends_.size() <= most) return;
  std::vector<uint32_t> gaps;
  for (auto at = ends_.begin(); std::next(at) != ends_.end(); ++at)
    gaps.push_back(std::next(at)->first - at->second);
  // Closes this many gaps, the smallest ones.
  size_t joins = ends_.size() - most;
  std::nth_element(gaps.begin(), gaps.begin() + static_cast<ptrdiff_t>(joins - 1), gaps.end());
  const uint32_t largest = gaps[joins - 1];
  for (auto at = ends_.begin(); joins > 0 && std::next(at) != ends_.end();) {
    const auto next = std::next(at);
    if (next->first - at->second > largest) {
      at = next;
      continue;
    }
    at->second = next->second;
    ends_.erase(next);
    --joins;
  }
}

std::vector<DspRange> RangeSet::ranges() const {
  std::vector<DspRange> ranges;
  for (const auto& [begin, end] : ends_) ranges.push_back({begin, end - begin});
  return ranges;
}

}  // namespace runnel::hexagon
