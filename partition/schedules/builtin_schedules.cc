#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "partition/schedule.h"
#include "partition/schedules/zb_h1.h"

namespace runnel {
namespace {

std::vector<int64_t> Async1f1bCaps(int stages, int64_t) {
  std::vector<int64_t> caps;
  for (int i = 0; i < stages; ++i) caps.push_back(stages - i);
  return caps;
}

std::vector<int64_t> Sync1f1bCaps(int stages, int64_t micro_batches) {
  std::vector<int64_t> caps = Async1f1bCaps(stages, micro_batches);
  for (int64_t& cap : caps) cap = std::min(cap, micro_batches);
  return caps;
}

std::vector<int64_t> GpipeCaps(int stages, int64_t micro_batches) {
  return std::vector<int64_t>(stages, micro_batches);
}

}  // namespace

absl::Span<const ScheduleRow> BuiltinSchedules() {
  static constexpr ScheduleRow kRows[] = {
      {"async_1f1b", "one forward, one backward; steps without draining, on stashed weights", false,
       1, Async1f1bCaps},
      {"sync_1f1b", "one forward, one backward; one step a mini-batch, then drained", true, 4,
       Sync1f1bCaps},
      {"gpipe", "all forwards, then all backwards of a mini-batch; one step", true, 4, GpipeCaps},
      {"zb_h1", "sync_1f1b, but weight-gradients wait and fill its bubble", true, 4, Sync1f1bCaps,
       ZbH1Deferred},
  };
  return kRows;
}

absl::StatusOr<const ScheduleRow*> FindSchedule(absl::string_view name) {
  for (const ScheduleRow& row : BuiltinSchedules()) {
    if (row.name == name) return &row;
  }
  return absl::InvalidArgumentError(absl::StrCat("schedule '", name, "' is not known; there are ",
                                                 absl::StrJoin(ScheduleNames(), ", ")));
}

std::vector<std::string> ScheduleNames() {
  std::vector<std::string> names;
  for (const ScheduleRow& row : BuiltinSchedules()) names.emplace_back(row.name);
  return names;
}

}  // namespace runnel
