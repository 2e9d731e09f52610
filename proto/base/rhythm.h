#pragma once

// Learns the intervals of an event, and when its absence is strange. A state machine: no clock.

#include <cstddef>
#include <cstdint>
#include <deque>

namespace runnel {

class Rhythm {
 public:
  // Intervals that count.
  static constexpr size_t kWindow = 32;
  // Fewer intervals than this tell nothing yet.
  static constexpr size_t kLeastIntervals = 4;
  // Intervals of a normal distribution are beyond median + 8 MAD once in 10^7; those of a busy
  // machine once in thousands.
  static constexpr int64_t kDeviations = 8;

  // The event came at `now_ns`. The first time there is no interval.
  void Add(int64_t now_ns);
  // The time that passed while it could not come is no interval: the next one begins at `now_ns`.
  void Restart(int64_t now_ns) { last_ns_ = now_ns; }

  bool is_known() const { return intervals_.size() >= kLeastIntervals; }
  // 0: there is no interval yet.
  int64_t median_ns() const;
  // median + kDeviations * MAD (median absolute deviation).
  int64_t limit_ns() const;

 private:
  int64_t last_ns_ = -1;
  std::deque<int64_t> intervals_;
};

}  // namespace runnel
