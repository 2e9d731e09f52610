#include "central/planning/rules/training_rules.h"

#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "central/planning/rules/loss_interval.h"
#include "central/planning/rules/plateau_bits.h"
#include "central/planning/rules/progressive_precision.h"
#include "central/planning/rules/saturation_scale.h"
#include "proto/base/training/dials/barrier_every.h"
#include "proto/base/training/dials/cost_target.h"
#include "proto/base/training/dials/gradient_bits.h"
#include "proto/base/training/dials/loss_scale.h"
#include "proto/base/training/dials/precision.h"

namespace runnel {
namespace {

constexpr int64_t kBeforeAnyBarrier = -1;

const std::string& StateAt(const std::map<int64_t, std::string>& states, int64_t step) {
  return std::prev(states.upper_bound(step))->second;
}

}  // namespace

absl::Span<const TrainingRuleRow> TrainingRuleTable() {
  static constexpr TrainingRuleRow kRows[] = {
      {"plateau", kGradientBitsDial, "[:BARRIERS]", MakePlateauBits},
      {kDecidedLossScale, kLossScaleDial, "", MakeSaturationScale},
      {kLossesRule, kBarrierEveryDial, "", MakeLossInterval},
      {"pfq", kPrecisionDial, "[@EPS,ALPHA,EVERY[,LATEST]]", MakeProgressivePrecision},
      {"pfq_cost", kCostTargetDial, "[@EPS,ALPHA,EVERY[,LATEST]]", MakeProgressiveCost},
  };
  return kRows;
}

absl::StatusOr<const TrainingRuleRow*> FindTrainingRule(absl::string_view name,
                                                        absl::string_view dial) {
  std::string known;
  for (const TrainingRuleRow& row : TrainingRuleTable()) {
    if (row.dial != dial) continue;
    if (row.name == name) return &row;
    absl::StrAppend(&known, known.empty() ? "" : ", ", row.name, ":VALUE", row.arguments);
  }
  return absl::InvalidArgumentError(absl::StrCat("rule '", name, "' is not known; rules: ", known));
}

void TrainingRules::Add(absl::string_view name, std::unique_ptr<TrainingRule> rule) {
  Running& running = rules_[std::string(name)];
  running.states[kBeforeAnyBarrier] = rule->State();
  running.rule = std::move(rule);
}

std::vector<ChangeTraining> TrainingRules::AtBarrier(const BarrierReport& report) {
  std::vector<ChangeTraining> changes;
  for (auto& [name, running] : rules_) {
    std::optional<ChangeTraining> change = running.rule->AtBarrier(report);
    if (change.has_value()) changes.push_back(*std::move(change));
    running.states[report.step] = running.rule->State();
  }
  return changes;
}

void TrainingRules::GoBackTo(int64_t step) {
  for (auto& [name, running] : rules_) {
    running.states.erase(running.states.upper_bound(step), running.states.end());
    running.rule->Restore(running.states.rbegin()->second).IgnoreError();  // it was its own
  }
}

RuleStates TrainingRules::StatesAt(int64_t step) const {
  RuleStates states;
  for (const auto& [name, running] : rules_) states[name] = StateAt(running.states, step);
  return states;
}

absl::Status TrainingRules::Restore(const RuleStates& states) {
  for (auto& [name, running] : rules_) {
    const auto state = states.find(name);
    if (state == states.end()) continue;
    if (const absl::Status status = running.rule->Restore(state->second); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("state of rule ", name, ": ", status.message()));
    }
    running.states = {{kBeforeAnyBarrier, state->second}};
  }
  return absl::OkStatus();
}

}  // namespace runnel
