#include "proto/base/rhythm.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

namespace runnel {
namespace {

int64_t MedianOf(std::vector<int64_t> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void Rhythm::Add(int64_t now_ns) {
  const int64_t before_ns = std::exchange(last_ns_, now_ns);
  if (before_ns < 0) return;
  intervals_.push_back(std::max<int64_t>(now_ns - before_ns, 0));
  if (intervals_.size() > kWindow) intervals_.pop_front();
}

int64_t Rhythm::median_ns() const { return MedianOf({intervals_.begin(), intervals_.end()}); }

int64_t Rhythm::limit_ns() const {
  const int64_t median = median_ns();
  std::vector<int64_t> deviations;
  for (const int64_t interval : intervals_) deviations.push_back(std::abs(interval - median));
  return median + kDeviations * MedianOf(std::move(deviations));
}

}  // namespace runnel
