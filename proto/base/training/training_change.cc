#include "proto/base/training/training_change.h"

#include <algorithm>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/dials/dials.h"

namespace runnel {
namespace {

absl::Status CheckChange(const TrainingChange& change) {
  RUNNEL_ASSIGN_OR_RETURN(const Dial* dial, FindDial(change.dial));
  if (change.value.size() > kMaxDialValueBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        dial->label, ": a value of ", change.value.size(), " bytes, at most ", kMaxDialValueBytes));
  }
  const absl::Status status = dial->check(change.value);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(dial->label, ": ", status.message()));
}

}  // namespace

absl::Status CheckTrainingChanges(const std::vector<TrainingChange>& changes) {
  if (changes.size() > kMaxTrainingChanges) {
    return absl::InvalidArgumentError(
        absl::StrCat(changes.size(), " changes: at most ", kMaxTrainingChanges));
  }
  int64_t before = 0;
  std::set<absl::string_view> dials;  // that change at step `before`
  for (const TrainingChange& change : changes) {
    if (change.from_step > before) dials.clear();
    if (change.from_step < std::max<int64_t>(before, 1) || !dials.insert(change.dial).second) {
      return absl::InvalidArgumentError(absl::StrCat("dial ", change.dial, ": step ",
                                                     change.from_step, " follows step ", before));
    }
    before = change.from_step;
    RUNNEL_RETURN_IF_ERROR(CheckChange(change));
  }
  return absl::OkStatus();
}

void AddTrainingChange(const TrainingChange& change, std::vector<TrainingChange>& changes) {
  const TrainingChange* last = LastChange(changes, change.dial);
  if (last == nullptr || last->from_step < change.from_step) changes.push_back(change);
}

void DropChangesAfter(int64_t step, std::vector<TrainingChange>& changes) {
  std::erase_if(changes, [step](const TrainingChange& one) { return one.from_step > step; });
}

const TrainingChange* ChangeAt(const std::vector<TrainingChange>& changes, absl::string_view dial,
                               int64_t step) {
  const TrainingChange* found = nullptr;
  for (const TrainingChange& change : changes) {
    if (change.from_step <= step && change.dial == dial) found = &change;
  }
  return found;
}

const TrainingChange* LastChange(const std::vector<TrainingChange>& changes,
                                 absl::string_view dial) {
  return ChangeAt(changes, dial, std::numeric_limits<int64_t>::max());
}

std::string ToString(const TrainingChange& change) {
  const absl::StatusOr<const Dial*> dial = FindDial(change.dial);
  return absl::StrCat(dial.ok() ? (*dial)->label : change.dial, " ", change.value);
}

}  // namespace runnel
