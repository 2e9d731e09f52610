#include "central/planning/rules/plateau_bits.h"

#include "central/planning/rules/training_rules.h"
#include "central/settings/gradient_bits_setting.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/training/dials/dials.h"
#include "proto/base/training/dials/gradient_bits.h"

namespace runnel::plateau_bits_test {
namespace {

using ::testing::HasSubstr;

// A pipeline whose loss a test sets.
class TrainedRun {
 public:
  explicit TrainedRun(const PlateauBitsOptions& options) { Begin(options); }

  // At the next barrier, after 100 samples of this mean loss.
  std::optional<ChangeTraining> Barrier(double loss) {
    stages_[1].telemetry.loss_samples += 100;
    stages_[1].telemetry.loss_sum += 100 * loss;
    step_ += 40;
    std::vector<ChangeTraining> changes =
        rules_.AtBarrier({step_, plan_, Sequence(0), stages_, {}, times_});
    if (changes.empty()) return std::nullopt;
    return changes.front();
  }
  // Workers were lost: the barrier comes again, under another plan.
  void GoBack(int barriers) {
    step_ -= 40 * barriers;
    rules_.GoBackTo(step_);
    Move();
  }
  // Another central goes on from the check-point of the last barrier.
  void Resume(const PlateauBitsOptions& options) {
    const RuleStates states = rules_.StatesAt(step_);
    rules_ = TrainingRules();
    Begin(options);
    EXPECT_TRUE(rules_.Restore(states).ok());
    Move();
  }
  // Another plan: its stages count from nothing.
  void Move() {
    plan_.generation = plan_.generation.next();
    stages_[1].telemetry = Telemetry();
  }

 private:
  void Begin(const PlateauBitsOptions& options) {
    rules_.Add("plateau", std::make_unique<PlateauBits>(options));
  }

  TrainingRules rules_;
  Plan plan_;
  std::vector<StageStatus> stages_{2};
  std::vector<DeviceTimes> times_;
  int64_t step_ = 0;
};

TEST(PlateauBits, OneBitLessWhenTheLossStopsFalling) {
  TrainedRun run({.first = {3, 2}, .barriers = 2});
  for (const double loss : {2.0, 1.5, 1.0, 1.2}) EXPECT_FALSE(run.Barrier(loss).has_value());
  const auto change = run.Barrier(0.995);  // no fall: less than a hundredth
  ASSERT_TRUE(change.has_value());
  EXPECT_EQ(change->change, ChangeOfGradientBits(200, {2, 1}));
  EXPECT_THAT(change->why, HasSubstr("0.9950 has not fallen below 1.0000 for 2 barriers"));
  EXPECT_FALSE(run.Barrier(1).has_value()) << "counts anew";
  EXPECT_FALSE(run.Barrier(0.5).has_value());
  EXPECT_FALSE(run.Barrier(0.5).has_value());
  EXPECT_EQ(run.Barrier(0.5)->change, ChangeOfGradientBits(360, {1, 0}));
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
  EXPECT_EQ(run.Barrier(1.0)->change, ChangeOfGradientBits(160, {2, 2}));
  run.GoBack(2);
  EXPECT_FALSE(run.Barrier(1.0).has_value());
  EXPECT_EQ(run.Barrier(1.0)->change, ChangeOfGradientBits(160, {2, 2})) << "once, not twice";
  run.GoBack(4);
  EXPECT_FALSE(run.Barrier(5.0).has_value()) << "the best loss was seen later";
  EXPECT_FALSE(run.Barrier(4.0).has_value());
}

TEST(PlateauBits, StopsAtTheLeastBits) {
  TrainedRun run({.first = {1, 0}, .barriers = 1, .lowest = 0});
  EXPECT_FALSE(run.Barrier(1).has_value());
  EXPECT_EQ(run.Barrier(1)->change.value, "0");
  EXPECT_FALSE(run.Barrier(1).has_value());
}

// Whatever the barrier: the loss, the count and the bits go on.
TEST(PlateauBits, AResumedRunDecidesAsTheUndisturbedOne) {
  const PlateauBitsOptions options = {.first = {3, 2}, .barriers = 3};
  const std::vector<double> losses = {2.0, 1.5, 1.7, 1.6, 1.51, 1.55, 1.2, 1.3, 1.25, 1.3, 1.28};
  const auto train = [&](size_t resumed_after) {
    TrainedRun run(options);
    std::string decided;
    for (size_t i = 0; i < losses.size(); ++i) {
      const auto change = run.Barrier(losses[i]);
      if (change.has_value()) decided += ToString(change->change) + " " + change->why + "\n";
      if (i == resumed_after) run.Resume(options);
    }
    return decided;
  };
  const std::string undisturbed = train(losses.size());
  EXPECT_THAT(undisturbed, HasSubstr("gradient bits 1/0"));
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_EQ(train(i), undisturbed) << i;
}

// What every row promises.
TEST(TrainingRules, EachTurnsADialAndTakesItsOwnStateBack) {
  for (const TrainingRuleRow& row : TrainingRuleTable()) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(*FindTrainingRule(row.name, row.dial), &row);
    ASSERT_TRUE(FindDial(row.dial).ok());
    // Two levels, where the rule has such.
    const auto rule = row.make("1", row.dial == "precision"     ? "3,4/6,6"
                                    : row.dial == "cost_target" ? "2,3"
                                                                : "");
    ASSERT_TRUE(rule.ok()) << rule.status();
    const std::string state = (*rule)->State();
    EXPECT_TRUE((*rule)->Restore(state).ok());
    EXPECT_EQ((*rule)->State(), state);
    for (const char* bad : {"", "{}", "nonsense"})
      EXPECT_EQ((*rule)->Restore(bad).code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_EQ(row.make("?", "").status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(row.make("1", "?").status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_THAT(std::string(FindTrainingRule("cliff", "gradient_bits").status().message()),
              HasSubstr("rule 'cliff' is not known; rules: plateau:VALUE[:BARRIERS]"));
}

TEST(TrainingRules, AStateThatIsNotTheRulesIsNamed) {
  TrainingRules rules;
  rules.Add("plateau", *MakePlateauBits("2", ""));
  EXPECT_TRUE(rules.Restore({}).ok()) << "of a check-point from before rules had states";
  EXPECT_THAT(std::string(rules.Restore({{"plateau", "{}"}}).message()),
              HasSubstr("state of rule plateau: progress: 'bits' is missing"));
}

TEST(GradientBitsSetting, RuleOrSchedule) {
  EXPECT_EQ(ParseGradientBitsSetting("0:3/2,4:1")->steps.size(), 2u);
  EXPECT_EQ(ParseGradientBitsSetting("2")->rule, "");
  EXPECT_EQ(ParseGradientBitsSetting("plateau:3/2")->rule, "plateau");
  EXPECT_EQ(ParseGradientBitsSetting("plateau:3/2")->rule_arguments, "");
  EXPECT_EQ(ParseGradientBitsSetting("plateau:3/2")->steps[0].bits, (GradientBits{3, 2}));
  EXPECT_EQ(ParseGradientBitsSetting("plateau:2:7")->rule_arguments, "7");
  for (const char* bad : {"plateau", "plateau:", "plateau:99", "plateau:2:"})
    EXPECT_FALSE(ParseGradientBitsSetting(bad).ok()) << bad;
  for (const char* bad : {"0", "x", "1000001"}) EXPECT_FALSE(MakePlateauBits("2", bad).ok()) << bad;
}

}  // namespace
}  // namespace runnel::plateau_bits_test
