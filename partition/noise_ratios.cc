#include "partition/noise_ratios.h"

#include <iterator>

namespace runnel {

double NoiseRatios::At(int layer, Direction direction) const {
  const std::map<int, double>& known = direction == Direction::kForward ? forward : backward;
  if (known.empty()) return all;
  const auto behind = known.lower_bound(layer);
  if (behind == known.end()) return known.rbegin()->second;
  if (behind == known.begin() || behind->first == layer) return behind->second;
  const auto before = std::prev(behind);
  const double way = static_cast<double>(layer - before->first) /
                     static_cast<double>(behind->first - before->first);
  return before->second + way * (behind->second - before->second);
}

}  // namespace runnel
