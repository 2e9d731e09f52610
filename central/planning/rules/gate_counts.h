#pragma once

// What gates chose and kernels computed since the run began, whatever plans it had: stages count
// since a plan holds. Changes nothing; it is a rule because check-points, resumed runs and
// recoveries take the state of rules along.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "central/planning/rules/training_rule.h"
#include "proto/base/training/dials/cost_target.h"
#include "proto/base/training/precision/gate_cost.h"

namespace runnel {

struct GateTotals {
  int64_t samples = 0;                          // that were trained
  double macs_done = 0;                         // counted by the kernels, exploring included
  double effective_macs = 0;                    // likewise
  std::map<int, std::vector<int64_t>> choices;  // samples by option, by the gate's layer
  // By level of the target of cost; without a target one.
  struct Level {
    int64_t samples = 0;
    double percent_sum = 0;   // of the cost of each sample
    double last_percent = 0;  // mean cost in front of its last barrier
  };
  std::vector<Level> levels;
};

// A state of GateCounts. InvalidArgument: it is none.
absl::StatusOr<GateTotals> ParseGateTotals(absl::string_view state);

class GateCounts final : public TrainingRule {
 public:
  static constexpr absl::string_view kName = "gates";

  GateCounts(GateCost cost, CostTargetSetting target)
      : cost_(std::move(cost)), target_(std::move(target)) {}

  std::optional<ChangeTraining> AtBarrier(const BarrierReport& report) override;
  std::string State() const override;
  absl::Status Restore(absl::string_view state) override;

 private:
  GateCost cost_;
  CostTargetSetting target_;
  Generation generation_;  // of the plan whose sums seen_ are
  GateTotals seen_;
  GateTotals totals_;
};

}  // namespace runnel
