// From one barrier to the next, and the evaluation there.

#include "central/run/machines/barrier.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/training/dials/barrier_every.h"
#include "proto/base/training/dials/gradient_bits.h"
#include "tests/central/run/machines/machine_effects.h"

namespace runnel::barrier_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class BarrierTest : public ::testing::Test {
 protected:
  BarrierTest()
      : barrier_({.rule = {.every = 40, .steps_per_epoch = 100, .epochs = 3},
                  .stop_step = 250,
                  .eval_samples = 25,
                  .eval_batch_size = 10},
                 Batching::Create(1000, 10, 1, 1).value(), 0),
        active_(ActiveFor(PlanOf({0, 1}, {2, 5}))) {}

  bool Reaches(size_t stage, int64_t step, int generation = 1) {
    return barrier_.AddReached(stage, {Generation(generation), Sequence(step)}, active_);
  }

  Barrier barrier_;
  std::vector<TrainingChange> changes_;
  ActivePlan active_;
  RunEffects effects_;
};

TEST_F(BarrierTest, GrantsUpToTheNextBarrierTheEndIncluded) {
  EXPECT_FALSE(barrier_.begun());
  barrier_.Grant(active_, changes_, effects_);
  EXPECT_TRUE(barrier_.training());
  EXPECT_EQ(barrier_.step(), 40);
  EXPECT_THAT(ReceiversOf<RunUntil>(effects_), ElementsAre(0, 1));
  EXPECT_EQ(MessagesOf<RunUntil>(effects_)[0].second.limit, Sequence(40));
  EXPECT_EQ(EffectsOf<FeedUntil>(effects_)[0].limit, Sequence(40));
  barrier_.Arrive(80, effects_);
  barrier_.Propose(ChangeOfGradientBits(80, {1, 0}));
  barrier_.Grant(active_, changes_, effects_);
  EXPECT_THAT(MessagesOf<RunUntil>(effects_)[2].second.changes,
              ElementsAre(ChangeOfGradientBits(80, {1, 0})));
  EXPECT_EQ(barrier_.step(), 100) << "an evaluation is a barrier";
  barrier_.Arrive(240, effects_);
  barrier_.Grant(active_, changes_, effects_);
  EXPECT_EQ(barrier_.step(), 250);
  EXPECT_TRUE(barrier_.IsLast(250));
}

TEST_F(BarrierTest, IsReachedWhenEveryStageHasSaidSoOnce) {
  barrier_.Grant(active_, changes_, effects_);
  EXPECT_FALSE(Reaches(1, 40));
  EXPECT_FALSE(Reaches(1, 40)) << "said twice";
  EXPECT_FALSE(Reaches(0, 80)) << "another barrier";
  EXPECT_FALSE(Reaches(0, 40, 2)) << "another plan";
  EXPECT_TRUE(Reaches(0, 40));
  effects_.clear();
  barrier_.Arrive(40, effects_);
  EXPECT_FALSE(barrier_.training());
  EXPECT_FALSE(Reaches(0, 40)) << "nothing is granted";
  EXPECT_EQ(RecordsOf<BarrierPassed>(effects_)[0].step, 40);
}

// A stage of the plan that was given up may still report the barrier.
TEST_F(BarrierTest, GoesBackToAnEarlierBarrier) {
  barrier_.Grant(active_, changes_, effects_);
  EXPECT_FALSE(Reaches(0, 40));
  barrier_.GoBackTo(0);
  EXPECT_FALSE(barrier_.training());
  EXPECT_EQ(barrier_.step(), 0);
  EXPECT_FALSE(Reaches(1, 40)) << "nothing is granted any more";
  active_.plan.generation = Generation(2);
  barrier_.Grant(active_, changes_, effects_);
  EXPECT_EQ(MessagesOf<RunUntil>(effects_).back().second.generation, Generation(2));
}

TEST_F(BarrierTest, EvaluatesWhereTheRuleSaysAndAtTheEnd) {
  EXPECT_FALSE(barrier_.EvaluatesAt(40));
  EXPECT_TRUE(barrier_.EvaluatesAt(100));
  EXPECT_TRUE(barrier_.EvaluatesAt(250));
  const Barrier without({.rule = {.every = 40}, .stop_step = 250},
                        Batching::Create(1000, 10, 1, 1).value(), 0);
  EXPECT_FALSE(without.EvaluatesAt(250));
}

TEST_F(BarrierTest, EvaluationsHaveSequencesOfTheirOwn) {
  barrier_.Arrive(100, effects_);
  for (const int64_t first : {0, 3}) {
    effects_.clear();
    barrier_.BeginEvaluation(active_, effects_);
    EXPECT_TRUE(barrier_.evaluating());
    EXPECT_THAT(ReceiversOf<EvaluateRequest>(effects_), ElementsAre(0, 1));
    EXPECT_EQ(EffectsOf<FeedEvaluation>(effects_)[0].first, Sequence(first));
    EXPECT_EQ(EffectsOf<FeedEvaluation>(effects_)[0].micro_batches, 3);
    EXPECT_FALSE(
        *barrier_.AddEvaluation({Generation(1), Sequence(first + 1), 5, 20, 25}, active_, effects_))
        << "another evaluation";
    EXPECT_FALSE(
        *barrier_.AddEvaluation({Generation(2), Sequence(first), 5, 20, 25}, active_, effects_))
        << "of another plan";
    EXPECT_TRUE(
        *barrier_.AddEvaluation({Generation(1), Sequence(first), 5, 20, 25}, active_, effects_));
    EXPECT_FALSE(
        *barrier_.AddEvaluation({Generation(1), Sequence(first), 5, 20, 25}, active_, effects_))
        << "said twice";
    ASSERT_EQ(RecordsOf<EvaluationRecorded>(effects_).size(), 1u);
    const EvaluationRecorded record = RecordsOf<EvaluationRecorded>(effects_)[0];
    EXPECT_EQ(record.step, 100);
    EXPECT_DOUBLE_EQ(record.accuracy, 0.8);
    EXPECT_DOUBLE_EQ(record.loss, 0.2);
  }
}

TEST(BarrierOfTokens, AccuracyIsByLabelAndTheLossBySample) {
  Barrier barrier({.rule = {.every = 40, .steps_per_epoch = 100, .epochs = 3},
                   .stop_step = 250,
                   .eval_samples = 25,
                   .eval_batch_size = 10,
                   .labels_per_sample = 4},
                  Batching::Create(1000, 10, 1, 1).value(), 0);
  const ActivePlan active = ActiveFor(PlanOf({0, 1}, {2, 5}));
  RunEffects effects;
  barrier.BeginEvaluation(active, effects);
  EXPECT_FALSE(
      barrier.AddEvaluation({Generation(1), Sequence(0), 5, 101, 25}, active, effects).ok());
  ASSERT_TRUE(*barrier.AddEvaluation({Generation(1), Sequence(0), 5, 75, 25}, active, effects));
  EXPECT_DOUBLE_EQ(RecordsOf<EvaluationRecorded>(effects)[0].accuracy, 0.75);
  EXPECT_DOUBLE_EQ(RecordsOf<EvaluationRecorded>(effects)[0].loss, 0.2);
}

TEST_F(BarrierTest, AnEvaluationOfOtherSamplesIsAnError) {
  barrier_.BeginEvaluation(active_, effects_);
  EXPECT_THAT(
      std::string(barrier_.AddEvaluation({Generation(1), Sequence(0), 5, 20, 24}, active_, effects_)
                      .status()
                      .message()),
      HasSubstr("evaluated 24 of 25"));
}

// The interval that led to a barrier says whether it is one; the next one may be another.
TEST_F(BarrierTest, AChangeOfTheIntervalHoldsBehindItsBarrier) {
  barrier_.Arrive(40, effects_);
  changes_.push_back(ChangeOfBarrierEvery(40, 15));
  EXPECT_TRUE(barrier_.IsBarrier(40, changes_));
  EXPECT_FALSE(barrier_.IsBarrier(80, changes_));
  barrier_.Grant(active_, changes_, effects_);
  EXPECT_EQ(barrier_.step(), 45);
  barrier_.GoBackTo(40);
  changes_.clear();
  barrier_.Grant(active_, changes_, effects_);
  EXPECT_EQ(barrier_.step(), 80) << "what was decided behind the barrier is void with it";
}

TEST_F(BarrierTest, ThePaceIsThatOfStretchesInWhichNothingElseWasDone) {
  constexpr int64_t kMs = 1'000'000;
  const auto reach = [this](int64_t step, int64_t first_ms, int64_t last_ms) {
    for (const auto& [stage, ms] : {std::pair(1, first_ms), std::pair(0, last_ms)}) {
      barrier_.AddReached(
          static_cast<size_t>(stage),
          {.generation = Generation(1), .sequence = Sequence(step), .arrived_ns = ms * kMs},
          active_);
    }
    barrier_.Arrive(step, effects_);
  };
  barrier_.Grant(active_, changes_, effects_);
  reach(40, 990, 1000);
  EXPECT_DOUBLE_EQ(barrier_.pace().barrier_seconds, 0.020);
  EXPECT_EQ(barrier_.pace().step_seconds, 0) << "nobody knows when it began";
  barrier_.Grant(active_, changes_, effects_);
  reach(80, 1790, 1800);
  EXPECT_DOUBLE_EQ(barrier_.pace().step_seconds, 0.020);
  barrier_.EndEvent();
  barrier_.Grant(active_, changes_, effects_);
  reach(100, 8980, 9000);
  EXPECT_DOUBLE_EQ(barrier_.pace().step_seconds, 0.020) << "something else was between";
  EXPECT_DOUBLE_EQ(barrier_.pace().barrier_seconds, 0.025) << "a quarter of the way from 20 to 40";
  EXPECT_DOUBLE_EQ(barrier_.pace().trained_seconds, 0.8);
  barrier_.GoBackTo(80);
  EXPECT_EQ(barrier_.pace().losses, 0);
  barrier_.CountLoss();
  EXPECT_EQ(barrier_.pace().losses, 1);
}

// Where each barrier has an evaluation through the pipeline, each stretch begins behind one.
TEST_F(BarrierTest, AStretchBehindAnEvaluationIsMeasuredFromItsEnd) {
  constexpr int64_t kMs = 1'000'000;
  const auto reach = [this](int64_t step, int64_t ms) {
    for (const size_t stage : {size_t{1}, size_t{0}}) {
      barrier_.AddReached(
          stage, {.generation = Generation(1), .sequence = Sequence(step), .arrived_ns = ms * kMs},
          active_);
    }
    barrier_.Arrive(step, effects_);
    barrier_.BeginEvaluation(active_, effects_);
    barrier_.EndEvent();
  };
  const auto evaluate = [this](int64_t first, int64_t ms) {
    EvaluationDone done = {Generation(1), Sequence(first), 5, 20, 25};
    done.arrived_ns = ms * kMs;
    ASSERT_TRUE(*barrier_.AddEvaluation(done, active_, effects_));
  };
  barrier_.Grant(active_, changes_, effects_);
  reach(40, 1000);
  EXPECT_EQ(barrier_.standing_ns(), 1000 * kMs);
  evaluate(0, 5000);
  EXPECT_EQ(barrier_.reached_ns(), 1000 * kMs);
  EXPECT_EQ(barrier_.standing_ns(), 5000 * kMs);
  barrier_.Grant(active_, changes_, effects_);
  barrier_.EndEvent();
  reach(80, 5800);
  EXPECT_DOUBLE_EQ(barrier_.pace().step_seconds, 0.020);
  EXPECT_DOUBLE_EQ(barrier_.pace().trained_seconds, 0.8) << "evaluations are no training";
  evaluate(3, 9000);
  barrier_.EndEvent();
  barrier_.Grant(active_, changes_, effects_);
  reach(100, 12000);
  EXPECT_DOUBLE_EQ(barrier_.pace().step_seconds, 0.020) << "something else was between";
}

}  // namespace
}  // namespace runnel::barrier_test
