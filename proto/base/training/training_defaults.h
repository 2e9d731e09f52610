#pragma once

// Default training settings of a model. They belong to central's tables of models
// (partition/zoo/zoo.h), not to the model: workers do not need them, and changed defaults leave
// check-points and journals valid.

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

namespace runnel {

struct TrainingDefaults {
  int64_t batch_size = 64;
  int64_t epochs = 3;
  double learning_rate = 0.01;
  double momentum = 0.9;
  double weight_decay = 5e-4;
  // Epochs at whose start the rate is multiplied by milestone_factor, in a run of milestone_epochs
  // epochs (0: of any length). A run of another length has them at the same shares of it, but none
  // if it has less than a tenth of the epochs: its rate is not worn out before it ends.
  std::vector<int64_t> milestones;
  double milestone_factor = 0.1;
  int64_t milestone_epochs = 0;
  // The course of the rate (ParseRate) in runs that are too short for the milestones, which would
  // have the whole rate from the first step to the last.
  absl::string_view short_rate = "milestones";
  // Of float weights (ParseOptimizer), in every schedule: Nesterov's momentum where no gradient is
  // stale.
  absl::string_view optimizer = "nag_stale";

  bool IsShort(int64_t epochs) const { return 10 * epochs < milestone_epochs; }
  // The milestones of a run of `epochs` epochs, rounded down; those that fall together, or on the
  // run's start, are one or none.
  std::vector<int64_t> MilestonesOf(int64_t epochs) const {
    if (milestone_epochs == 0) return milestones;
    std::vector<int64_t> scaled;
    if (IsShort(epochs)) return scaled;
    for (const int64_t milestone : milestones) {
      const int64_t epoch = milestone * epochs / milestone_epochs;
      if (epoch > (scaled.empty() ? 0 : scaled.back())) scaled.push_back(epoch);
    }
    return scaled;
  }

  friend bool operator==(const TrainingDefaults&, const TrainingDefaults&) = default;
};

}  // namespace runnel
