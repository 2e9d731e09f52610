#include "central/planning/rules/saturation_scale.h"

#include "central/planning/rules/training_rules.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/training/dials/loss_scale.h"

namespace runnel::saturation_scale_test {
namespace {

using ::testing::HasSubstr;

// A pipeline of two stages whose counts a test sets.
class ScaledRun {
 public:
  explicit ScaledRun(int64_t scale) { Begin(scale); }

  // At the next barrier, after 1e5 gradients in each stage, so many of them beyond the range.
  std::optional<ChangeTraining> Barrier(int64_t saturated) {
    for (StageStatus& stage : stages_) stage.telemetry.gradient_values += 100'000;
    stages_[0].telemetry.gradients_saturated += saturated;
    step_ += 10;
    std::vector<ChangeTraining> changes =
        rules_.AtBarrier({step_, plan_, Sequence(0), stages_, {}, times_});
    if (changes.empty()) return std::nullopt;
    return changes.front();
  }
  // Another central goes on from the check-point of the last barrier; its stages count from
  // nothing.
  void Resume(int64_t scale) {
    const RuleStates states = rules_.StatesAt(step_);
    rules_ = TrainingRules();
    Begin(scale);
    EXPECT_TRUE(rules_.Restore(states).ok());
    plan_.generation = plan_.generation.next();
    stages_ = std::vector<StageStatus>(2);
  }

 private:
  void Begin(int64_t scale) { rules_.Add("auto", std::make_unique<SaturationScale>(scale)); }

  TrainingRules rules_;
  Plan plan_;
  std::vector<StageStatus> stages_{2};
  std::vector<DeviceTimes> times_;
  int64_t step_ = 0;
};

TEST(SaturationScale, HalvesBeyondAShareAndDoublesAfterTwentyCleanBarriers) {
  ScaledRun run(1024);
  EXPECT_FALSE(run.Barrier(20).has_value()) << "1e-4 of both stages' values";
  const auto halved = run.Barrier(21);
  ASSERT_TRUE(halved.has_value());
  EXPECT_EQ(halved->change, ChangeOfLossScale(20, 512));
  EXPECT_EQ(halved->why, "21 of 200000 gradients were beyond 65504");
  for (int i = 0; i < 19; ++i) EXPECT_FALSE(run.Barrier(0).has_value());
  EXPECT_FALSE(run.Barrier(1).has_value()) << "neither clean nor too much";
  for (int i = 0; i < 12; ++i) EXPECT_FALSE(run.Barrier(0).has_value());
  run.Resume(512);
  for (int i = 0; i < 7; ++i) EXPECT_FALSE(run.Barrier(0).has_value());
  const auto doubled = run.Barrier(0);
  ASSERT_TRUE(doubled.has_value());
  EXPECT_EQ(doubled->change, ChangeOfLossScale(420, 1024));
}

TEST(SaturationScale, StaysWithinItsBounds) {
  ScaledRun least(1), most(kMostLossScale);
  EXPECT_FALSE(least.Barrier(1000).has_value());
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(most.Barrier(0).has_value());
}

TEST(SaturationScale, TakesItsOwnStateAlone) {
  SaturationScale rule(8);
  EXPECT_TRUE(rule.Restore(SaturationScale(64).State()).ok());
  EXPECT_EQ(rule.State(), SaturationScale(64).State());
  for (const char* wrong : {"", "{}", R"({"scale":3,"clean":0})", R"({"scale":"8","clean":0})"})
    EXPECT_FALSE(rule.Restore(wrong).ok()) << wrong;
  EXPECT_FALSE(MakeSaturationScale("8", "2").ok());
  EXPECT_THAT(std::string(MakeSaturationScale("12", "").status().message()),
              HasSubstr("'12' is no power of two from 1 to 16777216"));
}

TEST(LossScale, IsTheLastChangeElseTheSettings) {
  TrainingSettings settings;
  EXPECT_EQ(LossScaleAt(settings, {}, 5), kFirstLossScale);
  settings.loss_scale = "64";
  EXPECT_EQ(LossScaleAt(settings, {}, 5), 64);
  EXPECT_EQ(LossScaleAt(settings, {ChangeOfLossScale(5, 32)}, 4), 64);
  EXPECT_EQ(LossScaleAt(settings, {ChangeOfLossScale(5, 32)}, 5), 32);
}

}  // namespace
}  // namespace runnel::saturation_scale_test
