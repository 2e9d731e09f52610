// In which order things are measured, and when all of them are.

#include "central/run/machines/measuring/measuring.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "tests/central/run/machines/machine_effects.h"
#include "tests/central/scripted_planner.h"

namespace runnel::measuring_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class MeasuringTest : public ::testing::Test {
 protected:
  MeasuringTest() : measuring_(Options(), &planner_) {
    planner_.layers = Options().request.model.layer_count();
  }

  static MeasurementOptions Options() {
    MeasurementOptions options;
    options.request.model = MakeModel("lenet").value();
    options.sub_models = {{0, 0}, {1, 4}};
    return options;
  }
  bool GoOn(bool states_under_way = false) {
    return measuring_.GoOn(active_, states_under_way, roster_, effects_);
  }
  // A plan holds.
  void BeginRun() {
    active_ = ActiveFor(PlanOf({0, 1}, {2, 5}));
    EXPECT_TRUE(GoOn()) << "nothing is ordered";
  }
  absl::StatusOr<bool> Answer(int device) {
    ProfileReport report;
    report.layer_seconds = {0.001, 0.002};
    report.processor_share = 0.5;
    report.generation = active_.plan.generation;
    return measuring_.Add(device, report, roster_, effects_);
  }
  absl::StatusOr<bool> Fail(int device) {
    ProfileFailed failed;
    failed.reason = "no memory";
    failed.generation = active_.plan.generation;
    return measuring_.Add(device, failed, roster_, effects_);
  }
  std::vector<std::string> Lines() {
    std::vector<std::string> lines;
    for (const LogLine& line : EffectsOf<LogLine>(effects_)) lines.push_back(line.text);
    return lines;
  }

  Roster roster_ = FullRoster(3);
  ActivePlan active_;
  ScriptedPlanner planner_;
  RunEffects effects_;
  Measuring measuring_;
};

TEST_F(MeasuringTest, PathsComeBeforeDevices) {
  measuring_.Order({.devices = {0, 1}, .paths = {1}}, 0);
  EXPECT_FALSE(GoOn());
  EXPECT_THAT(ReceiversOf<ProbePiece>(effects_), ElementsAre(1));
  EXPECT_THAT(MessagesOf<ProfileRequest>(effects_), IsEmpty());
  EXPECT_TRUE(measuring_.waits()) << "the devices have not begun";
  EXPECT_FALSE(GoOn()) << "the path is under way";
  EXPECT_TRUE(measuring_.Skip(1, roster_, effects_));
  EXPECT_FALSE(GoOn());
  EXPECT_THAT(ReceiversOf<ProfileRequest>(effects_), ElementsAre(0));
  EXPECT_THAT(Lines(), IsEmpty()) << "before the first plan nothing is unusual";
}

TEST_F(MeasuringTest, AllIsMeasuredWhenTheLastDeviceHasAnswered) {
  measuring_.Order({.devices = {0, 1}, .paths = {}}, 0);
  EXPECT_FALSE(GoOn());
  EXPECT_FALSE(Answer(0).value());
  EXPECT_TRUE(Answer(1).value());
  EXPECT_TRUE(GoOn());
  EXPECT_DOUBLE_EQ(roster_.device(1).processor_share, 0.5);
}

TEST_F(MeasuringTest, APathWaitsForStatesOnTheirWay) {
  BeginRun();
  measuring_.Order({.devices = {}, .paths = {2}}, 40);
  EXPECT_FALSE(GoOn(/*states_under_way=*/true));
  EXPECT_THAT(effects_, IsEmpty());
  EXPECT_TRUE(measuring_.waits());
  EXPECT_FALSE(GoOn());
  EXPECT_THAT(ReceiversOf<ProbePiece>(effects_), ElementsAre(2));
  EXPECT_THAT(Lines(), ElementsAre(HasSubstr("step 40: worker w2 may get layers again")));
}

TEST_F(MeasuringTest, WhatFailsCostsAMeasurementUnlessThereIsNoPlanWithoutIt) {
  measuring_.Order({.devices = {1, 0}, .paths = {}}, 0);
  EXPECT_FALSE(GoOn());
  EXPECT_FALSE(Fail(2).value()) << "it was not asked";
  EXPECT_TRUE(roster_.device(2).stays());
  EXPECT_FALSE(Fail(1).value());
  EXPECT_FALSE(roster_.device(1).stays());
  EXPECT_THAT(Lines(), Contains(HasSubstr("worker w1 could not measure (no memory): the start goes "
                                          "on without it")));
  const absl::StatusOr<bool> last_local = Fail(0);
  EXPECT_TRUE(absl::IsAborted(last_local.status())) << last_local.status();
  EXPECT_THAT(std::string(last_local.status().message()), HasSubstr("worker w0: no memory"));
  measuring_.Cancel();
  BeginRun();
  measuring_.Order({.devices = {1}, .paths = {}}, 40);
  EXPECT_FALSE(GoOn());
  EXPECT_TRUE(Fail(1).value());
  EXPECT_TRUE(GoOn());
  EXPECT_THAT(Lines(), Contains(HasSubstr("step 40: worker w1 could not measure (no memory)")));
}

TEST_F(MeasuringTest, OneThatCameBackTwiceIsAskedOnce) {
  measuring_.Order({.devices = {1}, .paths = {}}, 0);
  measuring_.Order({.devices = {1, 2}, .paths = {}}, 0);
  EXPECT_FALSE(GoOn());
  EXPECT_FALSE(Answer(1).value());
  EXPECT_TRUE(Answer(2).value());
  EXPECT_THAT(ReceiversOf<ProfileRequest>(effects_), ElementsAre(1, 2));
}

TEST_F(MeasuringTest, NothingIsLeftOfWhatIsCancelled) {
  BeginRun();
  measuring_.Order({.devices = {1}, .paths = {2}}, 40);
  EXPECT_FALSE(GoOn());
  measuring_.Cancel();
  EXPECT_FALSE(measuring_.waits());
  effects_.clear();
  EXPECT_TRUE(GoOn());
  EXPECT_THAT(effects_, IsEmpty());
}

}  // namespace
}  // namespace runnel::measuring_test
