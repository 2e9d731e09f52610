#include "proto/base/training/dials/cost_target.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"

namespace runnel {

absl::StatusOr<CostTargetSetting> ParseCostTarget(absl::string_view text) {
  CostTargetSetting setting;
  if (text == kNoCostTarget) return setting;
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('@', 1));
  if (parts.second.empty() && absl::StrContains(text, '@'))
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' has nothing behind its @"));
  for (absl::string_view one : absl::StrSplit(parts.first, ',')) {
    double percent = 0;
    if (!absl::SimpleAtod(one, &percent) || !(percent > 0 && percent <= 100)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", one, "' is no percentage above 0 and up to 100; give off or TARGET,...",
                       "[@EPS,ALPHA,EVERY[,LATEST]], such as 1.5,2,2.5,3"));
    }
    if (!setting.percents.empty() && percent <= setting.percents.back()) {
      return absl::InvalidArgumentError(absl::StrCat("targets do not rise from ",
                                                     setting.percents.back(), " to ", percent,
                                                     ": list them from the cheapest on"));
    }
    setting.percents.push_back(percent);
  }
  if (setting.percents.size() > kMostCostTargets) {
    return absl::InvalidArgumentError(
        absl::StrCat(setting.percents.size(), " targets, at most ", kMostCostTargets));
  }
  setting.rule_arguments = std::string(parts.second);
  return setting;
}

absl::Status CheckCostTargetSetting(absl::string_view text) {
  return ParseCostTarget(text).status();
}

absl::StatusOr<int64_t> CostLevelOfValue(absl::string_view value) {
  int64_t level = 0;
  if (absl::SimpleAtoi(value, &level) && level >= 0 &&
      level < static_cast<int64_t>(kMostCostTargets))
    return level;
  return absl::InvalidArgumentError(
      absl::StrCat("'", value, "' is no level from 0 to ", kMostCostTargets - 1));
}

absl::Status CheckCostLevelValue(absl::string_view value) {
  return CostLevelOfValue(value).status();
}

TrainingChange ChangeOfCostTarget(int64_t step, int64_t level) {
  return {step, std::string(kCostTargetDial), absl::StrCat(level)};
}

int64_t CostLevelAt(const CostTargetSetting& setting, const std::vector<TrainingChange>& changes,
                    int64_t step) {
  const TrainingChange* change = ChangeAt(changes, kCostTargetDial, step);
  if (change == nullptr || setting.percents.empty()) return 0;
  // Changes were checked when they were made, but not against these settings.
  return std::min(CostLevelOfValue(change->value).value_or(0),
                  static_cast<int64_t>(setting.percents.size()) - 1);
}

std::string CostTargetText(double percent) { return absl::StrCat(percent, " %"); }

}  // namespace runnel
