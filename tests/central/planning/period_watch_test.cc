// Measured beside predicted: what the pipeline took, and which figure is to blame.

#include "central/planning/live/period_watch.h"

#include <algorithm>
#include <utility>

#include "central/planning/live/period_parts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"

namespace runnel::period_watch_test {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMicroBatches = 100;  // between reports

PlanningInputs Inputs() {
  PlanningInputs inputs;
  inputs.model = MakeModel("lenet").value();
  inputs.policy = FindPolicy("dp").value();
  inputs.schedule = FindSchedule("async_1f1b").value();
  inputs.batch_size = inputs.micro_batch_size = 16;
  inputs.codecs.bits.epochs = 1;
  return inputs;
}

// LeNet on two devices, 4 ms a layer, a link of 80 Mbps.
class PeriodWatchTest : public ::testing::Test {
 protected:
  PeriodWatchTest() : maker_(Inputs()), watch_(&maker_), devices_(2) {
    made_from_.times.assign(2, DeviceTimes::ByLayer(std::vector<double>(6, 0.004)));
    made_from_.rates.assign(2, std::vector<WayFigures>(2));
    made_from_.rates[0][1] = made_from_.rates[1][0] = {LinkRate::Mbps(80), 0.001};
    rates_ = made_from_.rates;
    plan_ = maker_.MakePlan({0, 1}, made_from_).value();
    plan_.generation = Generation(1);
    for (const StagePlan& stage : plan_.stages) stages_.push_back({stage, "", {}});
  }

  // The next report, of stages that compute `slower` times as long as predicted.
  void Report(double period, std::vector<double> slower) {
    step_ += kMicroBatches;
    for (size_t i = 0; i < stages_.size(); ++i) {
      const StagePlan& stage = stages_[i].plan;
      const double busy =
          slower[i] * made_from_.times[i].Seconds({stage.first_layer, stage.last_layer});
      Telemetry& telemetry = stages_[i].telemetry;
      telemetry.backwards += kMicroBatches;
      telemetry.busy_ns += static_cast<int64_t>(busy * kMicroBatches * 1e9);
      telemetry.busy_processor_ns +=
          static_cast<int64_t>(busy * processor_share_ * kMicroBatches * 1e9);
      telemetry.wait_ns += static_cast<int64_t>((period - busy) * kMicroBatches * 1e9);
    }
    watch_.Report({step_, plan_, Sequence(0), stages_, devices_, made_from_.times}, made_from_,
                  rates_);
  }
  double MemorySeconds() {
    Report(Predicted(), {1, 1});
    return watch_.comparison().parts.memory_seconds;
  }
  double Predicted() const {
    return maker_.SecondsBetweenBarriers(plan_, made_from_, kMicroBatches).value();
  }

  PlanMaker maker_;
  PeriodWatch watch_;
  MeasuredCluster made_from_;
  LinkRates rates_;
  Plan plan_;
  std::vector<StageStatus> stages_;
  std::vector<DeviceFacts> devices_;
  int64_t step_ = 0;
  double processor_share_ = 0;  // of a stage's busy time
};

TEST_F(PeriodWatchTest, APipelineAsPredictedHasNoCause) {
  Report(Predicted() * 1.1, {1.02, 0.98});
  const PeriodComparison& period = watch_.comparison();
  EXPECT_EQ(period.step, 100);
  EXPECT_DOUBLE_EQ(period.predicted_seconds, Predicted());
  EXPECT_NEAR(period.measured_seconds, 1.1 * Predicted(), 1e-8);
  ASSERT_EQ(period.stages.size(), 2u);
  EXPECT_NEAR(period.stages[1].measured_seconds, 0.98 * period.stages[1].predicted_seconds, 1e-8);
  EXPECT_EQ(period.links[0].predicted.forward.mbps(), 80);
  EXPECT_EQ(period.cause, "");
  EXPECT_EQ(watch_.TakeRemark(), "");
}

TEST_F(PeriodWatchTest, AStageThatComputesLongerIsNamedOnce) {
  MeasuredCluster slow = made_from_;
  slow.times[1] = slow.times[1].Scaled(6);
  const double really = maker_.SecondsBetweenBarriers(plan_, slow, kMicroBatches).value();
  Report(really, {1, 6});
  EXPECT_THAT(watch_.comparison().cause, HasSubstr("stage 1 computes"));
  const std::string remark = watch_.TakeRemark();
  EXPECT_THAT(remark, HasSubstr("step 100: "));
  EXPECT_THAT(remark, HasSubstr("stage 1 computes"));
  Report(really, {1, 6});
  EXPECT_EQ(watch_.TakeRemark(), "") << "it was said";
  EXPECT_THAT(watch_.comparison().cause, HasSubstr("stage 1 computes"));
}

// Both stages on one processor: each is held up by the other, and computes no longer for that.
TEST_F(PeriodWatchTest, TurnsOnAProcessorAreNoComputation) {
  made_from_.on_host = {true, true};
  made_from_.host_processors = 1;
  processor_share_ = 0.5;
  Report(Predicted(), {2, 2});
  for (const PeriodComparison::Stage& stage : watch_.comparison().stages)
    EXPECT_NEAR(stage.measured_seconds, stage.predicted_seconds, 1e-8);
  made_from_.host_processors = 2;
  Report(Predicted(), {2, 2});
  for (const PeriodComparison::Stage& stage : watch_.comparison().stages)
    EXPECT_NEAR(stage.measured_seconds, 2 * stage.predicted_seconds, 1e-8);
}

TEST_F(PeriodWatchTest, ALinkThatCarriesLessIsNamed) {
  rates_[0][1].rate = LinkRate::Mbps(1);
  MeasuredCluster slow = made_from_;
  slow.rates = rates_;
  Report(maker_.SecondsBetweenBarriers(plan_, slow, kMicroBatches).value(), {1.05, 1});
  EXPECT_THAT(watch_.comparison().cause,
              HasSubstr("the link from stage 0 to stage 1 carries 1 Mbps down and 80 Mbps up"));
}

TEST_F(PeriodWatchTest, PartsOfAPeriod) {
  devices_[0].name = "local";
  devices_[1].name = "pi-1";
  Report(1.05 * Predicted(), {1, 1});
  const PeriodParts& parts = watch_.comparison().parts;
  EXPECT_DOUBLE_EQ(parts.computing_seconds + parts.bubble_seconds + parts.schedule_seconds +
                       parts.links_seconds + parts.other_seconds,
                   watch_.comparison().measured_seconds);
  EXPECT_NEAR(parts.other_seconds, 0.05 * Predicted(), 1e-8);
  EXPECT_GT(parts.computing_seconds, 0.5 * Predicted());
}

TEST_F(PeriodWatchTest, PartsOfWhatCannotBeSimulatedAreNotKnown) {
  Report(Predicted(), {1, 1});
  const auto only_as_it_is = [this](const MeasuredCluster& cluster) {
    return cluster.rates[0][1].rate == LinkRate::Mbps(80) ? Predicted() : 0;
  };
  const PeriodParts parts =
      TakeApart({step_, plan_, Sequence(0), stages_, devices_, made_from_.times},
                watch_.comparison(), made_from_, {only_as_it_is, only_as_it_is});
  EXPECT_EQ(parts.slowest, "");
}

TEST_F(PeriodWatchTest, ASlowDeviceWouldHelp) {
  devices_[0].name = "local";
  devices_[1].name = "pi-1";
  MeasuredCluster slow = made_from_;
  slow.times[1] = slow.times[1].Scaled(6);
  Report(maker_.SecondsBetweenBarriers(plan_, slow, kMicroBatches).value(), {1, 6});
  const PeriodParts& parts = watch_.comparison().parts;
  EXPECT_EQ(parts.slowest, "pi-1");
  EXPECT_GT(parts.computing_seconds, 0.8 * watch_.comparison().measured_seconds);
  const auto help =
      std::find_if(parts.helps.begin(), parts.helps.end(), [](const PeriodParts::Help& one) {
        return one.what.find("pi-1 twice as fast") != std::string::npos;
      });
  ASSERT_NE(help, parts.helps.end());
  EXPECT_NEAR(help->seconds, watch_.comparison().measured_seconds / 2,
              0.1 * watch_.comparison().measured_seconds);
}

TEST_F(PeriodWatchTest, ASlowLinkWouldHelp) {
  devices_[0].name = "local";
  devices_[1].name = "pi-1";
  rates_[0][1].rate = LinkRate::Mbps(1);
  MeasuredCluster slow = made_from_;
  slow.rates = rates_;
  Report(maker_.SecondsBetweenBarriers(plan_, slow, kMicroBatches).value(), {1, 1});
  const PeriodParts& parts = watch_.comparison().parts;
  EXPECT_GT(parts.links_seconds, 0.5 * watch_.comparison().measured_seconds);
  ASSERT_FALSE(parts.helps.empty());
  EXPECT_EQ(parts.helps[0].what, "a faster link between local and pi-1");
}

TEST_F(PeriodWatchTest, ABadCutIsNamedAndTheBestOneHasNothingToName) {
  devices_[0].name = "local";
  devices_[1].name = "pi-1";
  Report(Predicted(), {1, 1});
  const auto has =
      testing::Contains(testing::Field(&PeriodParts::Help::what, HasSubstr("other layers (")));
  EXPECT_THAT(watch_.comparison().parts.helps, testing::Not(has));
  plan_.stages[0].last_layer = 0;
  plan_.stages[1].first_layer = 1;
  plan_.generation = Generation(2);
  stages_ = {{plan_.stages[0], "", {}}, {plan_.stages[1], "", {}}};
  Report(Predicted(), {1, 1});
  const std::vector<PeriodParts::Help>& helps = watch_.comparison().parts.helps;
  ASSERT_THAT(helps, has);
  const auto help = std::find_if(helps.begin(), helps.end(), [](const PeriodParts::Help& one) {
    return one.what.rfind("other layers (local 0 to ", 0) == 0;
  });
  ASSERT_NE(help, helps.end()) << helps.front().what;
  EXPECT_THAT(help->what, HasSubstr(": --policy runnel"));
  EXPECT_LT(help->seconds, 0.85 * watch_.comparison().measured_seconds);
}

// The test's plan, of a pipeline that drains at each step of so many micro-batches.
class MicroBatchesTest : public PeriodWatchTest, public ::testing::WithParamInterface<int> {};

TEST_P(MicroBatchesTest, TooFewAreNamed) {
  PlanningInputs inputs = Inputs();
  inputs.schedule = FindSchedule("sync_1f1b").value();
  inputs.micro_batches = GetParam();
  inputs.micro_batch_size = 16 / GetParam();
  const PlanMaker maker(inputs);
  PeriodWatch watch(&maker);
  std::swap(watch, watch_);
  made_from_.rates[0][1] = made_from_.rates[1][0] = {LinkRate::Mbps(10'000), 0.0};
  rates_ = made_from_.rates;
  plan_ = maker.MakePlan({0, 1}, made_from_).value();
  plan_.generation = Generation(1);
  stages_.clear();
  for (const StagePlan& stage : plan_.stages) stages_.push_back({stage, "", {}});
  Report(maker.SecondsBetweenBarriers(plan_, made_from_, kMicroBatches).value(), {1, 1});
  std::vector<std::string> helps;
  for (const PeriodParts::Help& help : watch_.comparison().parts.helps) helps.push_back(help.what);
  EXPECT_THAT(helps, testing::Contains("--micro-batches " + std::to_string(2 * GetParam())));
  EXPECT_GT(watch_.comparison().parts.bubble_seconds, 0);
  EXPECT_EQ(watch_.comparison().parts.schedule_seconds, 0) << "it drains at each step";
}

INSTANTIATE_TEST_SUITE_P(OfAStep, MicroBatchesTest, ::testing::Values(1, 2));

// Figures that are too dear for the time, as of a share that was measured under load, name the same.
TEST_F(PeriodWatchTest, AModelThatIsOffByAFactorNamesTheSameLink) {
  devices_[0].name = "local";
  devices_[1].name = "pi-1";
  rates_[0][1].rate = LinkRate::Mbps(1);
  MeasuredCluster slow = made_from_;
  slow.rates = rates_;
  Report(maker_.SecondsBetweenBarriers(plan_, slow, kMicroBatches).value() / 3, {1, 1});
  const PeriodParts& parts = watch_.comparison().parts;
  EXPECT_EQ(parts.other_seconds, 0);
  ASSERT_FALSE(parts.helps.empty());
  EXPECT_EQ(parts.helps[0].what, "a faster link between local and pi-1");
}

// Only the last two layers fit the second device.
TEST_F(PeriodWatchTest, WhatMemoryCostsIsToldBesideTheParts) {
  made_from_.memory.resize(2);
  EXPECT_EQ(MemorySeconds(), 0) << "no limit";
  made_from_.memory[1].may_take_bytes = 1 << 20;
  plan_.stages[0].last_layer = 4;
  plan_.stages[1].first_layer = 5;
  plan_.generation = Generation(2);
  stages_ = {{plan_.stages[0], "", {}}, {plan_.stages[1], "", {}}};
  EXPECT_GT(MemorySeconds(), 0.1 * watch_.comparison().measured_seconds);
  EXPECT_THAT(watch_.comparison().parts.helps,
              testing::Contains(testing::Field(&PeriodParts::Help::what,
                                               HasSubstr("more memory, for other layers ("))));
}

TEST(AddEvaluations, ThoseForWhichTrainingStandsAreOnTop) {
  PeriodParts parts = {.slowest = "a", .computing_seconds = 8, .links_seconds = 1};
  parts.helps = {{"a faster link", 8}};
  AddEvaluations(0.5, 0, parts);
  EXPECT_EQ(parts.evaluation_seconds, 0.5);
  ASSERT_EQ(parts.helps.size(), 1u) << "not worth it";
  EXPECT_EQ(parts.helps[0].seconds, 8.5);
  AddEvaluations(9, 0, parts);
  ASSERT_EQ(parts.helps.size(), 2u);
  EXPECT_EQ(parts.helps[0].what, "fewer evaluations (--eval-every)");
  EXPECT_EQ(parts.helps[0].seconds, 9);
}

TEST(AddEvaluations, WhatTheyTakeBesideTheTrainingWasNoComputing) {
  PeriodParts parts = {.slowest = "a", .computing_seconds = 8, .other_seconds = 1};
  AddEvaluations(0, 3, parts);
  EXPECT_EQ(parts.evaluation_seconds, 3);
  EXPECT_EQ(parts.other_seconds, 0);
  EXPECT_EQ(parts.computing_seconds, 6);
  PeriodParts unknown;
  AddEvaluations(1, 1, unknown);
  EXPECT_EQ(unknown.evaluation_seconds, 0);
}

TEST_F(PeriodWatchTest, WhatNoFigureExplainsIsWaiting) {
  Report(3 * Predicted(), {1, 1.1});
  EXPECT_EQ(watch_.comparison().cause, "");
  EXPECT_EQ(watch_.TakeRemark(), "") << "nobody can do anything about it";
  EXPECT_GT(watch_.comparison().parts.other_seconds, Predicted());
}

TEST_F(PeriodWatchTest, FasterThanPredictedIsNoRemark) {
  MeasuredCluster quick = made_from_;
  quick.times[1] = quick.times[1].Scaled(0.2);
  quick.times[0] = quick.times[0].Scaled(0.2);
  Report(maker_.SecondsBetweenBarriers(plan_, quick, kMicroBatches).value(), {0.2, 0.2});
  EXPECT_LT(watch_.comparison().measured_seconds, watch_.comparison().predicted_seconds);
  EXPECT_EQ(watch_.TakeRemark(), "");
}

TEST_F(PeriodWatchTest, TooFewMicroBatchesSayNothing) {
  watch_.Report({1, plan_, Sequence(0), stages_, devices_, made_from_.times}, made_from_, rates_);
  EXPECT_EQ(watch_.comparison().predicted_seconds, 0);
}

}  // namespace
}  // namespace runnel::period_watch_test
