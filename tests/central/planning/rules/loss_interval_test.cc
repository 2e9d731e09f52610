// Barriers by what they take and how often workers are lost.

#include "central/planning/rules/loss_interval.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::loss_interval_test {
namespace {

using ::testing::HasSubstr;

class LossIntervalTest : public ::testing::Test {
 protected:
  // "": everything stays.
  std::string At(int64_t step, const RunPace& pace, bool is_regular = true) {
    BarrierReport report{.step = step,
                         .plan = plan_,
                         .first_sequence = Sequence(0),
                         .stages = stages_,
                         .devices = {},
                         .times = times_,
                         .is_regular = is_regular,
                         .pace = pace,
                         .changes = &changes_};
    const std::optional<ChangeTraining> change = rule_.AtBarrier(report);
    if (!change.has_value()) return "";
    EXPECT_EQ(change->change.from_step, step);
    why_ = change->why;
    return change->change.value;
  }

  const Plan plan_;
  const std::vector<StageStatus> stages_;
  const std::vector<DeviceTimes> times_;
  std::vector<TrainingChange> changes_;
  LossInterval rule_{100};
  std::string why_;
};

// sqrt(2 C M): a barrier of 0.5 s and a loss an hour are 60 s.
TEST_F(LossIntervalTest, IsYoungsOptimum) {
  EXPECT_EQ(At(100, {.step_seconds = 0.1, .barrier_seconds = 0.5}), "600");
  EXPECT_THAT(why_, HasSubstr("a barrier takes 0.5 s, and no worker was lost"));
  EXPECT_EQ(At(700, {.step_seconds = 0.1, .barrier_seconds = 0.5}), "") << "it is there";
  // Four losses in the hour: 1440 s are between them.
  EXPECT_EQ(
      At(1300, {.trained_seconds = 3600, .step_seconds = 0.1, .barrier_seconds = 0.5, .losses = 4}),
      std::to_string(static_cast<int>(std::sqrt(2 * 0.5 * 1440) / 0.1)));
}

TEST_F(LossIntervalTest, SmallChangesAreNotWorthALine) {
  EXPECT_EQ(At(100, {.step_seconds = 1, .barrier_seconds = 2}), "");  // 120
  EXPECT_EQ(At(100, {.step_seconds = 1, .barrier_seconds = 1}), "");  // 84
}

TEST_F(LossIntervalTest, StaysWithinItsLimits) {
  EXPECT_EQ(At(100, {.step_seconds = 1000, .barrier_seconds = 0.5}), "10");
  EXPECT_EQ(At(110, {.step_seconds = 1e-9, .barrier_seconds = 0.5}), "100000");
}

TEST_F(LossIntervalTest, WaitsForMeasurements) {
  EXPECT_EQ(At(0, {}), "");
  EXPECT_EQ(At(37, {.step_seconds = 0.1, .barrier_seconds = 0.5}, /*is_regular=*/false), "");
}

TEST_F(LossIntervalTest, ANewProcessKnowsWhatWasLostBefore) {
  At(100, {.trained_seconds = 3600, .step_seconds = 0.1, .barrier_seconds = 0.5, .losses = 4});
  LossInterval other(100);
  ASSERT_TRUE(other.Restore(rule_.State()).ok());
  EXPECT_EQ(other.State(), rule_.State());
  rule_ = other;
  EXPECT_EQ(At(200, {.step_seconds = 0.1, .barrier_seconds = 0.5}), "") << "one process or two";
  // A recovery gives the interval back, and keeps the loss.
  ASSERT_TRUE(rule_.Restore(LossInterval(100).State()).ok());
  EXPECT_EQ(At(300, {.step_seconds = 0.1, .barrier_seconds = 0.5}),
            std::to_string(static_cast<int>(std::sqrt(2 * 0.5 * 1440) / 0.1)));
}

TEST_F(LossIntervalTest, LeavesChangesForOthers) {
  changes_.resize(LossInterval::kMostChanges);
  EXPECT_EQ(At(100, {.step_seconds = 0.1, .barrier_seconds = 0.5}), "");
  changes_.pop_back();
  EXPECT_EQ(At(200, {.step_seconds = 0.1, .barrier_seconds = 0.5}), "600");
}

TEST_F(LossIntervalTest, WhatIsNoStateIsRefused) {
  LossInterval other(100);
  EXPECT_FALSE(other.Restore("{\"every\":0,\"seconds\":0,\"losses\":0}").ok());
  EXPECT_FALSE(other.Restore("{\"every\":10,\"seconds\":-1,\"losses\":0}").ok());
  EXPECT_FALSE(MakeLossInterval("0", "").ok());
  EXPECT_FALSE(MakeLossInterval("100", "5").ok());
}

}  // namespace
}  // namespace runnel::loss_interval_test
