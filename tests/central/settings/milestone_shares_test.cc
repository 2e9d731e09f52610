#include "central/settings/milestone_shares.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/training/rates/rate.h"

namespace runnel::milestone_shares_test {
namespace {

using ::testing::HasSubstr;

// A rate of 1 in a run of 40 steps of 4 epochs, halved at each milestone.
double RateAt(const std::string& milestones, int64_t step, int64_t run_steps = 40) {
  TrainingSettings settings;
  settings.learning_rate = 1;
  settings.milestone_factor = 0.5;
  settings.run_steps = run_steps;
  const absl::StatusOr<std::string> rate = RateOfShares(milestones);
  EXPECT_TRUE(rate.ok()) << rate.status();
  settings.rate = rate.value_or("");
  return RunRate(settings, step / 10, step);
}

TEST(MilestoneShares, AreThoseOfMultiStep) {
  EXPECT_EQ(RateOfShares("50%,75%").value(), "multi_step:0.5,0.75");
  EXPECT_EQ(RateAt("50%,75%", 19), 1);
  EXPECT_EQ(RateAt("50%,75%", 20), 0.5);
  EXPECT_EQ(RateAt("50%,75%", 30), 0.25);
  EXPECT_EQ(RateAt("50%,75%", 39), 0.25);
  EXPECT_EQ(RateAt("50%,75%", 30, 80), 1) << "a run that trains on has them later";
}

TEST(MilestoneShares, OneShareHasNoSecondOne) {
  EXPECT_EQ(RateAt("25%", 9), 1);
  EXPECT_EQ(RateAt("25%", 39), 0.5);
  EXPECT_EQ(RateOfShares("12.5%").value(), "multi_step:0.125,1");
}

TEST(MilestoneShares, WrongOnesSayWhatIsRight) {
  const struct {
    const char* text;
    const char* message;
  } kCases[] = {
      {"50%,3", "give all as epochs or all with %"},
      {"3,50%", "give all as epochs or all with %"},
      {"75%,50%", "must be in ascending order"},
      {"50%,50%", "must be in ascending order"},
      {"0%", "'0%' is no share between 0% and 100%"},
      {"100%", "'100%' is no share between 0% and 100%"},
      {"x%", "'x%' is no share"},
      {"nan%", "'nan%' is no share"},
      {"%", "'%' is no share"},
      {"10%,20%,30%,40%,50%", "are more than 4 shares"},
  };
  for (const auto& c : kCases) {
    const absl::Status status = RateOfShares(c.text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
  }
  EXPECT_FALSE(AreShares("60,120"));
  EXPECT_TRUE(AreShares("50%,3"));
}

}  // namespace
}  // namespace runnel::milestone_shares_test
