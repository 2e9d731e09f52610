#include "proto/base/model/rescale.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::rescale_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Rescale, TextsAreRead) {
  EXPECT_EQ(ParseRescale("dynamic").value(), RescaleRule());
  EXPECT_EQ(ParseRescale("speculate").value(), RescaleRule{RescaleMode::kSpeculate});
  EXPECT_EQ(ParseRescale("adaptive").value(), (RescaleRule{RescaleMode::kAdaptive, 100, 64}));
  EXPECT_EQ(ParseRescale("adaptive:7").value(), (RescaleRule{RescaleMode::kAdaptive, 7, 64}));
  EXPECT_EQ(ParseRescale("adaptive:0,1").value(), (RescaleRule{RescaleMode::kAdaptive, 0, 1}));
  EXPECT_EQ(ParseRescale("static:300").value(), (RescaleRule{RescaleMode::kStatic, 300, 64}));
  EXPECT_FALSE(ParseRescale("speculate")->keeps());
  EXPECT_TRUE(ParseRescale("static")->keeps());
}

TEST(Rescale, WhatIsNoRuleIsRefused) {
  for (const char* text : {"", "dyn", "dynamic:", "dynamic:1", "speculate:3", "adaptive:",
                           "adaptive:x", "adaptive:-1", "adaptive:1,0", "adaptive:1,2,3",
                           "adaptive:16777217", "static:1,2", "static:", " static"}) {
    const auto rule = ParseRescale(text);
    ASSERT_FALSE(rule.ok()) << text;
    EXPECT_THAT(rule.status().message(), HasSubstr("must be dynamic, speculate, adaptive["));
  }
}

constexpr RescaleRule kRule = {RescaleMode::kAdaptive, 4, 64};

// Feeds shifts as dynamic rescaling would find them; gives the steps that were measured.
std::vector<int> MeasuredSteps(const RescaleRule& rule, const std::vector<int>& shifts,
                               KeptScale& scale) {
  std::vector<int> measured;
  for (size_t i = 0; i < shifts.size(); ++i) {
    BeginProduct(rule, 2, scale);
    if (MeasuresScale(rule, scale)) {
      measured.push_back(static_cast<int>(i));
      RecordMeasured(rule, shifts[i], scale);
    } else {
      RecordKept(rule, {.max_abs = 1, .saturated = 0, .elements = 1000}, scale);
    }
  }
  return measured;
}

TEST(Rescale, WithoutChangesThePeriodDoublesUpToItsMost) {
  KeptScale scale;
  EXPECT_THAT(MeasuredSteps({RescaleMode::kAdaptive, 4, 8}, std::vector<int>(40, 10), scale),
              ElementsAre(0, 1, 2, 3, 5, 9, 17, 25, 33));
  EXPECT_EQ(scale.shift, 10);
}

TEST(Rescale, ThePeriodIsHalfOfTheMeanIntervalBetweenChanges) {
  std::vector<int> shifts;
  for (int i = 0; i < 200; ++i) shifts.push_back(i / 20 % 2 == 0 ? 10 : 12);
  KeptScale scale;
  const std::vector<int> measured = MeasuredSteps(kRule, shifts, scale);
  EXPECT_LT(measured.size(), 40u);
  EXPECT_GE(scale.period, 5);
  EXPECT_LE(scale.period, 20);
  // A shift that changes each time is measured each time.
  for (int i = 0; i < 200; ++i) shifts[i] = i % 2 * 2;
  scale = {};
  EXPECT_EQ(MeasuredSteps(kRule, shifts, scale).size(), 200u);
}

TEST(Rescale, AShiftThatGoesBackAndForthByOneKeepsTheLargerOne) {
  std::vector<int> shifts;
  for (int i = 0; i < 40; ++i) shifts.push_back(10 + i % 2);
  KeptScale scale;
  EXPECT_THAT(MeasuredSteps({RescaleMode::kAdaptive, 20, 8}, shifts, scale).back(), 33);
  EXPECT_EQ(scale.shift, 11);
  scale = {};
  EXPECT_THAT(MeasuredSteps({RescaleMode::kAdaptive, 0, 8}, {5, 7, 7, 6, 6, 6, 5}, scale),
              ElementsAre(0, 2, 3, 4, 6));
  EXPECT_EQ(scale.shift, 5);
}

TEST(Rescale, APeriodOfOneMeasuresAll) {
  KeptScale scale;
  EXPECT_EQ(MeasuredSteps({RescaleMode::kAdaptive, 0, 1}, std::vector<int>(90, 3), scale).size(),
            90u);
}

TEST(Rescale, StaticMeasuresItsWarmUpAlone) {
  KeptScale scale;
  EXPECT_THAT(MeasuredSteps({RescaleMode::kStatic, 3, 64}, {5, 6, 7, 8, 9, 10}, scale),
              ElementsAre(0, 1, 2));
  EXPECT_EQ(scale.shift, 7);
}

KeptScale Waiting() {
  KeptScale scale;
  MeasuredSteps(kRule, std::vector<int>(10, 6), scale);
  EXPECT_EQ(scale.period, 8);
  EXPECT_EQ(scale.wait, 7);
  return scale;
}

TEST(Rescale, SaturationForcesAMeasurementAndHalvesThePeriod) {
  KeptScale scale = Waiting();
  RecordKept(kRule, {.max_abs = 255 << 6, .saturated = 1, .elements = 1000}, scale);
  EXPECT_FALSE(MeasuresScale(kRule, scale)) << "one of a thousand is allowed";
  RecordKept(kRule, {.max_abs = 255 << 6, .saturated = 2, .elements = 1000}, scale);
  EXPECT_TRUE(MeasuresScale(kRule, scale));
  EXPECT_EQ(scale.period, 4);
  EXPECT_EQ(scale.forced, 1);
  scale = Waiting();
  RecordKept(kRule, {.max_abs = 256 << 6, .saturated = 1, .elements = 1000}, scale);
  EXPECT_TRUE(MeasuresScale(kRule, scale)) << "twice of what fits";
  // Static keeps its scale whatever comes.
  scale = Waiting();
  const RescaleRule fixed = {RescaleMode::kStatic, 4, 64};
  RecordKept(fixed, {.max_abs = 1 << 30, .saturated = 1000, .elements = 1000}, scale);
  EXPECT_FALSE(MeasuresScale(fixed, scale));
}

TEST(Rescale, OtherGradientBitsAreAnotherWarmUp) {
  KeptScale scale = Waiting();
  BeginProduct(kRule, 2, scale);
  EXPECT_FALSE(MeasuresScale(kRule, scale));
  BeginProduct(kRule, 1, scale);
  EXPECT_TRUE(MeasuresScale(kRule, scale));
  EXPECT_EQ(scale.warm_until, scale.step + 4);
}

TEST(Rescale, StatesFromOutsideAreChecked) {
  EXPECT_TRUE(IsValid(KeptScale()));
  EXPECT_TRUE(IsValid(Waiting()));
  KeptScale scale = Waiting();
  scale.shift = 25;
  EXPECT_FALSE(IsValid(scale));
  scale = Waiting();
  scale.ring[11].shift = -1;
  EXPECT_FALSE(IsValid(scale));
  scale = Waiting();
  scale.wait = -1;
  EXPECT_FALSE(IsValid(scale));
}

}  // namespace
}  // namespace runnel::rescale_test
