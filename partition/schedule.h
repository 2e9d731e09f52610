#pragma once

// Schedules as data: in-flight caps, deferred weight-gradients and where the pipeline drains. The
// order of every stage's actions follows from them by NextAction
// (proto/base/plan/next_action.h).

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/base/plan/next_action.h"

namespace runnel {

// Weight-gradients that each stage may defer (StageOrder), from the caps of all stages.
using DeferredFn = std::vector<int64_t> (*)(absl::Span<const int64_t> caps);

struct ScheduleRow {
  absl::string_view name;
  absl::string_view summary;
  bool drains_each_step;          // one optimizer step per drained mini-batch
  int64_t default_micro_batches;  // M where the user says nothing: async 1, sync 4
  // Caps c_0 >= c_1 >= ... of `stages` stages for M micro-batches a step.
  std::vector<int64_t> (*caps)(int stages, int64_t micro_batches);
  // Deferred weight-gradients by the final caps, which a policy or the user may have raised. Must
  // not fall when the first cap grows. Null: no stage defers any.
  DeferredFn deferred = nullptr;
};

// The table, schedules/builtin_schedules.cc: async_1f1b (caps N - i), sync_1f1b (min(N - i, M)),
// gpipe (M).
absl::Span<const ScheduleRow> BuiltinSchedules();
// InvalidArgument lists what there is.
absl::StatusOr<const ScheduleRow*> FindSchedule(absl::string_view name);
std::vector<std::string> ScheduleNames();

// Orders by stage; `deferred` may be null.
std::vector<StageOrder> StageOrders(DeferredFn deferred, absl::Span<const int64_t> caps);

// One stage's actions, in order, for `micro_batches` micro-batches that drain every `drain_every`
// and at the end (drain_every below 1: at the end only).
struct ScheduledAction {
  Action action = Action::kForward;
  int64_t sequence = 0;
  // Optimizer steps that the weights of this action have seen, if every step has `step_every`
  // micro-batches. Both gradients use the version of their forward.
  int64_t version = 0;

  friend bool operator==(const ScheduledAction&, const ScheduledAction&) = default;
};
std::vector<ScheduledAction> StageActions(const StageOrder& order, int64_t micro_batches,
                                          int64_t drain_every, int64_t step_every);

// A picture for people: one line a stage, "stage 0: F0 F1 F2 B0/0 F3 ...", with the version of the
// weights that a backward uses behind the slash. B: input-gradient and weight-gradient, one right
// behind the other; where they are apart "I0/0 ... W0/0". The first `forward_only` stages have no
// backward.
std::string PrintSchedule(absl::Span<const StageOrder> stages, int64_t micro_batches,
                          int64_t drain_every, int64_t step_every, size_t forward_only = 0);

}  // namespace runnel
