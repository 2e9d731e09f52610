#pragma once

// The dial of gates that learn (--cost-target 1.5,2,2.5,3[@EPS,ALPHA,EVERY[,LATEST]], FracTrain): the
// level, an index into the list of targets. A value of the dial is that index; a rule turns it from
// level to level as it turns the precision (central/planning/rules). A target is a cost in %
// (GateCost): the loss of a micro-batch gets r * price * cost, where r = 1 if the cost of its samples
// is above the target, -1 if it is below.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/training/training.h"
#include "proto/base/training/training_change.h"

namespace runnel {

inline constexpr absl::string_view kCostTargetDial = "cost_target";
inline constexpr absl::string_view kNoCostTarget = "off";
inline constexpr size_t kMostCostTargets = 64;

struct CostTargetSetting {
  std::vector<double> percents;  // ascending; empty: off
  std::string rule_arguments;    // behind the @
};

// TrainingSettings::cost_target. InvalidArgument says what does not fit: a target that is no number
// above 0 and at most 100, targets that fall, too many.
absl::StatusOr<CostTargetSetting> ParseCostTarget(absl::string_view text);
absl::Status CheckCostTargetSetting(absl::string_view text);
inline bool HasCostTarget(const TrainingSettings& training) {
  return training.cost_target != kNoCostTarget;
}

// A value of the dial. InvalidArgument: it is no index from 0 to kMostCostTargets - 1.
absl::StatusOr<int64_t> CostLevelOfValue(absl::string_view value);
absl::Status CheckCostLevelValue(absl::string_view value);
// The change to this level from `step` on.
TrainingChange ChangeOfCostTarget(int64_t step, int64_t level);

// The level of a step, an index into percents; without a target 0.
int64_t CostLevelAt(const CostTargetSetting& setting, const std::vector<TrainingChange>& changes,
                    int64_t step);

// r. At the target itself 0.
inline int PriceSign(double cost_percent, double target_percent) {
  return cost_percent > target_percent ? 1 : cost_percent < target_percent ? -1 : 0;
}

// "2.5 %".
std::string CostTargetText(double percent);

}  // namespace runnel
