#include "central/planning/plateau_bits.h"

#include "central/settings/gradient_bits_setting.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

// A pipeline whose loss a test sets.
class TrainedRun {
 public:
  explicit TrainedRun(const PlateauBitsOptions& options) : rule_(options) { stages_.resize(2); }

  // At the next barrier, after 100 samples of this mean loss.
  std::optional<ChangeTraining> Barrier(double loss) {
    stages_[1].telemetry.loss_samples += 100;
    stages_[1].telemetry.loss_sum += 100 * loss;
    step_ += 40;
    return rule_.AtBarrier({step_, plan_, Sequence(0), stages_, {}, times_});
  }
  // Workers were lost: the barrier comes again, under another plan.
  void GoBack(int barriers) {
    step_ -= 40 * barriers;
    rule_.GoBackTo(step_);
    Move();
  }
  // Another plan: its stages count from nothing.
  void Move() {
    plan_.generation = plan_.generation.next();
    stages_[1].telemetry = Telemetry();
  }

 private:
  PlateauBits rule_;
  Plan plan_;
  std::vector<StageStatus> stages_;
  std::vector<DeviceTimes> times_;
  int64_t step_ = 0;
};

TEST(PlateauBits, OneBitLessWhenTheLossStopsFalling) {
  TrainedRun run({.first = {3, 2}, .barriers = 2});
  for (const double loss : {2.0, 1.5, 1.0, 1.2}) EXPECT_FALSE(run.Barrier(loss).has_value());
  const auto change = run.Barrier(0.995);  // no fall: less than a hundredth
  ASSERT_TRUE(change.has_value());
  EXPECT_EQ(change->change, (TrainingChange{200, {2, 1}}));
  EXPECT_THAT(change->why, HasSubstr("0.9950 has not fallen below 1.0000 for 2 barriers"));
  EXPECT_FALSE(run.Barrier(1).has_value()) << "counts anew";
  EXPECT_FALSE(run.Barrier(0.5).has_value());
  EXPECT_FALSE(run.Barrier(0.5).has_value());
  EXPECT_EQ(run.Barrier(0.5)->change, (TrainingChange{360, {1, 0}}));
}

TEST(PlateauBits, KeepsTheLossOverAMove) {
  TrainedRun run({.first = {3, 3}, .barriers = 1});
  EXPECT_FALSE(run.Barrier(1).has_value());
  run.Move();
  EXPECT_FALSE(run.Barrier(0.9).has_value());
  run.Move();
  EXPECT_TRUE(run.Barrier(0.9).has_value());
}

TEST(PlateauBits, WhatWasSeenAfterTheBarrierOfARecoveryIsForgotten) {
  const PlateauBitsOptions options = {.first = {3, 3}, .barriers = 2};
  TrainedRun run(options);
  for (const double loss : {2.0, 1.0, 1.0}) EXPECT_FALSE(run.Barrier(loss).has_value());
  EXPECT_EQ(run.Barrier(1.0)->change, (TrainingChange{160, {2, 2}}));
  run.GoBack(2);
  EXPECT_FALSE(run.Barrier(1.0).has_value());
  EXPECT_EQ(run.Barrier(1.0)->change, (TrainingChange{160, {2, 2}})) << "once, not twice";
  run.GoBack(4);
  EXPECT_FALSE(run.Barrier(5.0).has_value()) << "the best loss was seen later";
  EXPECT_FALSE(run.Barrier(4.0).has_value());
}

TEST(PlateauBits, StopsAtTheLeastBits) {
  TrainedRun run({.first = {1, 0}, .barriers = 1, .lowest = 0});
  EXPECT_FALSE(run.Barrier(1).has_value());
  EXPECT_EQ(run.Barrier(1)->change.gradient_bits, (GradientBits{0, 0}));
  EXPECT_FALSE(run.Barrier(1).has_value());
}

TEST(GradientBitsSetting, PlateauOrSchedule) {
  EXPECT_EQ(ParseGradientBitsSetting("0:3/2,4:1")->steps.size(), 2u);
  EXPECT_FALSE(ParseGradientBitsSetting("2")->plateau_barriers.has_value());
  EXPECT_EQ(ParseGradientBitsSetting("plateau:3/2")->plateau_barriers, 5);
  EXPECT_EQ(ParseGradientBitsSetting("plateau:3/2")->steps[0].bits, (GradientBits{3, 2}));
  EXPECT_EQ(ParseGradientBitsSetting("plateau:2:7")->plateau_barriers, 7);
  for (const char* bad : {"plateau:", "plateau:99", "plateau:2:0", "plateau:2:x", "plateau:2:"})
    EXPECT_FALSE(ParseGradientBitsSetting(bad).ok()) << bad;
}

}  // namespace
}  // namespace runnel
