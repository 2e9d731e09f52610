#pragma once

// Averages of the weights over the optimizer steps, of which a run has at most one. All lie behind
// the optimizer's slots (kAverageSlot), and so in check-points, replicas and moves; evaluations and
// exports take the average in place of the weights. A row says what the average keeps of itself at a
// step: average = share * average + (1 - share) * weights.
//
// Pure functions; any thread.

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/base/training/training.h"

namespace runnel {

// --swa START[@EVERY].
struct Swa {
  bool is_on = false;
  int64_t start = 0;  // optimizer steps before the first that counts
  int64_t every = 1;  // steps from one that counts to the next
};
// "off", "1000" or "1000@50". InvalidArgument says what does not fit.
absl::StatusOr<Swa> ParseSwa(absl::string_view text);

struct WeightAverage {
  absl::string_view flag;
  bool (*is_on)(const TrainingSettings& settings);
  // At the run's `step`-th step, from 0; 0: the average is the weights, 1: it stays.
  float (*share)(const TrainingSettings& settings, int64_t step);
  void (*turn_off)(TrainingSettings& settings);
};

absl::Span<const WeightAverage> WeightAverages();
// The one that is on; null: none.
const WeightAverage* AverageOf(const TrainingSettings& settings);
inline bool AveragesWeights(const TrainingSettings& settings) {
  return AverageOf(settings) != nullptr;
}
// For who has put the averages in place of the weights.
void DropAverage(TrainingSettings& settings);

}  // namespace runnel
