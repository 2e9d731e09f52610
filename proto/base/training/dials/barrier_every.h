#pragma once

// The dial of the steps from one barrier to the next, where a rule decides them (--barrier-every
// auto). Only central looks at it: a stage trains up to the barrier that it is granted.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/training/training.h"
#include "proto/base/training/training_change.h"

namespace runnel {

inline constexpr absl::string_view kBarrierEveryDial = "barrier_every";
inline constexpr int64_t kDecidedBarrierEvery = 0;  // --barrier-every: a rule decides
inline constexpr int64_t kFirstBarrierEvery = 100;  // where a rule decides
inline constexpr int64_t kMostBarrierEvery = 100'000;

// A value of the dial. InvalidArgument: it is no number of steps from 1 to kMostBarrierEvery.
absl::StatusOr<int64_t> BarrierEveryOfValue(absl::string_view value);
absl::Status CheckBarrierEveryValue(absl::string_view value);

// The change that sets this interval behind the barrier at `step`.
TrainingChange ChangeOfBarrierEvery(int64_t step, int64_t every);

// The rule with the interval that holds behind the barrier at `step`.
BarrierRule BarrierRuleBehind(BarrierRule rule, const std::vector<TrainingChange>& changes,
                              int64_t step);
// With the one that led to `step`.
BarrierRule BarrierRuleUpTo(BarrierRule rule, const std::vector<TrainingChange>& changes,
                            int64_t step);

}  // namespace runnel
