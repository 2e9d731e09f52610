#pragma once

// A plan that was decided before: of a replay, or of a run that goes on.

#include <utility>

#include "absl/status/status.h"
#include "central/planning/merged_plan.h"
#include "central/planning/planner.h"

namespace runnel {

class FixedPlanner final : public Planner {
 public:
  enum class OnLoss : uint8_t {
    kFail,   // the plan is the point: a replay
    kMerge,  // the layers of lost workers go to their neighbours
  };

  explicit FixedPlanner(Plan plan, OnLoss on_loss = OnLoss::kFail)
      : plan_(std::move(plan)), on_loss_(on_loss) {}

  ProfileNeeds profile_needs() const override { return {}; }
  absl::StatusOr<Plan> FirstPlan(const std::vector<DeviceFacts>&,
                                 const std::vector<DeviceTimes>&) override {
    return plan_;
  }
  BarrierDecision AtBarrier(const BarrierReport&) override { return KeepPlan{}; }
  absl::StatusOr<Plan> PlanForSurvivors(const BarrierReport& report) override {
    if (on_loss_ == OnLoss::kFail)
      return absl::FailedPreconditionError("the plan is recorded and needs all of its workers");
    absl::StatusOr<Plan> merged = MergeLostStages(plan_, report.devices);
    if (merged.ok()) plan_ = *merged;
    return merged;
  }
  absl::StatusOr<DeviceTimes> Characterise(int, const std::vector<double>&) override {
    return absl::FailedPreconditionError("a fixed plan needs no measurement");
  }
  PlanBandwidth AssumedBandwidth(const Plan&) const override { return {"recorded", {}}; }
  double predicted_samples_per_s() const override { return 0; }

 private:
  Plan plan_;
  OnLoss on_loss_;
};

}  // namespace runnel
