#pragma once

// A plan that was decided before: of a replay, or of a run that goes on.

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "central/planning/merged_plan.h"
#include "central/planning/planner.h"
#include "proto/base/status_macros.h"

namespace runnel {

class FixedPlanner final : public Planner {
 public:
  enum class OnLoss : uint8_t {
    kFail,   // the plan is the point: a replay
    kMerge,  // the layers of lost workers go to their neighbours until they are back
  };

  // names: by device number of the plan, of devices that are found again by them; empty: the
  // numbers are those of the run.
  explicit FixedPlanner(Plan plan, OnLoss on_loss = OnLoss::kFail,
                        std::vector<std::string> names = {})
      : plan_(std::move(plan)), on_loss_(on_loss), names_(std::move(names)) {}

  ProfileNeeds profile_needs() const override { return {}; }
  absl::StatusOr<Plan> FirstPlan(const std::vector<DeviceFacts>& devices,
                                 const std::vector<DeviceTimes>&) override {
    if (!names_.empty()) {
      RUNNEL_ASSIGN_OR_RETURN(plan_, RenumberByName(plan_, names_, devices));
    }
    return plan_;
  }
  // Devices that came back get their former layers.
  BarrierDecision AtBarrier(const BarrierReport& report) override {
    if (on_loss_ == OnLoss::kFail) return KeepPlan{};
    absl::StatusOr<Plan> merged = MergeLostStages(plan_, report.devices);
    const bool is_same =
        merged.ok() && merged->stages == report.plan.stages && merged->links == report.plan.links;
    if (!merged.ok() || is_same) return KeepPlan{};
    return ChangePlan{*std::move(merged),
                      absl::StrCat("step ", report.step, ": other workers take part")};
  }
  absl::StatusOr<Plan> PlanForSurvivors(const BarrierReport& report) override {
    if (on_loss_ == OnLoss::kFail)
      return absl::FailedPreconditionError("the plan is recorded and needs all of its workers");
    return MergeLostStages(plan_, report.devices);
  }
  absl::StatusOr<DeviceTimes> Characterise(int, const std::vector<double>&) override {
    return absl::FailedPreconditionError("a fixed plan needs no measurement");
  }
  PlanBandwidth AssumedBandwidth(const Plan&) const override { return {"recorded", {}}; }
  double predicted_samples_per_s() const override { return 0; }

 private:
  Plan plan_;  // over all of its devices
  OnLoss on_loss_;
  std::vector<std::string> names_;
};

}  // namespace runnel
