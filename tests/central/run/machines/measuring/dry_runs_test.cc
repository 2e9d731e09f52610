// When it is measured what codecs add to the gradients' noise, and what becomes of it.

#include "central/run/machines/measuring/dry_runs.h"

#include <limits>

#include "central/planning/bandwidth_bits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/codecs.h"
#include "tests/central/run/machines/training_cluster.h"

namespace runnel::dry_runs_test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

// One way that loses something: it is measured once.
Plan WithCodec(Plan plan, const char* codec) {
  plan.links[0].codec_forward = Codecs(codec);
  return plan;
}
const Plan kLossy = WithCodec(PlanOf({0, 1, 2}, {1, 3, 5}), "eden:4");

class DryRunsTest : public ::testing::Test {
 protected:
  static constexpr int64_t kSecond = 1'000'000'000;

  void Make(const DryRunOptions& options) {
    runs_.emplace(options, Batching::Create(1000, 10, 2, 1).value());
    active_ = ActiveFor(kLossy);
  }
  // At a barrier; steps take a second each.
  bool Begins(int64_t step, double loss = 1, int64_t seconds_off = 0) {
    Telemetry& telemetry = active_.stages.back().telemetry;
    telemetry.loss_sum += loss * static_cast<double>(step - at_);
    telemetry.loss_samples += step - at_;
    at_ = step;
    now_ns_ = (step + seconds_off) * kSecond;
    effects_.clear();
    BarrierReport report = {step, active_.plan, Sequence(0), active_.stages, {}, no_times_};
    report.changes = &changes_;
    return runs_->Begin(report, now_ns_, active_, effects_);
  }
  // All stages report: `error` of a variance of 1.
  std::optional<NoiseMeasured> Ends(double error, int64_t seconds = 0) {
    std::optional<NoiseMeasured> noise;
    for (const auto& [to, request] : MessagesOf<DryRunRequest>(effects_)) {
      EXPECT_FALSE(noise.has_value());
      const GradientSums sums{4, 1, 3, 0, 3 * error};
      noise =
          runs_->Add(static_cast<size_t>(to),
                     {Generation(1), request.first, sums, now_ns_ + seconds * kSecond}, active_);
    }
    return noise;
  }

  std::optional<DryRuns> runs_;
  ActivePlan active_;
  RunEffects effects_;
  const std::vector<DeviceTimes> no_times_;
  std::vector<TrainingChange> changes_;
  int64_t at_ = 0;
  int64_t now_ns_ = 0;
};

TEST_F(DryRunsTest, FromTheStepThatWasAskedForAndWhenTheLossHasHalved) {
  Make({.from_step = 30, .stop_step = 900});
  EXPECT_FALSE(Begins(20));
  ASSERT_TRUE(Begins(40, 2));
  ASSERT_EQ(MessagesOf<DryRunRequest>(effects_).size(), 3u);
  const FeedDryRun feed = EffectsOf<FeedDryRun>(effects_)[0];
  EXPECT_EQ(feed.training_first, Sequence(80));
  const std::optional<NoiseMeasured> noise = Ends(0.02);
  ASSERT_TRUE(noise.has_value());
  EXPECT_NEAR(noise->added, 0.02, 1e-9);
  EXPECT_GT(noise->by_table, 0);
  EXPECT_EQ(noise->codecs, "4 bits forward");
  EXPECT_THAT(ToString(*noise), HasSubstr("4 bits forward add 2 % to the gradients' noise"));
  EXPECT_FALSE(Begins(40, 2)) << "done";
  EXPECT_FALSE(Begins(60, 1.5));
  ASSERT_TRUE(Begins(80, 0.9));
  EXPECT_GT(EffectsOf<FeedDryRun>(effects_)[0].first, feed.first);
  Ends(0.02);
  EXPECT_FALSE(Begins(100, 0.5));
  EXPECT_FALSE(Begins(899, 0.1)) << "the run ends before";
}

TEST_F(DryRunsTest, AgainWithOtherCodecsAndNeverWithoutALoss) {
  Make({.from_step = 1, .stop_step = 900});
  active_.plan = WithCodec(active_.plan, "identity");
  EXPECT_FALSE(Begins(20));
  active_.plan = WithCodec(active_.plan, "eden:4");
  ASSERT_TRUE(Begins(40));
  Ends(0.02);
  EXPECT_FALSE(Begins(60));
  active_.plan = WithCodec(active_.plan, "eden:5");
  EXPECT_TRUE(Begins(80));
}

// Codec recipe is the level's: by the table, in words, and at a turn another one.
TEST_F(DryRunsTest, TheRecipesCodecIsThatOfTheLevel) {
  TrainingSettings training;
  training.precision = "pfq:3,6/6,8";
  const auto with_levels = [&] {
    DryRunOptions options = {.from_step = 1, .stop_step = 900};
    options.levels = LinkLevels::Of("sbm:8,8,8", training, {}).value();
    Make(options);
    active_.plan = WithCodec(active_.plan, "recipe");
  };
  with_levels();
  ASSERT_TRUE(Begins(20));
  const std::optional<NoiseMeasured> noise = Ends(0.02);
  ASSERT_TRUE(noise.has_value());
  EXPECT_EQ(noise->codecs, "3 bits forward");
  EXPECT_EQ(noise->by_table, NoiseByTable(WithCodec(active_.plan, "grid:3"), 0));
  EXPECT_GT(noise->by_table, 50 * NoiseByTable(WithCodec(active_.plan, "grid:8"), 0));
  EXPECT_FALSE(Begins(40));
  changes_ = {ChangeOfPrecision(60, 1)};
  ASSERT_TRUE(Begins(60));
  const std::optional<NoiseMeasured> turned = Ends(0.02);
  EXPECT_EQ(turned->codecs, "6 bits forward");
  EXPECT_EQ(turned->by_table, NoiseByTable(WithCodec(active_.plan, "grid:6"), 0));

  // A cycle is measured once, by the bits of its step.
  changes_.clear();
  training.precision = "cpt:3,8/8";
  training.run_steps = 900;
  at_ = 0;
  with_levels();
  ASSERT_TRUE(Begins(14));
  const std::optional<NoiseMeasured> cycle = Ends(0.02);
  EXPECT_EQ(cycle->codecs, "recipe forward");
  EXPECT_NE(cycle->by_table, NoiseByTable(active_.plan, 0));
  EXPECT_FALSE(Begins(20));
}

// 3 stages, 8 passes, half a second a micro-batch: 12 s of 0.5 % of the run.
TEST_F(DryRunsTest, WithinAShareOfTheRun) {
  Make({.from_step = 0, .stop_step = 2390});
  EXPECT_FALSE(Begins(100));
  EXPECT_FALSE(Begins(400)) << "too dear";
  Make({.from_step = 0, .stop_step = 2410});
  EXPECT_FALSE(Begins(100)) << "too early";
  ASSERT_TRUE(Begins(500));
  Ends(0.02, 5);
  EXPECT_TRUE(Begins(600, 0.4, 5)) << "10 s of 12";
  Ends(0.02, 5);
  EXPECT_FALSE(Begins(700, 0.1, 10)) << "15 s";

  // A run that goes on has spent what it has, not a share of its own again.
  const std::string state = runs_->StateAt(700);
  Make({.from_step = 0, .stop_step = 2410});
  ASSERT_TRUE(runs_->Restore(state).ok());
  EXPECT_EQ(runs_->StateAt(700), state);
  EXPECT_FALSE(Begins(800, 0.1));
  EXPECT_FALSE(Begins(900, 0.1)) << "15 s";
  // Of an earlier release, which kept the last measurement alone.
  Make({.from_step = 0, .stop_step = 2410});
  ASSERT_TRUE(runs_->Restore(state.substr(0, state.find('\n'))).ok());
  EXPECT_FALSE(Begins(1000, 0.1));
  EXPECT_TRUE(Begins(1100, 0.1));
  for (const char* bad : {"\n", "\n1", "\n0 1", "\n1 x", "\n1 -1", "\n1 nan", "\n1 1\n"})
    EXPECT_FALSE(DryRuns::CheckState(state.substr(0, state.find('\n')) + bad).ok()) << bad;
}

// Exact tensors are large on slow links: 5 kB and 1 kB a frame at 10 kB/s, once a micro-batch.
TEST_F(DryRunsTest, TheFirstEstimateKnowsTheLinks) {
  for (const int64_t stop_step : {2870, 2890}) {
    Make({.from_step = 0, .stop_step = stop_step});
    active_.stages[0].telemetry.frames_down = 10;
    active_.stages[0].telemetry.raw_bytes_down = 50'000;
    active_.stages[0].telemetry.bytes_down = 10'000;
    active_.stages[1].telemetry.upstream_bytes_per_second = 10'000;
    EXPECT_FALSE(Begins(100));
    EXPECT_EQ(Begins(500), stop_step == 2890) << "12 and 2.4 s";
  }
}

TEST_F(DryRunsTest, IsGivenUpAndGoesOnFromACheckpoint) {
  Make({.from_step = 1, .stop_step = 900});
  ASSERT_TRUE(Begins(40));
  ASSERT_TRUE(Ends(0.02).has_value());
  ASSERT_TRUE(Begins(80, 0.4));
  EXPECT_TRUE(runs_->under_way());
  runs_->GoBackTo(60);
  EXPECT_FALSE(runs_->under_way());
  EXPECT_FALSE(Ends(0.5).has_value()) << "from before";
  EXPECT_EQ(runs_->StateAt(20), "");
  const std::string state = runs_->StateAt(60);
  runs_->GoBackTo(20);
  EXPECT_EQ(runs_->last(), nullptr);
  Make({.from_step = 1, .stop_step = 900});
  ASSERT_TRUE(runs_->Restore(state).ok());
  EXPECT_NEAR(runs_->last()->added, 0.02, 1e-9);
  EXPECT_FALSE(Begins(100)) << "the loss is as it was";
  for (const char* bad : {"x", "{}", R"({"record":"barrier","version":2,"step":4})"})
    EXPECT_FALSE(DryRuns::CheckState(bad).ok()) << bad;
}

Plan WithTwoWays() {
  Plan plan = kLossy;
  plan.links[1].codec_backward = Codecs("eden:5");
  return plan;
}

// First all codecs at once, then each way by itself, the noisiest by the table first.
TEST_F(DryRunsTest, WaysHaveTheirTurnBarrierByBarrier) {
  Make({.from_step = 30, .stop_step = 900});
  active_ = ActiveFor(WithTwoWays());
  ASSERT_TRUE(Begins(40));
  EXPECT_EQ(MessagesOf<DryRunRequest>(effects_)[0].second.coded, CodedWays());
  const std::optional<NoiseMeasured> whole = Ends(0.03);
  ASSERT_TRUE(whole.has_value());
  ASSERT_EQ(whole->ways.size(), 2u);
  EXPECT_FALSE(whole->way.has_value());
  EXPECT_NEAR(whole->ways[0].added + whole->ways[1].added, 0.03, 1e-12);
  ASSERT_TRUE(Begins(60));
  const auto requests = MessagesOf<DryRunRequest>(effects_);
  ASSERT_EQ(requests.size(), 3u);
  for (const auto& [to, request] : requests)
    EXPECT_EQ(request.coded, (CodedWays{.link = 0, .forward = true}));
  const std::optional<NoiseMeasured> first = Ends(0.02);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->step, 60);
  EXPECT_NEAR(first->added, 0.03, 1e-9) << "that of all at once";
  EXPECT_NEAR(first->ways[0].added, 0.02, 1e-9);
  EXPECT_NEAR(first->ways[1].added, 0.01, 1e-9);
  EXPECT_THAT(ToString(*first), HasSubstr("eden:4 from stage 0 to 1 alone adds 2 % to the"));
  ASSERT_TRUE(Begins(80));
  EXPECT_EQ(MessagesOf<DryRunRequest>(effects_)[0].second.coded,
            (CodedWays{.link = 1, .backward = true}));
  Ends(0.004);
  EXPECT_NEAR(runs_->last()->ways[1].added, 0.004, 1e-9);
  EXPECT_FALSE(Begins(100)) << "all have had theirs";
  ASSERT_TRUE(Begins(120, 0.4)) << "the loss has halved since all were measured at once";
  EXPECT_EQ(MessagesOf<DryRunRequest>(effects_)[0].second.coded, CodedWays());
}

TEST_F(DryRunsTest, AWayThatIsNotFiniteIsSaidAndNotUsed) {
  Make({.from_step = 30, .stop_step = 9000});
  active_ = ActiveFor(WithTwoWays());
  ASSERT_TRUE(Begins(40));
  Ends(0.03);
  ASSERT_TRUE(Begins(60));
  const std::optional<NoiseMeasured> noise = Ends(std::numeric_limits<double>::infinity());
  ASSERT_TRUE(noise.has_value());
  EXPECT_THAT(ToString(*noise), HasSubstr("could not be measured"));
  EXPECT_EQ(runs_->last()->step, 40);
  const auto way = [this] { return MessagesOf<DryRunRequest>(effects_)[0].second.coded; };
  ASSERT_TRUE(Begins(80));
  EXPECT_EQ(way(), (CodedWays{.link = 1, .backward = true})) << "the next one";
  Ends(0.01);
  EXPECT_FALSE(Begins(100)) << "not again";
  ASSERT_TRUE(Begins(120, 0.4)) << "all at once";
  Ends(0.03);
  ASSERT_TRUE(Begins(140, 0.4));
  EXPECT_EQ(way().link, 0) << "another time";
}

// As many turns as the ways want would leave nothing for what all codecs add when the loss halves.
TEST_F(DryRunsTest, WaysLeaveHalfOfTheTimeToAllCodecsAtOnce) {
  Make({.from_step = 0, .stop_step = 10'100});
  active_ = ActiveFor(WithTwoWays());
  EXPECT_FALSE(Begins(100));
  int64_t spent = 0, step = 400;
  double loss = 1;
  int wholes = 0, ways = 0;
  for (int halved = 0; halved < 20; ++halved, loss *= 0.4) {
    for (int barrier = 0; barrier < 5; ++barrier) {
      if (!Begins(step += 50, loss, spent)) continue;
      const bool is_whole = MessagesOf<DryRunRequest>(effects_)[0].second.coded == CodedWays();
      (is_whole ? wholes : ways) += 1;
      ASSERT_TRUE(Ends(0.02, 5).has_value());
      spent += 5;
    }
  }
  EXPECT_EQ(wholes + ways, 10) << "50 s of 50.5";
  EXPECT_EQ(ways, 3) << "behind the first and, within half of it, the second";
}

// Asked for, all have one turn whatever that costs; more are within the share.
TEST_F(DryRunsTest, FromTheStepThatWasAskedForWaysHaveOneTurnWhateverItCosts) {
  Make({.from_step = 30, .stop_step = 900});
  active_ = ActiveFor(WithTwoWays());
  for (const int64_t step : {40, 60, 80}) {
    ASSERT_TRUE(Begins(step)) << step;
    Ends(0.02, 5);
  }
  ASSERT_TRUE(Begins(120, 0.4));
  Ends(0.02, 5);
  EXPECT_FALSE(Begins(140, 0.4)) << "4.5 s, or 2.3 for ways";
  EXPECT_TRUE(Begins(160, 0.1));
}

// Two links have changed their codecs: the text is the same.
TEST_F(DryRunsTest, AgainWhereAWayHasAnotherCodec) {
  Plan plan = kLossy;
  plan.links[1].codec_forward = Codecs("eden:5");
  Plan other = plan;
  std::swap(other.links[0].codec_forward, other.links[1].codec_forward);
  ASSERT_EQ(LossyCodecsText(plan), LossyCodecsText(other));
  Make({.from_step = 30, .stop_step = 9000});
  active_ = ActiveFor(plan);
  ASSERT_TRUE(Begins(40));
  Ends(0.02);
  active_ = ActiveFor(other);
  ASSERT_TRUE(Begins(60));
  EXPECT_EQ(MessagesOf<DryRunRequest>(effects_)[0].second.coded, CodedWays());
  Ends(0.02);
  EXPECT_EQ(runs_->last()->ways[0].codecs, "eden:5");
  EXPECT_TRUE(Begins(80)) << "a way";
}

// A resumed run goes on with the way that is next; ways of another cut have none.
TEST_F(DryRunsTest, TurnsGoOnFromACheckpointWhereTheCutIsTheSame) {
  Make({.from_step = 30, .stop_step = 900});
  active_ = ActiveFor(WithTwoWays());
  ASSERT_TRUE(Begins(40));
  Ends(0.03);
  ASSERT_TRUE(Begins(60));
  Ends(0.02);
  const std::string at_40 = runs_->StateAt(40), at_60 = runs_->StateAt(60);
  runs_->GoBackTo(40);
  EXPECT_FALSE(runs_->last()->ways[0].measured);
  for (const auto& [state, link] : {std::pair(at_40, 0), std::pair(at_60, 1)}) {
    Make({.from_step = 30, .stop_step = 900});
    active_ = ActiveFor(WithTwoWays());
    ASSERT_TRUE(runs_->Restore(state).ok());
    EXPECT_EQ(runs_->StateAt(60), state);
    ASSERT_TRUE(Begins(80));
    EXPECT_EQ(MessagesOf<DryRunRequest>(effects_)[0].second.coded.link, link);
  }
  Make({.from_step = 30, .stop_step = 900});
  active_ = ActiveFor(WithTwoWays());
  active_.plan.stages[0].last_layer = active_.plan.stages[1].first_layer = 2;
  ASSERT_TRUE(runs_->Restore(at_60).ok());
  EXPECT_FALSE(Begins(80));
}

TEST(CoordinatorDryRun, TellsThePlannerOfEachWay) {
  TrainingCluster cluster(WithTwoWays(), 1, 0, -1, false, {}, /*measure_noise=*/40);
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_EQ(cluster.log(), " plan1 b40 n40 b80 n80 b120 end120");
  ASSERT_EQ(cluster.planner().noise.size(), 2u);
  EXPECT_FALSE(cluster.planner().noise[0].way.has_value());
  EXPECT_EQ(cluster.planner().noise[1].way, 0);
  EXPECT_THAT(cluster.lines(), HasSubstr("step 80: eden:4 from stage 0 to 1 alone adds 2 %"));
}

TEST(CoordinatorDryRun, IsJournalledAndThePlannerIsToldBeforeItIsAsked) {
  TrainingCluster cluster(kLossy, 1, 0, -1, true, {}, /*measure_noise=*/50);
  cluster.planner().at_barrier = [&](const BarrierReport& report) {
    EXPECT_EQ(cluster.planner().noise.size(), report.step < 80 ? 0u : 1u);
    return KeepPlan{};
  };
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_EQ(cluster.log(), " plan1 b40 c40 b80 n80 c80 b120 end120");
  EXPECT_THAT(cluster.lines(),
              HasSubstr("step 80: 4 bits forward add 2 % to the gradients' noise"));
  ASSERT_EQ(cluster.planner().noise.size(), 1u);
  EXPECT_NEAR(cluster.planner().noise[0].added, 0.02, 1e-9);
}

// The measurement is given up, training is not.
TEST(CoordinatorDryRun, SurvivesALoss) {
  for (const int64_t lost : {1, 2}) {
    TrainingCluster cluster(kLossy, 1, 0, -1, false, {}, /*measure_noise=*/40);
    cluster.When(At<DryRunRequest>(lost), [&] { cluster.Kill(lost); });
    cluster.Settle();
    cluster.ExpectAllTrainedOnce();
    EXPECT_THAT(cluster.log(), HasSubstr(" b40 lost-w"));
    EXPECT_THAT(cluster.log(), EndsWith(" b120 end120"));
  }
}

TEST(CoordinatorDryRun, WhatIsNotFiniteIsSaidAndNotUsed) {
  TrainingCluster cluster(kLossy, 1, 0, -1, false, {}, /*measure_noise=*/40);
  cluster.noise_ = std::numeric_limits<double>::quiet_NaN();
  cluster.Settle();
  cluster.ExpectAllTrainedOnce();
  EXPECT_EQ(cluster.log(), " plan1 b40 b80 b120 end120");
  EXPECT_THAT(cluster.lines(), HasSubstr("could not be measured"));
  EXPECT_TRUE(cluster.planner().noise.empty());
}

}  // namespace
}  // namespace runnel::dry_runs_test
