#pragma once

// A planner of a simulation: cuts the layers evenly over the devices that are there, and now and
// then, as the scenario says, elsewhere, or has a device measured.

#include <cstdint>
#include <vector>

#include "central/planning/planner.h"
#include "tests/sim/cluster/world.h"

namespace runnel {

class SimulatedPlanner final : public Planner {
 public:
  explicit SimulatedPlanner(World* world) : world_(*world) {}

  ProfileNeeds profile_needs() const override { return {}; }
  absl::StatusOr<Plan> FirstPlan(const std::vector<DeviceFacts>& devices,
                                 const std::vector<DeviceTimes>&) override {
    return Cut(devices, /*evenly=*/true);
  }
  BarrierDecision AtBarrier(const BarrierReport& report) override;
  absl::StatusOr<Plan> PlanForSurvivors(const BarrierReport& report) override {
    return Cut(report.devices, /*evenly=*/false);
  }
  absl::StatusOr<DeviceTimes> Characterise(int, const std::vector<double>& seconds) override {
    const int layers = world_.scenario.layers;
    return DeviceTimes::ByRange(layers, std::vector<double>(RangeCount(layers), seconds.back()));
  }
  PlanBandwidth AssumedBandwidth(const Plan&) const override { return {}; }
  double predicted_samples_per_s() const override { return 0; }

 private:
  absl::StatusOr<Plan> Cut(const std::vector<DeviceFacts>& devices, bool evenly);

  World& world_;
  int64_t measured_step_ = -1;
};

}  // namespace runnel
