#include "proto/base/training/training.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::training_test {
namespace {

using ::testing::HasSubstr;

TEST(GradientBits, TextsAreReadAndWritten) {
  using Steps = std::vector<GradientBitsStep>;
  const std::pair<const char*, Steps> kCases[] = {
      {"2", {{0, {2, 2}}}},
      {"3/-2", {{0, {3, -2}}}},
      {"0:3,10:2/1,11:-8/7", {{0, {3, 3}}, {10, {2, 1}}, {11, {-8, 7}}}},
  };
  for (const auto& [text, steps] : kCases) {
    const auto read = ParseGradientBits(text);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(*read == steps) << text;
    EXPECT_EQ(GradientBitsText(steps), text);
  }
  EXPECT_EQ(GradientBitsText(*ParseGradientBits("0:3/3,10:2/2")), "0:3,10:2");
  EXPECT_EQ(GradientBitsText(*ParseGradientBits("0:3/1")), "3/1");
}

TEST(GradientBits, WhatIsWrongIsNamed) {
  const std::pair<const char*, const char*> kCases[] = {
      {"", "''"},
      {"two", "'two'"},
      {"2/", "''"},
      {"2/x", "'x'"},
      {"99", "99 bits: must be -8..7"},
      {"2/-9", "-9 bits"},
      {"0:3,", "''"},
      {"x:3", "'x' is no epoch"},
      {"1:3", "epoch 1: the first must be 0"},
      {"0:3,0:2", "epoch 0"},
      {"0:3,5:2,4:1", "epoch 4"},
      {"3,2", "epoch 0"},
  };
  for (const auto& [text, error] : kCases) {
    const auto read = ParseGradientBits(text);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(read.status().message()), HasSubstr(error)) << text;
  }
}

TEST(WarmUp, TheRateRisesInEqualStepsToTheWholeRate) {
  TrainingSettings settings;
  settings.learning_rate = 0.5;
  EXPECT_EQ(StepRate(settings, 0, 0, 1, 1), 0.5);  // without a warm-up
  settings.warm_up_steps = 4;
  EXPECT_EQ(StepRate(settings, 0, 0, 1, 1), 0.125);
  EXPECT_EQ(StepRate(settings, 0, 2, 1, 1), 0.375);
  EXPECT_EQ(StepRate(settings, 0, 3, 1, 1), 0.5);
  EXPECT_EQ(StepRate(settings, 0, 1000, 1, 1), 0.5);
}

TEST(GradientBits, AnEpochHasTheBitsOfTheStepBefore) {
  TrainingSettings settings;
  EXPECT_TRUE(GradientBitsOf(settings, 3) == (GradientBits{2, 2}));
  settings.gradient_bits = *ParseGradientBits("0:5/4,2:3/1");
  EXPECT_TRUE(GradientBitsOf(settings, 0) == (GradientBits{5, 4}));
  EXPECT_TRUE(GradientBitsOf(settings, 1) == (GradientBits{5, 4}));
  EXPECT_TRUE(GradientBitsOf(settings, 2) == (GradientBits{3, 1}));
  EXPECT_TRUE(GradientBitsOf(settings, 100) == (GradientBits{3, 1}));
}

TEST(GradientBits, FallOverTheRunByDefault) {
  EXPECT_EQ(GradientBitsText(DefaultGradientBits(1)), "2");
  EXPECT_EQ(GradientBitsText(DefaultGradientBits(2)), "0:2,1:1");
  EXPECT_EQ(GradientBitsText(DefaultGradientBits(3)), "0:2,2:1");
  EXPECT_EQ(GradientBitsText(DefaultGradientBits(10)), "0:2,4:1,7:0");
  EXPECT_EQ(GradientBitsText(DefaultGradientBits(20)), "0:2,8:1,14:0");
}

TEST(BarrierRule, NextIsTheFirstBarrierAfterAStep) {
  for (const int64_t point : {0, 7, 10, 25, 40}) {
    const BarrierRule rule = {.every = 10,
                              .eval_every_epochs = 2,
                              .steps_per_epoch = 13,
                              .epochs = 3,
                              .policy_point = point};
    for (int64_t step = 0; step < 39; ++step) {
      int64_t next = step + 1;
      while (next < 39 && !rule.IsBarrier(next)) ++next;
      EXPECT_EQ(rule.Next(step), next) << "after " << step << ", policy point " << point;
    }
    EXPECT_EQ(rule.IsBarrier(7), point == 7);
  }
}

TEST(Training, StagesWithRaisedCapsBeginWithAShareOfTheRate) {
  TrainingSettings settings;
  settings.stale_rate_steps = 100;
  EXPECT_EQ(StaleRateShare(settings, 3, 3, 0), 1);  // as the papers have it
  EXPECT_EQ(StaleRateShare(settings, 5, 5, 0), 1);
  EXPECT_EQ(StaleRateShare(settings, 4, 1, 0), 1);     // three steps old
  EXPECT_EQ(StaleRateShare(settings, 5, 1, 0), 0.25);  // four
  EXPECT_EQ(StaleRateShare(settings, 11, 3, 0), 0.1);  // ten steps old
  EXPECT_EQ(StaleRateShare(settings, 11, 3, 50), 0.55);
  EXPECT_EQ(StaleRateShare(settings, 11, 3, 100), 1);
  EXPECT_EQ(StaleRateShare(settings, 11, 3, 5000), 1);
  settings.micro_batches = 4;
  EXPECT_EQ(StaleRateShare(settings, 11, 3, 0), 1);  // ten micro-batches, three steps
  settings.micro_batches = 3;
  EXPECT_EQ(StaleRateShare(settings, 11, 3, 0), 0.25);  // four
  settings.micro_batches = 10;
  EXPECT_EQ(StaleRateShare(settings, 11, 3, 0), 1);
  settings.stale_rate_steps = 0;
  EXPECT_EQ(StaleRateShare(settings, 11, 3, 0), 1);
}

TEST(Training, StepsThatWeightsAreOldFollowFromMicroBatchesOfAStep) {
  TrainingSettings settings;
  EXPECT_EQ(MostStepsOld(settings, 1), 0);
  EXPECT_EQ(MostStepsOld(settings, 3), 2);
  EXPECT_EQ(UsualStepsOld(settings, 3), 2);
  settings.micro_batches = 4;
  EXPECT_EQ(MostStepsOld(settings, 1), 0);
  EXPECT_EQ(MostStepsOld(settings, 2), 1);
  EXPECT_EQ(MostStepsOld(settings, 5), 1);
  EXPECT_EQ(MostStepsOld(settings, 6), 2);
  EXPECT_EQ(UsualStepsOld(settings, 2), 0);
  EXPECT_EQ(UsualStepsOld(settings, 3), 1);
}

TEST(Training, StagesWithRaisedCapsLookAheadByTheirOwnShare) {
  TrainingSettings settings;
  settings.look_ahead = 0.25;
  settings.raised_look_ahead = 0.5;
  EXPECT_EQ(LookAheadShare(settings, 1, 2), 0.25);
  EXPECT_EQ(LookAheadShare(settings, 2, 2), 0.25);
  EXPECT_EQ(LookAheadShare(settings, 4, 2), 0.25) << "three steps old";
  EXPECT_EQ(LookAheadShare(settings, 5, 5), 0.25);
  EXPECT_EQ(LookAheadShare(settings, 5, 2), 0.5);
}

}  // namespace
}  // namespace runnel::training_test
