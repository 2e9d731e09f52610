#include "proto/base/training/training_change.h"

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel {

absl::Status CheckTrainingChanges(const std::vector<TrainingChange>& changes) {
  if (changes.size() > kMaxTrainingChanges) {
    return absl::InvalidArgumentError(
        absl::StrCat(changes.size(), " changes: at most ", kMaxTrainingChanges));
  }
  int64_t before = 0;
  for (const TrainingChange& change : changes) {
    if (change.from_step <= before) {
      return absl::InvalidArgumentError(
          absl::StrCat("step ", change.from_step, " follows step ", before));
    }
    before = change.from_step;
    RUNNEL_RETURN_IF_ERROR(CheckGradientBits({{0, change.gradient_bits}}));
  }
  return absl::OkStatus();
}

void AddTrainingChange(const TrainingChange& change, std::vector<TrainingChange>& changes) {
  if (changes.empty() || changes.back().from_step < change.from_step) changes.push_back(change);
}

void DropChangesAfter(int64_t step, std::vector<TrainingChange>& changes) {
  std::erase_if(changes, [step](const TrainingChange& one) { return one.from_step > step; });
}

GradientBits GradientBitsAt(const TrainingSettings& settings,
                            const std::vector<TrainingChange>& changes, int64_t epoch,
                            int64_t step) {
  GradientBits bits = GradientBitsOf(settings, epoch);
  for (const TrainingChange& change : changes) {
    if (change.from_step <= step) bits = change.gradient_bits;
  }
  return bits;
}

}  // namespace runnel
