#pragma once

// A plan that was decided before: of a replay, or of a run that goes on.

#include "central/planning/planner.h"

namespace runnel {

class FixedPlanner final : public Planner {
 public:
  explicit FixedPlanner(Plan plan) : plan_(std::move(plan)) {}

  ProfileNeeds profile_needs() const override { return {}; }
  absl::StatusOr<Plan> FirstPlan(const std::vector<DeviceFacts>&,
                                 const std::vector<DeviceTimes>&) override {
    return plan_;
  }
  BarrierDecision AtBarrier(const BarrierReport&) override { return KeepPlan{}; }
  absl::StatusOr<DeviceTimes> Characterise(int, const std::vector<double>&) override {
    return absl::FailedPreconditionError("a fixed plan needs no measurement");
  }
  PlanBandwidth AssumedBandwidth(const Plan&) const override { return {"recorded", {}}; }
  double predicted_samples_per_s() const override { return 0; }

 private:
  Plan plan_;
};

}  // namespace runnel
