#pragma once

#include <functional>
#include <vector>

#include "central/planning/merged_plan.h"
#include "central/planning/planner.h"

namespace runnel {

// A planner that answers what a test wants.
class ScriptedPlanner final : public Planner {
 public:
  std::function<Plan(const std::vector<DeviceFacts>& devices)> first_plan;
  // OK, null: there is one.
  std::function<absl::Status(const std::vector<DeviceFacts>& devices)> first_fails;
  // Null: the plan is kept.
  std::function<BarrierDecision(const BarrierReport& report)> at_barrier;
  // Null: the plan is merged (MergeLostStages).
  std::function<absl::StatusOr<Plan>(const BarrierReport& report)> for_survivors;
  // Of the model. Every range takes as long as the first one that was measured, plus the device's
  // number.
  int layers = 0;

  std::vector<NoiseMeasured> noise;  // it was told

  void SetNoise(const NoiseMeasured& measured) override { noise.push_back(measured); }
  ProfileNeeds profile_needs() const override { return {}; }
  absl::StatusOr<Plan> FirstPlan(const std::vector<DeviceFacts>& devices,
                                 const std::vector<DeviceTimes>&) override {
    if (const absl::Status fails = first_fails ? first_fails(devices) : absl::OkStatus();
        !fails.ok())
      return fails;
    return first_plan(devices);
  }
  BarrierDecision AtBarrier(const BarrierReport& report) override {
    return at_barrier ? at_barrier(report) : KeepPlan{};
  }
  absl::StatusOr<Plan> PlanForSurvivors(const BarrierReport& report) override {
    if (for_survivors) return for_survivors(report);
    const bool is_first = report.plan.stages.empty();  // it did not come to hold
    return MergeLostStages(is_first ? first_plan(report.devices) : report.plan, report.devices);
  }
  absl::StatusOr<DeviceTimes> Characterise(int device,
                                           const std::vector<double>& seconds) override {
    return DeviceTimes::ByRange(layers,
                                std::vector<double>(RangeCount(layers), device + seconds[0]));
  }
  PlanBandwidth AssumedBandwidth(const Plan&) const override { return {}; }
  double predicted_samples_per_s() const override { return 0; }
};

}  // namespace runnel
