#include <algorithm>

#include "absl/strings/str_cat.h"
#include "partition/schedule.h"

namespace runnel {

std::vector<StageOrder> StageOrders(DeferredFn deferred, absl::Span<const int64_t> caps) {
  std::vector<int64_t> by_stage(caps.size(), 0);
  if (deferred != nullptr) by_stage = deferred(caps);
  std::vector<StageOrder> orders;
  for (size_t i = 0; i < caps.size(); ++i) orders.push_back({caps[i], by_stage[i]});
  return orders;
}

std::vector<ScheduledAction> StageActions(const StageOrder& order, int64_t micro_batches,
                                          int64_t drain_every, int64_t step_every) {
  std::vector<ScheduledAction> actions;
  std::vector<int64_t> stashed;  // by sequence: the version of its forward
  StageProgress done;
  int64_t boundary = 0;
  while (boundary < micro_batches) {
    boundary = drain_every < 1 ? micro_batches : std::min(boundary + drain_every, micro_batches);
    Action action;
    while ((action = NextAction(order, boundary, done)) != Action::kDrained) {
      int64_t& count = action == Action::kForward         ? done.forwards
                       : action == Action::kInputGradient ? done.input_gradients
                                                          : done.weight_gradients;
      if (action == Action::kForward) stashed.push_back(done.weight_gradients / step_every);
      actions.push_back({action, count, stashed[count]});
      ++count;
    }
  }
  return actions;
}

std::string PrintSchedule(absl::Span<const StageOrder> stages, int64_t micro_batches,
                          int64_t drain_every, int64_t step_every, size_t forward_only) {
  std::string text;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    absl::StrAppend(&text, "stage ", stage, ":");
    const std::vector<ScheduledAction> actions =
        StageActions(stages[stage], micro_batches, drain_every, step_every);
    for (size_t i = 0; i < actions.size(); ++i) {
      const auto& [action, sequence, version] = actions[i];
      if (action == Action::kForward) {
        absl::StrAppend(&text, " F", sequence);
        continue;
      }
      if (stage < forward_only) continue;
      const bool whole = action == Action::kInputGradient && i + 1 < actions.size() &&
                         actions[i + 1].action == Action::kWeightGradient &&
                         actions[i + 1].sequence == sequence;
      const char* name = whole ? " B" : action == Action::kInputGradient ? " I" : " W";
      absl::StrAppend(&text, name, sequence, "/", version);
      if (whole) ++i;
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace runnel
