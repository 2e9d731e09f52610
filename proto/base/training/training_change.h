#pragma once

// What is decided about the arithmetic of a run while it trains. TrainingSettings say what is fixed
// beforehand; a change turns a dial from a step on. A measurement, a loss or a rule
// proposes it; it is journalled at a barrier, granted to all stages with the training behind that
// barrier, and so takes effect at the same micro-batch everywhere. A replay knows all changes from
// the start: only their steps decide.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace runnel {

struct TrainingChange {
  int64_t from_step = 0;  // first optimizer step of which it holds; a barrier
  std::string dial;       // row of Dials() (proto/base/training/dials/dials.h)
  std::string value;      // as the row's check takes it

  friend bool operator==(const TrainingChange&, const TrainingChange&) = default;
};

inline constexpr size_t kMaxTrainingChanges = 4096;
inline constexpr size_t kMaxDialValueBytes = 256;

// InvalidArgument unless the steps are at least 1 and never descend, a dial's own ascend, dials and
// values are those of the table, and the changes are not too many.
absl::Status CheckTrainingChanges(const std::vector<TrainingChange>& changes);

// Adds `change` unless it is there already, or its dial has a later one.
void AddTrainingChange(const TrainingChange& change, std::vector<TrainingChange>& changes);

// Drops the changes behind this step.
void DropChangesAfter(int64_t step, std::vector<TrainingChange>& changes);

// The last change of the dial that holds at this step; null: none does.
const TrainingChange* ChangeAt(const std::vector<TrainingChange>& changes, absl::string_view dial,
                               int64_t step);
// Of any step.
const TrainingChange* LastChange(const std::vector<TrainingChange>& changes,
                                 absl::string_view dial);

// "gradient bits 2/1", for people. The change has been checked.
std::string ToString(const TrainingChange& change);

}  // namespace runnel
