// What a second measurement of workers on one host asks for, and what it changes.

#include "central/run/machines/measuring/second_times.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::second_times_test {
namespace {

using ::testing::ElementsAre;

TEST(RunsAlikeInTime, AreCutWhereTheTimeIsDivided) {
  EXPECT_THAT(RunsAlikeInTime({1, 1, 1, 3, 3}, 3),
              ElementsAre(LayerRange{0, 2}, LayerRange{3, 3}, LayerRange{4, 4}));
  EXPECT_THAT(RunsAlikeInTime({9, 1, 1}, 2), ElementsAre(LayerRange{0, 0}, LayerRange{1, 2}));
  EXPECT_THAT(RunsAlikeInTime({1, 1, 9}, 2), ElementsAre(LayerRange{0, 1}, LayerRange{2, 2}));
  EXPECT_THAT(RunsAlikeInTime({1, 2, 3}, 1), ElementsAre(LayerRange{0, 2}));
  EXPECT_THAT(RunsAlikeInTime({0, 0}, 5), ElementsAre(LayerRange{0, 0}, LayerRange{1, 1}));
}

SecondTimes Asked(const std::vector<double>& ratios, double share = 0.5) {
  SecondTimes times;
  for (size_t i = 0; i < ratios.size(); ++i) {
    const auto device = static_cast<int>(i);
    times.Ask(device, {0, 1}, 2);
    if (ratios[i] > 0) times.Add(device, 2 * ratios[i], share);
  }
  return times;
}

TEST(SecondTimes, TheMedianCountsWhereDevicesAgree) {
  EXPECT_DOUBLE_EQ(Asked({1.2, 1.25, 1.21}).ScaleOf({0, 1, 2}, 0), 1.21);
  EXPECT_DOUBLE_EQ(Asked({1.2, 1.3}).ScaleOf({0, 1}, 0), 1.25);
}

TEST(SecondTimes, WhatOneSaysOrTheyDoNotAgreeOnCountsHalf) {
  EXPECT_DOUBLE_EQ(Asked({1, 1.2, 1.6}).ScaleOf({0, 1, 2}, 0), 1.1);
  EXPECT_DOUBLE_EQ(Asked({1.4}).ScaleOf({0}, 0), 1.2);
  EXPECT_DOUBLE_EQ(Asked({1.4, 0}).ScaleOf({0, 1}, 0), 1.2) << "the other was lost";
}

// Three on two processors: each a whole one means that they took turns.
TEST(SecondTimes, WhatWasNotMeasuredAtTheSameTimeCountsHalf) {
  EXPECT_DOUBLE_EQ(Asked({1.2, 1.2, 1.2}, 1).ScaleOf({0, 1, 2}, 2), 1.1);
  EXPECT_DOUBLE_EQ(Asked({1.2, 1.2, 1.2}, 0.7).ScaleOf({0, 1, 2}, 2), 1.2);
  EXPECT_DOUBLE_EQ(Asked({1.2, 1.2}, 1).ScaleOf({0, 1}, 2), 1.2) << "each has one";
  EXPECT_DOUBLE_EQ(Asked({1.2, 1.2, 1.2}, 1).ScaleOf({0, 1}, 2), 1.1) << "one of another class";
}

TEST(SecondTimes, NoAnswerChangesNothing) {
  EXPECT_DOUBLE_EQ(Asked({0, 0}).ScaleOf({0, 1}, 0), 1);
  EXPECT_DOUBLE_EQ(Asked({}).ScaleOf({0, 1}, 0), 1);
}

}  // namespace
}  // namespace runnel::second_times_test
