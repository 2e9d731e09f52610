#include "proto/base/training/dials/barrier_every.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace runnel {

absl::StatusOr<int64_t> BarrierEveryOfValue(absl::string_view value) {
  int64_t every = 0;
  if (absl::SimpleAtoi(value, &every) && every >= 1 && every <= kMostBarrierEvery) return every;
  return absl::InvalidArgumentError(
      absl::StrCat("'", value, "' is no number of steps from 1 to ", kMostBarrierEvery));
}

absl::Status CheckBarrierEveryValue(absl::string_view value) {
  return BarrierEveryOfValue(value).status();
}

TrainingChange ChangeOfBarrierEvery(int64_t step, int64_t every) {
  return {step, std::string(kBarrierEveryDial), absl::StrCat(every)};
}

BarrierRule BarrierRuleBehind(BarrierRule rule, const std::vector<TrainingChange>& changes,
                              int64_t step) {
  // Changes were checked when they were made.
  if (const TrainingChange* change = ChangeAt(changes, kBarrierEveryDial, step))
    rule.every = BarrierEveryOfValue(change->value).value();
  return rule;
}

BarrierRule BarrierRuleUpTo(BarrierRule rule, const std::vector<TrainingChange>& changes,
                            int64_t step) {
  return BarrierRuleBehind(rule, changes, step - 1);
}

}  // namespace runnel
