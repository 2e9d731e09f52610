#pragma once

// What a run makes of a check-point that could not be written: it trains on, because the next
// barrier has another one, but not for ever. One thread.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "central/run/checkpoints/checkpoint_writer.h"

namespace runnel {

class CheckpointFailures {
 public:
  // Barriers in a row without a check-point; then the run ends.
  static constexpr int kMost = 5;

  // The run's last check-point is the one of this step: no barrier follows it.
  void ExpectLast(int64_t step) { last_step_ = step; }
  // Why the run ends; OK: it goes on. `warning`: a line for people, empty: there is nothing to say.
  absl::Status Add(const CheckpointEnd& end, std::string& warning);

 private:
  int64_t last_step_ = -1;
  int in_a_row_ = 0;
};

}  // namespace runnel
