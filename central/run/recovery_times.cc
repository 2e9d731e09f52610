#include "central/run/recovery_times.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace runnel {

double RecoveryTimes::SecondsSinceLast(int64_t now_ns) {
  return static_cast<double>(now_ns - std::exchange(last_ns_, now_ns)) * 1e-9;
}

std::string RecoveryTimes::Reach(const RecoveryReached& reached, int64_t now_ns) {
  using Phase = RecoveryReached::Phase;
  if (reached.phase == Phase::kLost) {
    last_ns_ = now_ns;
    summaries_.emplace_back().detect_s = static_cast<double>(std::exchange(silence_ns_, 0)) * 1e-9;
  }
  if (summaries_.empty()) return "";
  RecoverySummary& summary = summaries_.back();
  summary.step = reached.step;
  summary.workers = reached.workers;
  summary.source = reached.from_replicas ? "workers" : "central";
  switch (reached.phase) {
    case Phase::kLost:
      return "";
    case Phase::kPlanned:
      // A further loss before the plan held: all of that was planning.
      summary.plan_s = summary.plan_s.value_or(0) + SecondsSinceLast(now_ns);
      return "";
    case Phase::kPrepared:
      summary.fetch_s = SecondsSinceLast(now_ns);
      return "";
    case Phase::kFirstGradient:
      summary.first_gradient_s = SecondsSinceLast(now_ns);
      return absl::StrFormat(
          "without %s the run goes on from step %d after %.2f s",
          absl::StrJoin(summary.workers, ", "), summary.step,
          summary.plan_s.value_or(0) + summary.fetch_s.value_or(0) + *summary.first_gradient_s);
    case Phase::kCaughtUp:
      summary.caught_up_s = SecondsSinceLast(now_ns);
      return absl::StrFormat("what was lost is trained again, %.2f s later", *summary.caught_up_s);
  }
  return "";
}

}  // namespace runnel
