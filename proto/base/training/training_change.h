#pragma once

// What is decided about the arithmetic of a run while it trains. TrainingSettings say what is fixed
// beforehand; a change replaces a part of it from a step on. A measurement, a loss or a rule
// proposes it; it is journalled at a barrier, granted to all stages with the training behind that
// barrier, and so takes effect at the same micro-batch everywhere. A replay knows all changes from
// the start: only their steps decide.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/training/training.h"

namespace runnel {

// So far all that changes is the bits of integer recipes. Another kind of change is another member.
struct TrainingChange {
  int64_t from_step = 0;  // first optimizer step of which it holds; a barrier
  GradientBits gradient_bits;

  friend bool operator==(const TrainingChange&, const TrainingChange&) = default;
};

inline constexpr size_t kMaxTrainingChanges = 4096;

// InvalidArgument unless the steps ascend from 1 on, the bits are in their range, and the changes
// are not too many.
absl::Status CheckTrainingChanges(const std::vector<TrainingChange>& changes);

// Adds `change` unless it is there already or an older one than the last.
void AddTrainingChange(const TrainingChange& change, std::vector<TrainingChange>& changes);

// Drops the changes behind this step.
void DropChangesAfter(int64_t step, std::vector<TrainingChange>& changes);

// The bits of a step of an epoch: those of the last change that holds, else the settings'.
GradientBits GradientBitsAt(const TrainingSettings& settings,
                            const std::vector<TrainingChange>& changes, int64_t epoch,
                            int64_t step);

}  // namespace runnel
