#include "proto/base/training/training_change.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/training/dials/dials.h"
#include "proto/base/training/dials/gradient_bits.h"

namespace runnel::training_change_test {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(TrainingChange, TheLastOneThatHoldsCounts) {
  TrainingSettings settings;
  settings.gradient_bits = {{0, {3, 3}}, {1, {2, 2}}};
  const std::vector<TrainingChange> changes = {ChangeOfGradientBits(40, {1, 0}),
                                               ChangeOfGradientBits(80, {0, -1})};
  EXPECT_EQ(GradientBitsAt(settings, {}, 1, 40), (GradientBits{2, 2}));
  EXPECT_EQ(GradientBitsAt(settings, changes, 0, 39), (GradientBits{3, 3}));
  EXPECT_EQ(GradientBitsAt(settings, changes, 1, 39), (GradientBits{2, 2}));
  EXPECT_EQ(GradientBitsAt(settings, changes, 1, 40), (GradientBits{1, 0}));
  EXPECT_EQ(GradientBitsAt(settings, changes, 9, 80), (GradientBits{0, -1}));
}

// A stage that was made with the changes so far hears of the last one again with its grant.
TEST(TrainingChange, IsAddedOnce) {
  std::vector<TrainingChange> changes;
  const auto bits = [](int64_t step, int32_t value) {
    return ChangeOfGradientBits(step, {value, value});
  };
  for (const TrainingChange& change : {bits(40, 1), bits(40, 1), bits(80, 0), bits(40, 1)})
    AddTrainingChange(change, changes);
  EXPECT_THAT(changes, SizeIs(2));
  AddTrainingChange({40, "another", "1"}, changes);
  EXPECT_THAT(changes, SizeIs(3)) << "each dial has steps of its own";
  DropChangesAfter(40, changes);
  EXPECT_THAT(changes, SizeIs(2));
}

std::string ErrorOf(const std::vector<TrainingChange>& changes) {
  return std::string(CheckTrainingChanges(changes).message());
}

TEST(TrainingChange, WhatMakesNoSenseIsNamed) {
  const TrainingChange change = ChangeOfGradientBits(40, {1, 1});
  EXPECT_EQ(ErrorOf({change, ChangeOfGradientBits(80, {0, -1})}), "");
  EXPECT_THAT(ErrorOf({ChangeOfGradientBits(0, {1, 1})}), HasSubstr("step 0"));
  EXPECT_THAT(ErrorOf({change, change}), HasSubstr("step 40 follows step 40"));
  EXPECT_THAT(ErrorOf({change, ChangeOfGradientBits(20, {1, 1})}),
              HasSubstr("step 20 follows step 40"));
  EXPECT_THAT(ErrorOf({ChangeOfGradientBits(40, {1, 99})}), HasSubstr("gradient bits: 99 bits"));
  EXPECT_THAT(ErrorOf({{40, "volume", "11"}}),
              HasSubstr("dial 'volume' is not known; dials: gradient_bits"));
  EXPECT_THAT(ErrorOf({{40, "gradient_bits", std::string(257, '1')}}), HasSubstr("257 bytes"));
}

// What every row promises.
TEST(Dials, EachHasANameOfItsOwnAndRefusesNonsense) {
  for (const Dial& dial : Dials()) {
    SCOPED_TRACE(dial.name);
    EXPECT_EQ(*FindDial(dial.name), &dial);
    EXPECT_EQ(dial.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"), dial.name.npos);
    // Keys of the journal's record.
    for (const char* taken : {"record", "version", "from_step", "why"}) EXPECT_NE(dial.name, taken);
    EXPECT_FALSE(dial.label.empty());
    for (const char* nonsense : {"", "?", "\xff"})
      EXPECT_EQ(dial.check(nonsense).code(), absl::StatusCode::kInvalidArgument) << nonsense;
  }
}

}  // namespace
}  // namespace runnel::training_change_test
