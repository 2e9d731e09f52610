#include "central/planning/merged_plan.h"

#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "tests/central/run/machines/machine_effects.h"

namespace runnel::merged_plan_test {
namespace {

std::vector<DeviceFacts> Devices(const std::vector<int>& lost, int count = 3) {
  std::vector<DeviceFacts> devices(static_cast<size_t>(count));
  devices[0].is_local = true;
  for (const int device : lost) devices[static_cast<size_t>(device)].is_lost = true;
  return devices;
}

TEST(MergedPlan, LayersOfALostStageGoToItsNeighbour) {
  Plan plan = PlanOf({0, 1, 2}, {1, 3, 5});
  plan.links[0].codec_forward = CodecSchedule(CodecId{"mbq", 4});
  const Plan without_last = MergeLostStages(plan, Devices({2})).value();
  EXPECT_EQ(without_last.stages, (std::vector<StagePlan>{{{Seat{DeviceId(0)}}, 0, 1, 3},
                                                         {{Seat{DeviceId(1)}}, 2, 5, 2}}));
  EXPECT_EQ(without_last.links, (std::vector<LinkPlan>{plan.links[0]}));
  const Plan without_middle = MergeLostStages(plan, Devices({1})).value();
  EXPECT_EQ(without_middle.stages, (std::vector<StagePlan>{{{Seat{DeviceId(0)}}, 0, 3, 3},
                                                           {{Seat{DeviceId(2)}}, 4, 5, 1}}));
  EXPECT_EQ(without_middle.links, (std::vector<LinkPlan>{plan.links[1]}));
  const Plan alone = MergeLostStages(plan, Devices({1, 2})).value();
  EXPECT_EQ(alone.stages, (std::vector<StagePlan>{{{Seat{DeviceId(0)}}, 0, 5, 3}}));
  EXPECT_TRUE(alone.links.empty());
}

TEST(MergedPlan, AnIdleDeviceTakesTheStage) {
  const Plan merged = MergeLostStages(PlanOf({0, 1}, {2, 5}), Devices({1})).value();
  EXPECT_EQ(merged.stages, (std::vector<StagePlan>{{{Seat{DeviceId(0)}}, 0, 2, 2},
                                                   {{Seat{DeviceId(2)}}, 3, 5, 1}}));
}

// Raw samples stay on central's host.
TEST(MergedPlan, StageZeroStaysLocal) {
  std::vector<DeviceFacts> devices = Devices({0});
  devices[2].is_local = true;
  const Plan merged = MergeLostStages(PlanOf({0, 1, 2}, {1, 3, 5}), devices).value();
  EXPECT_EQ(merged.stages, (std::vector<StagePlan>{{{Seat{DeviceId(2)}}, 0, 3, 2},
                                                   {{Seat{DeviceId(1)}}, 4, 5, 1}}));
}

TEST(MergedPlan, EveryLossLeavesAPlan) {
  const ModelSpec model = MakeModel("lenet").value();
  for (unsigned lost = 0; lost < 8; ++lost) {
    std::vector<int> devices;
    for (int i = 0; i < 3; ++i) {
      if ((lost >> i & 1U) != 0) devices.push_back(i);
    }
    const absl::StatusOr<Plan> merged =
        MergeLostStages(PlanOf({0, 1, 2}, {1, 3, 5}), Devices(devices));
    EXPECT_EQ(merged.ok(), devices.size() < 3) << lost;
    if (!merged.ok()) continue;
    EXPECT_TRUE(CheckPlan(*merged, model).ok()) << CheckPlan(*merged, model);
  }
}

// A run that goes on: the same devices under other numbers, another one, or fewer.
TEST(MergedPlan, DevicesAreFoundByTheirNames) {
  const Plan plan = PlanOf({0, 2, 1}, {1, 3, 5});
  const std::vector<std::string> names = {"own", "laptop", "pi"};
  std::vector<DeviceFacts> devices = Devices({});
  devices[0].name = "own";
  devices[1].name = "pi";
  devices[2].name = "laptop";
  const Plan same = RenumberByName(plan, names, devices).value();
  EXPECT_EQ(same.stages, (std::vector<StagePlan>{{{Seat{DeviceId(0)}}, 0, 1, 3},
                                                 {{Seat{DeviceId(1)}}, 2, 3, 2},
                                                 {{Seat{DeviceId(2)}}, 4, 5, 1}}));
  devices[1].name = "another";
  EXPECT_EQ(RenumberByName(plan, names, devices).value(), same) << "nobody else is there for it";
  devices.resize(2);
  devices[1].name = "laptop";
  EXPECT_EQ(
      RenumberByName(plan, names, devices)->stages,
      (std::vector<StagePlan>{{{Seat{DeviceId(0)}}, 0, 3, 3}, {{Seat{DeviceId(1)}}, 4, 5, 1}}));
}

}  // namespace
}  // namespace runnel::merged_plan_test
