#include <algorithm>

#include "absl/strings/str_cat.h"
#include "partition/schedule.h"

namespace runnel {

std::vector<ScheduledAction> StageActions(int64_t cap, int64_t micro_batches, int64_t drain_every,
                                          int64_t step_every) {
  std::vector<ScheduledAction> actions;
  std::vector<int64_t> stashed;  // by sequence: the version of its forward
  int64_t backwards = 0;
  int64_t boundary = 0;
  while (boundary < micro_batches) {
    boundary = drain_every < 1 ? micro_batches : std::min(boundary + drain_every, micro_batches);
    while (true) {
      const int64_t forwards = static_cast<int64_t>(stashed.size());
      const Action action = NextAction(cap, boundary, forwards, backwards);
      if (action == Action::kDrained) break;
      if (action == Action::kForward) {
        stashed.push_back(backwards / step_every);
        actions.push_back({action, forwards, stashed.back()});
      } else {
        actions.push_back({action, backwards, stashed[backwards]});
        ++backwards;
      }
    }
  }
  return actions;
}

std::string PrintSchedule(absl::Span<const int64_t> caps, int64_t micro_batches,
                          int64_t drain_every, int64_t step_every) {
  std::string text;
  for (size_t stage = 0; stage < caps.size(); ++stage) {
    absl::StrAppend(&text, "stage ", stage, ":");
    for (const ScheduledAction& action :
         StageActions(caps[stage], micro_batches, drain_every, step_every)) {
      if (action.action == Action::kForward) {
        absl::StrAppend(&text, " F", action.sequence);
      } else {
        absl::StrAppend(&text, " B", action.sequence, "/", action.version);
      }
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace runnel
