#include "central/run/machines/evaluations_beside.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/central/run/machines/machine_effects.h"

namespace runnel::evaluations_beside_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Answer = EvaluationsBeside::Answer;

class EvaluationsBesideTest : public ::testing::Test {
 protected:
  Answer Add(int64_t step, int generation = 1) {
    return evaluations_.Add(step, Generation(generation), EvaluationFigures{0.5, 1.5}, effects_);
  }

  Answer Fail(int64_t step) {
    return evaluations_.Add(step, Generation(1), absl::InternalError("no room"), effects_);
  }

  EvaluationsBeside evaluations_{true, {}, 0};
  RunEffects effects_;
};

TEST_F(EvaluationsBesideTest, JournalsWhatItWaitsForOnce) {
  evaluations_.Begin(100, Generation(1));
  EXPECT_EQ(Add(200), Answer::kIgnored) << "another step";
  EXPECT_EQ(Add(100, 2), Answer::kIgnored) << "another plan";
  EXPECT_THAT(effects_, IsEmpty());
  EXPECT_EQ(Add(100), Answer::kRecorded);
  EXPECT_EQ(Add(100), Answer::kIgnored) << "said twice";
  ASSERT_THAT(RecordsOf<EvaluationRecorded>(effects_), SizeIs(1));
  EXPECT_EQ(RecordsOf<EvaluationRecorded>(effects_)[0].step, 100);
  EXPECT_FALSE(evaluations_.under_way());
}

TEST_F(EvaluationsBesideTest, IsFullWhenItHoldsTheStatesThatItMay) {
  for (size_t i = 0; i < EvaluationsBeside::kMost; ++i) {
    EXPECT_FALSE(evaluations_.is_full());
    evaluations_.Begin(static_cast<int64_t>(i), Generation(1));
  }
  EXPECT_TRUE(evaluations_.is_full());
}

TEST_F(EvaluationsBesideTest, AfterAFailureTheNextBarrierIsEvaluated) {
  evaluations_.Begin(100, Generation(1));
  EXPECT_FALSE(evaluations_.is_due());
  EXPECT_EQ(Fail(100), Answer::kFailed);
  EXPECT_TRUE(evaluations_.is_due());
  EXPECT_TRUE(evaluations_.is_on()) << "it may have been killed";
  evaluations_.Begin(120, Generation(1));
  EXPECT_FALSE(evaluations_.is_due());
  EXPECT_EQ(Add(120), Answer::kRecorded);
  evaluations_.Begin(200, Generation(1));
  EXPECT_EQ(Fail(200), Answer::kFailed);
  EXPECT_TRUE(evaluations_.is_on()) << "the one before was good";
}

TEST_F(EvaluationsBesideTest, AfterTwoFailuresThePipelineEvaluates) {
  for (const int64_t step : {100, 120}) {
    evaluations_.Begin(step, Generation(1));
    EXPECT_EQ(Fail(step), Answer::kFailed);
  }
  EXPECT_FALSE(evaluations_.is_on());
  EXPECT_TRUE(evaluations_.is_due()) << "there is no figure yet";
  evaluations_.BeginThroughPipeline();
  EXPECT_FALSE(evaluations_.is_due());
  const ActivePlan active = ActiveFor(PlanOf({0, 1}, {2, 5}));
  const std::vector<DeviceTimes> times;
  EXPECT_FALSE(
      evaluations_.IsWorth({200, active.plan, Sequence(), active.stages, {}, times}, 0, effects_));
  EXPECT_THAT(EffectsOf<LogLine>(effects_)[0].text,
              HasSubstr("(no room); the next barrier is evaluated in its place"));
  EXPECT_THAT(EffectsOf<LogLine>(effects_)[1].text, HasSubstr("through the pipeline"));
}

TEST_F(EvaluationsBesideTest, WhatIsLaterThanTheBarrierOfARecoveryIsForgotten) {
  evaluations_.Begin(100, Generation(1));
  evaluations_.Begin(200, Generation(1));
  evaluations_.GoBackTo(100);
  EXPECT_EQ(Add(200), Answer::kIgnored);
  EXPECT_EQ(Add(100), Answer::kRecorded);
}

}  // namespace
}  // namespace runnel::evaluations_beside_test
