#pragma once

// When the mini-batches of a run were done: as many points as a report needs, however long the run.

#include <cstdint>
#include <vector>

#include "central/records/summary.h"

namespace runnel {

class Timeline {
 public:
  // Beyond this many points every second one is dropped.
  static constexpr size_t kMaxPoints = 2000;

  // `batches` were done at `time_ns`; both ascend, what does not is left out.
  void Add(int64_t batches, int64_t time_ns);
  // Seconds count from the first point.
  std::vector<TimelinePoint> Points() const;

 private:
  struct Point {
    int64_t batches = 0;
    int64_t time_ns = 0;
  };
  std::vector<Point> points_;
  int64_t least_batches_ = 1;  // between two points
};

}  // namespace runnel
