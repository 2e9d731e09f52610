// The tables of optimizers and rates: each row is chosen by its name alone and by as many of its
// parameters as one likes; everything else is a line that says what there is.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/model/number_format.h"
#include "proto/base/training/optimizer.h"
#include "proto/base/training/rates/rate.h"
#include "proto/base/training/training_fields.h"
#include "proto/base/turns.h"

namespace runnel::choice_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr ChoiceRow kRows[] = {
    {"plain", "nothing to say"},
    {"two", "two numbers", {{{"FIRST", 0.5, {0, 1, true}}, {"SECOND", 3, {1, 9}}}}},
};

std::string ErrorOf(absl::string_view text) {
  return std::string(ParseChoice("thing", kRows, text).status().message());
}

TEST(Choice, ReadsARowAndItsNumbers) {
  EXPECT_THAT(ParseChoice("thing", kRows, "two")->values, ElementsAre(0.5, 3));
  EXPECT_THAT(ParseChoice("thing", kRows, "two:0.25")->values, ElementsAre(0.25, 3));
  EXPECT_THAT(ParseChoice("thing", kRows, "two:0.25,4")->values, ElementsAre(0.25, 4));
  EXPECT_EQ(ParseChoice("thing", kRows, "plain")->row, 0u);
  EXPECT_EQ(ChoiceHelp(kRows), "plain (nothing to say), two[:FIRST,SECOND] (two numbers)");
}

TEST(Choice, RefusesWithWhatThereIs) {
  EXPECT_EQ(ErrorOf("tow"), "thing 'tow' is not known; there is plain, two[:FIRST,SECOND]");
  EXPECT_EQ(ErrorOf(""), "thing '' is not known; there is plain, two[:FIRST,SECOND]");
  EXPECT_EQ(ErrorOf("two:1"), "thing 'two:1': FIRST must be below 1");
  EXPECT_EQ(ErrorOf("two:0,0"), "thing 'two:0,0': SECOND must be at least 1");
  EXPECT_EQ(ErrorOf("two:nan"), "thing 'two:nan': FIRST must be a finite number");
  EXPECT_EQ(ErrorOf("two:x"), "thing 'two:x': 'x' is no number");
  EXPECT_EQ(ErrorOf("two:"), "thing 'two:': '' is no number");
  EXPECT_EQ(ErrorOf("two:0,1,2"), "thing 'two:0,1,2': does not fit two[:FIRST,SECOND]");
  EXPECT_EQ(ErrorOf("plain:1"), "thing 'plain:1': does not fit plain");
  EXPECT_THAT(ErrorOf("\xff"), HasSubstr("'\\xff'"));
}

TEST(OptimizerTable, EachRowIsChosenByItsName) {
  ASSERT_EQ(Optimizers()[0].choice.name, "sgd");
  for (const Optimizer& optimizer : Optimizers()) {
    const auto choice = ParseOptimizer(optimizer.choice.name);
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(choice->optimizer, &optimizer);
    EXPECT_EQ(choice->parameters.size(), optimizer.choice.parameters().size());
    for (const ChoiceParameter& parameter : optimizer.choice.parameters())
      EXPECT_TRUE(CheckSetting(parameter.range, parameter.fallback).ok()) << parameter.name;
    TrainingSettings settings;
    settings.optimizer = std::string(optimizer.choice.name);
    EXPECT_EQ(IsStored(*FindTrainingField("optimizer"), settings), &optimizer != &Optimizers()[0])
        << "journals of sgd are as they were";
  }
}

TEST(OptimizerTable, SlotsAreTensorsBesideTheFp32Parameters) {
  const std::vector<StateTensorSpec> state = {{"0.weight", 0, TensorRole::kWeight, {2, 3}},
                                              {"1.mean", 1, TensorRole::kRunningMean, {2}}};
  const auto names = [&](absl::string_view optimizer) {
    std::vector<std::string> names;
    NumberFormat format;
    format.slots = ParseOptimizer(optimizer)->optimizer->slots();
    for (const StateTensorSpec& slot : SlotsOf(state, format)) {
      EXPECT_TRUE(slot.shape == state[0].shape);
      names.push_back(slot.name);
    }
    return names;
  };
  // As in check-points of before there was a table.
  EXPECT_THAT(names("sgd"), ElementsAre("0.weight"));
  for (const Optimizer& optimizer : Optimizers())
    EXPECT_EQ(names(optimizer.choice.name).size(), optimizer.slots().size());
}

TrainingSettings SettingsOf(absl::string_view rate) {
  TrainingSettings settings;
  settings.learning_rate = 0.5;
  settings.milestones = {2, 4};
  settings.run_steps = 60;
  settings.warm_up_steps = 10;
  settings.rate = std::string(rate);
  return settings;
}

// Never above --lr, which each row reaches; from there on it never rises.
TEST(RateTable, EachRowFallsFromTheRate) {
  ASSERT_EQ(Rates()[0].choice.name, "milestones");
  for (const Rate& rate : Rates()) {
    const TrainingSettings settings = SettingsOf(rate.choice.name);
    EXPECT_TRUE(CheckSetting({}, static_cast<double>(settings.run_steps)).ok());
    double before = 0.5, top = 0;
    for (int64_t step = 0; step < settings.run_steps; ++step) {
      const double now = RunRate(settings, step / 10, step);
      EXPECT_LE(now, before) << rate.choice.name << " at " << step;
      top = std::max(top, now);
      EXPECT_GE(now, 0) << rate.choice.name << " at " << step;
      before = top > 0.5 - 1e-9 ? now : 0.5;
    }
    EXPECT_NEAR(top, 0.5, 1e-9) << rate.choice.name;
    // A run without steps that are known, and steps beyond them, have a rate too.
    EXPECT_GE(RunRate(settings, 9, 1000), 0);
    TrainingSettings unknown = settings;
    unknown.run_steps = 0;
    EXPECT_GE(RunRate(unknown, 0, 7), 0);
  }
}

TEST(RateTable, ConstantLooksAtNoMilestone) {
  EXPECT_EQ(RunRate(SettingsOf("constant"), 9, 59), 0.5);
}

TEST(Turns, TheSameSineEverywhere) {
  EXPECT_EQ(SinTurns(0), 0);
  EXPECT_NEAR(SinTurns(0.25), 1, 1e-9);
  EXPECT_NEAR(CosTurns(0.5), -1, 1e-9);
}

}  // namespace
}  // namespace runnel::choice_test
