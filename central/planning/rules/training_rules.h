#pragma once

// The rules of a run, and the table of those that there are. What a rule has seen is kept by
// barrier: a recovery takes it back, a check-point takes it along.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "central/planning/rules/training_rule.h"

namespace runnel {

struct TrainingRuleRow {
  absl::string_view name;
  absl::string_view dial;       // name of the dial that it turns
  absl::string_view arguments;  // behind the dial's first value, for messages: "[:BARRIERS]"
  // value: of the dial, when the rule begins. arguments: behind its colon, of the precision the
  // whole setting behind the rule's name; empty: none are given.
  // InvalidArgument: they do not fit.
  absl::StatusOr<std::unique_ptr<TrainingRule>> (*make)(absl::string_view value,
                                                        absl::string_view arguments);
};

absl::Span<const TrainingRuleRow> TrainingRuleTable();

// A row that turns this dial. InvalidArgument lists those that do.
absl::StatusOr<const TrainingRuleRow*> FindTrainingRule(absl::string_view name,
                                                        absl::string_view dial);

// States of rules, by name.
using RuleStates = std::map<std::string, std::string>;

class TrainingRules {
 public:
  void Add(absl::string_view name, std::unique_ptr<TrainingRule> rule);

  // The rules' proposals at a barrier, in the order in which the rules were added.
  std::vector<ChangeTraining> AtBarrier(const BarrierReport& report);
  // Training goes on from the barrier at `step`; later observations are void.
  void GoBackTo(int64_t step);
  // States behind the barrier at `step`.
  RuleStates StatesAt(int64_t step) const;
  // Training begins with these. A rule without a state begins anew, as one of a check-point from
  // before rules had states. InvalidArgument names the rule whose state it is not.
  absl::Status Restore(const RuleStates& states);

 private:
  struct Running {
    std::unique_ptr<TrainingRule> rule;
    std::map<int64_t, std::string> states;  // behind the barrier of this step; -1: before any
  };
  std::map<std::string, Running> rules_;
};

}  // namespace runnel
