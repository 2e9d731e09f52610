#include "proto/base/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace runnel::plan_test {
namespace {

using ::testing::ElementsAre;

class PlanTest : public ::testing::Test {
 protected:
  PlanTest() {
    plan_.stages = {{{Seat{DeviceId(4)}}, 0, 1, 2}, {{Seat{DeviceId(0)}}, 2, 5, 1}};
    plan_.links.resize(1);
  }

  Plan plan_;
};

TEST_F(PlanTest, SaysWhichDevicesTakePartAndWhere) {
  EXPECT_THAT(plan_.devices(), ElementsAre(4, 0));
  EXPECT_THAT(plan_.sole_devices(), ElementsAre(4, 0));
  EXPECT_EQ(plan_.StageOf(0), 1u);
  EXPECT_TRUE(plan_.Uses(4));
  EXPECT_FALSE(plan_.Uses(1));
  const std::vector<std::string> names = {"a", "b", "c", "d", "e"};
  EXPECT_EQ(OfSoleDevice(plan_.stages[0], names), "e");
  plan_.stages[0].GiveTo(3);
  EXPECT_THAT(plan_.devices(), ElementsAre(3, 0));
}

TEST_F(PlanTest, EachSeatIsFound) {
  plan_.stages[0].seats.push_back(Seat{DeviceId(2)});
  EXPECT_THAT(plan_.devices(), ElementsAre(4, 2, 0));
  EXPECT_EQ(plan_.StageOf(2), 0u);
  EXPECT_EQ(plan_.seats().back().stage, 1u);
}

TEST_F(PlanTest, AStageHasOneSeat) {
  ModelSpec model;
  model.layers.resize(6);
  EXPECT_TRUE(CheckPlan(plan_, model).ok()) << CheckPlan(plan_, model);
  plan_.stages[1].seats.push_back(Seat{DeviceId(2)});
  EXPECT_EQ(CheckPlan(plan_, model).message(),
            "plan: stage 1 has 2 seats, must have 1: one device");
  plan_.stages[1].seats.clear();
  EXPECT_EQ(CheckPlan(plan_, model).message(),
            "plan: stage 1 has 0 seats, must have 1: one device");
}

}  // namespace
}  // namespace runnel::plan_test
