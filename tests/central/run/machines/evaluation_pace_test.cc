// Evaluations whose weights would take too long to come wait for a later epoch.

#include "central/run/machines/evaluation_pace.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/central/run/machines/machine_effects.h"

namespace runnel::evaluation_pace_test {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// Layers of 1 MB. Training 1000 samples a second in steps of 10: 100 steps are a second.
constexpr double kSamplesPerS = 1000;

EvaluationPace PaceOf(double most_share, int64_t first_step = 0) {
  return EvaluationPace({most_share, {1'000'000, 1'000'000, 1'000'000}, 10}, first_step);
}

class EvaluationPaceTest : public ::testing::Test {
 protected:
  // The second device holds two layers; its path carries 8 Mbps up, so they take 2 s.
  EvaluationPaceTest() : plan_(PlanOf({0, 1}, {0, 2})), devices_(2) {
    devices_[1].path.down.rate = LinkRate::Mbps(1);  // the other way does not count
    devices_[1].path.up.rate = LinkRate::Mbps(8);
  }

  bool IsWorth(EvaluationPace& pace, int64_t step, double samples_per_s = kSamplesPerS) {
    return pace.IsWorth({step, plan_, Sequence(), stages_, devices_, times_}, samples_per_s,
                        effects_);
  }

  Plan plan_;
  std::vector<StageStatus> stages_;
  std::vector<DeviceFacts> devices_;
  std::vector<DeviceTimes> times_;
  RunEffects effects_;
};

TEST_F(EvaluationPaceTest, WaitsUntilTheWeightsAreAShareOfTheTraining) {
  EvaluationPace pace = PaceOf(0.05);
  EXPECT_FALSE(IsWorth(pace, 1000)) << "2 s of 10";
  EXPECT_FALSE(IsWorth(pace, 3900)) << "2 s of 39";
  EXPECT_TRUE(IsWorth(pace, 4100)) << "2 s of 41";
  EXPECT_TRUE(IsWorth(pace, 4100)) << "asked again at the same barrier";
  EXPECT_FALSE(IsWorth(pace, 5000)) << "2 s of the 9 since then";
  EXPECT_TRUE(IsWorth(pace, 8200));
}

TEST_F(EvaluationPaceTest, SaysOnceWhy) {
  EvaluationPace pace = PaceOf(0.05);
  IsWorth(pace, 1000);
  IsWorth(pace, 2000);
  const auto lines = EffectsOf<LogLine>(effects_);
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_THAT(lines[0].text, HasSubstr("step 1000 is not evaluated"));
  EXPECT_THAT(lines[0].text, HasSubstr("2 s"));
  EXPECT_THAT(lines[0].text, HasSubstr("--eval-cost-percent"));
}

TEST_F(EvaluationPaceTest, CountsFromTheStepOfAResumedRun) {
  EvaluationPace pace = PaceOf(0.05, 4000);
  EXPECT_FALSE(IsWorth(pace, 5000));
  EXPECT_TRUE(IsWorth(pace, 8200));
}

TEST_F(EvaluationPaceTest, EvaluatesWhereNothingIsKnownOrAnyCostIsRight) {
  EvaluationPace any_cost = PaceOf(0);
  EXPECT_TRUE(IsWorth(any_cost, 10));
  EvaluationPace pace = PaceOf(0.05);
  EXPECT_TRUE(IsWorth(pace, 10, 0)) << "the rate of the training is not known";
  devices_[1].path = {};
  EXPECT_TRUE(IsWorth(pace, 20)) << "workers on this host";
}

TEST_F(EvaluationPaceTest, AddsUpThePathsOfAllStages) {
  plan_ = PlanOf({0, 1, 2}, {0, 1, 2});
  devices_.resize(3);
  devices_[2].path.up.rate = LinkRate::Mbps(2);  // 4 s, and 1 s of the other
  EvaluationPace pace = PaceOf(0.05);
  EXPECT_FALSE(IsWorth(pace, 9900));
  EXPECT_TRUE(IsWorth(pace, 10100));
}

// What the test set takes is known when it has passed once.
TEST_F(EvaluationPaceTest, CountsWhatAStageOnTheSameProcessorLost) {
  devices_[0].is_local = true;
  devices_[1].path = {};
  EvaluationPaceOptions options = {0.05, {1, 1, 1}, 10, 8, 1};
  const auto after_one = [&] {
    EvaluationPace pace(options, 0);
    EXPECT_TRUE(IsWorth(pace, 100)) << "no evaluation was measured yet";
    pace.Took(4);
    return pace;
  };
  EvaluationPace plenty = after_one();
  EXPECT_TRUE(IsWorth(plenty, 200)) << "the evaluation has a processor of its own";
  devices_[0].processor_share = 0.5;
  EvaluationPace shared = after_one();
  EXPECT_FALSE(IsWorth(shared, 8000)) << "4 s of 79";
  EXPECT_TRUE(IsWorth(shared, 8200));
  devices_[0].processor_share = 1;
  options.host_threads = 1;
  EvaluationPace single = after_one();
  EXPECT_FALSE(IsWorth(single, 8000));
  EXPECT_TRUE(IsWorth(single, 8200));
  options.host_threads = 2;
  EvaluationPace two = after_one();
  EXPECT_TRUE(IsWorth(two, 200));
}

}  // namespace
}  // namespace runnel::evaluation_pace_test
