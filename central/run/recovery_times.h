#pragma once

// Durations of recoveries, phase by phase. One thread.

#include <cstdint>
#include <string>
#include <vector>

#include "central/records/summary.h"
#include "central/run/machines/run_effects.h"

namespace runnel {

class RecoveryTimes {
 public:
  // A worker is gone that was last heard of so long ago.
  void Lose(int64_t silence_ns) { silence_ns_ = silence_ns; }
  // Gives a line for people; empty: nothing to say yet.
  std::string Reach(const RecoveryReached& reached, int64_t now_ns);

  const std::vector<RecoverySummary>& summaries() const { return summaries_; }

 private:
  double SecondsSinceLast(int64_t now_ns);

  std::vector<RecoverySummary> summaries_;
  int64_t silence_ns_ = 0;  // silence of the worker that was lost last
  int64_t last_ns_ = 0;     // when the last phase was reached
};

}  // namespace runnel
