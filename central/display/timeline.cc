#include "central/display/timeline.h"

namespace runnel {

void Timeline::Add(int64_t batches, int64_t time_ns) {
  if (!points_.empty() &&
      (batches < points_.back().batches + least_batches_ || time_ns <= points_.back().time_ns)) {
    return;
  }
  points_.push_back({batches, time_ns});
  if (points_.size() <= kMaxPoints) return;
  size_t kept = 0;
  for (size_t i = 0; i < points_.size(); i += 2) points_[kept++] = points_[i];
  points_.resize(kept);
  least_batches_ *= 2;
}

std::vector<TimelinePoint> Timeline::Points() const {
  std::vector<TimelinePoint> points;
  for (const Point& point : points_) {
    points.push_back(
        {point.batches, static_cast<double>(point.time_ns - points_.front().time_ns) * 1e-9});
  }
  return points;
}

}  // namespace runnel
