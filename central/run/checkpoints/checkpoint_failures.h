#pragma once

// Counts check-points that could not be written: the run trains on, because the next barrier has
// another one, but not for ever. One thread.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "central/run/checkpoints/checkpoint_writer.h"

namespace runnel {

class CheckpointFailures {
 public:
  // For so long, and at so many barriers at least, a run goes on without a check-point: barriers may
  // be tenths of a second apart, or half an hour.
  static constexpr int64_t kPatienceNs = 600'000'000'000;
  static constexpr int kLeast = 5;

  // Not another one the next time: it is too large, or another central has the run.
  static bool IsLasting(const absl::Status& status) {
    return absl::IsInvalidArgument(status) || absl::IsAborted(status);
  }
  // The run's last check-point is the one of this step: no barrier follows it.
  void ExpectLast(int64_t step) { last_step_ = step; }
  // Why the run ends; OK: it goes on. `warning`: a line for people, empty: there is nothing to say.
  absl::Status Add(const CheckpointEnd& end, int64_t now_ns, std::string& warning);

 private:
  int64_t last_step_ = -1;
  int in_a_row_ = 0;
  int64_t since_ns_ = 0;  // of the first of them
  bool leaves_out_ = false;
};

}  // namespace runnel
