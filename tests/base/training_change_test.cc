#include "proto/base/training/training_change.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(TrainingChange, TheLastOneThatHoldsCounts) {
  TrainingSettings settings;
  settings.gradient_bits = {{0, {3, 3}}, {1, {2, 2}}};
  const std::vector<TrainingChange> changes = {{40, {1, 0}}, {80, {0, -1}}};
  EXPECT_EQ(GradientBitsAt(settings, {}, 1, 40), (GradientBits{2, 2}));
  EXPECT_EQ(GradientBitsAt(settings, changes, 0, 39), (GradientBits{3, 3}));
  EXPECT_EQ(GradientBitsAt(settings, changes, 1, 39), (GradientBits{2, 2}));
  EXPECT_EQ(GradientBitsAt(settings, changes, 1, 40), (GradientBits{1, 0}));
  EXPECT_EQ(GradientBitsAt(settings, changes, 9, 80), (GradientBits{0, -1}));
}

// A stage that was made with the changes so far hears of the last one again with its grant.
TEST(TrainingChange, IsAddedOnce) {
  std::vector<TrainingChange> changes;
  AddTrainingChange({40, {1, 1}}, changes);
  AddTrainingChange({40, {1, 1}}, changes);
  AddTrainingChange({80, {0, 0}}, changes);
  AddTrainingChange({40, {1, 1}}, changes);
  EXPECT_THAT(changes, SizeIs(2));
  DropChangesAfter(40, changes);
  EXPECT_THAT(changes, SizeIs(1));
}

TEST(TrainingChange, WhatMakesNoSenseIsNamed) {
  EXPECT_TRUE(CheckTrainingChanges({{40, {1, 1}}, {80, {0, -1}}}).ok());
  EXPECT_THAT(std::string(CheckTrainingChanges({{0, {1, 1}}}).message()), HasSubstr("step 0"));
  EXPECT_THAT(std::string(CheckTrainingChanges({{40, {1, 1}}, {40, {1, 1}}}).message()),
              HasSubstr("step 40 follows step 40"));
  EXPECT_THAT(std::string(CheckTrainingChanges({{40, {1, 99}}}).message()), HasSubstr("99 bits"));
}

}  // namespace
}  // namespace runnel
