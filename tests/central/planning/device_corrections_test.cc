// What a device is off by, from what its stages take.

#include "central/planning/measured/device_corrections.h"

#include <vector>

#include "gtest/gtest.h"

namespace runnel::device_corrections_test {
namespace {

constexpr int kLayers = 6;
constexpr int64_t kEvery = 20;  // micro-batches between reports

Plan OfTwoStages() {
  Plan plan;
  plan.generation = Generation(1);
  plan.stages = {{{Seat{DeviceId(0)}}, 0, 2, 2}, {{Seat{DeviceId(1)}}, 3, kLayers - 1, 1}};
  plan.links.emplace_back();
  return plan;
}

// What a device without a stage was off by is forgotten: it is tried again.
TEST(DeviceCorrections, AnIdleDeviceIsForgiven) {
  DeviceCorrections corrections({});
  Plan plan = OfTwoStages();
  std::vector<StageStatus> stages = {{plan.stages[0], "", {}}, {plan.stages[1], "", {}}};
  const std::vector<DeviceTimes> times(2, DeviceTimes::ByLayer(std::vector<double>(kLayers, 0.01)));
  const std::vector<DeviceFacts> devices(2);
  int64_t step = 0;
  const auto report = [&] {
    step += kEvery;
    for (StageStatus& stage : stages) {
      stage.telemetry.backwards = step;
      stage.telemetry.busy_ns += kEvery * 5 * 30'000'000;
    }
    corrections.Observe({step, plan, Sequence(0), stages, devices, times}, {});
  };
  report();
  EXPECT_NEAR(corrections.ratios()[1], 5, 1e-9);
  plan.stages = {{{Seat{DeviceId(0)}}, 0, kLayers - 1, 1}};
  plan.links.clear();
  plan.generation = Generation(2);
  stages = {{plan.stages[0], "", {}}};
  report();
  EXPECT_NEAR(corrections.ratios()[1], 1 + 4 * 0.9, 1e-9);
  for (int i = 0; i < 30; ++i) report();
  EXPECT_LT(corrections.ratios()[1], 1.2);
}

// A stage that makes its layers again takes longer for it; its device is as fast as it was.
TEST(DeviceCorrections, ASecondForwardIsNoSlowness) {
  DeviceCorrections corrections({});
  Plan plan = OfTwoStages();
  plan.stages[1].recompute = true;
  std::vector<StageStatus> stages = {{plan.stages[0], "", {}}, {plan.stages[1], "", {}}};
  for (StageStatus& stage : stages) {
    stage.telemetry.backwards = kEvery;
    stage.telemetry.busy_ns = kEvery * 5 * 40'000'000;
  }
  const std::vector<DeviceTimes> times(2, DeviceTimes::ByLayer(std::vector<double>(kLayers, 0.01)));
  const std::vector<DeviceFacts> devices(2);
  corrections.Observe({kEvery, plan, Sequence(0), stages, devices, times}, {});
  const auto of_layers = [](const StagePlan& stage) {
    return 0.2 / (0.01 * (stage.last_layer - stage.first_layer + 1));
  };
  EXPECT_NEAR(corrections.ratios()[0], of_layers(plan.stages[0]), 1e-9);
  EXPECT_NEAR(corrections.ratios()[1], 0.75 * of_layers(plan.stages[1]), 1e-9);
}

}  // namespace
}  // namespace runnel::device_corrections_test
