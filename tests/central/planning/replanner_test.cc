// When another plan is worth the move.

#include "central/planning/replanner.h"

#include <cmath>
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"

namespace runnel::replanner_test {
namespace {

using ::testing::HasSubstr;

constexpr int kLayers = 6;
constexpr int64_t kEvery = 20;  // micro-batches between reports

// Of two devices: the slowest stage counts, the cut with the shortest period is the best.
class TwoStagePlans final : public PlanSource {
 public:
  explicit TwoStagePlans(int layers) : layers_(layers) {}

  Plan PlanWith(int last) const {
    Plan plan;
    plan.stages = {{{Seat{DeviceId(0)}}, 0, last, 2},
                   {{Seat{DeviceId(1)}}, last + 1, layers_ - 1, 1}};
    plan.links.emplace_back();
    return plan;
  }
  static double Slowest(const Plan& plan, const std::vector<DeviceTimes>& times) {
    double slowest = 0;
    for (const StagePlan& stage : plan.stages) {
      slowest = std::max(slowest,
                         times[stage.sole_device()].Seconds({stage.first_layer, stage.last_layer}));
    }
    return slowest;
  }
  Plan BestPlan(const std::vector<DeviceTimes>& times) const {
    Plan best = PlanWith(0);
    for (int last = 1; last + 1 < layers_; ++last) {
      if (Slowest(PlanWith(last), times) < Slowest(best, times)) best = PlanWith(last);
    }
    return best;
  }

  absl::StatusOr<Plan> MakePlan(const std::vector<int>&,
                                const MeasuredCluster& cluster) const override {
    return BestPlan(cluster.times);
  }
  absl::StatusOr<Plan> NextPlan(const Plan&, const MeasuredCluster& cluster) const override {
    return BestPlan(cluster.times);
  }
  absl::StatusOr<Plan> RefitCodecs(const Plan& plan, const MeasuredCluster&) const override {
    return plan;
  }
  absl::StatusOr<PlanRating> Rate(const Plan& plan, const MeasuredCluster& cluster) const override {
    const double slowest = Slowest(plan, cluster.times);
    return PlanRating{slowest, slowest, 0, {}};
  }

 private:
  int layers_;
};

// Two devices of the same speed, 10 ms a layer; the best cut balances them.
class Pipeline {
 public:
  explicit Pipeline(int64_t stop_step = 10'000,
                    std::unique_ptr<PlanSearch> search = MakeImmediateSearch(),
                    LinkRate rate = LinkRate::Mbps(1000))
      : replanner_(&plans_, Options(stop_step, rate), {}, std::move(search)) {
    plan_.generation = Generation(1);
    Cut(2);
    for (int i = 0; i < 2; ++i) {
      devices_.push_back({"w" + std::to_string(i)});
    }
  }

  // Device 1 has this share of a processor, of which a layer takes 8 ms.
  void ShareProcessor(double share) {
    devices_[1].processor_share = share;
    processor_ns_a_layer_ = 8e6;
  }

  void SetLocal(size_t device) { devices_[device].is_local = true; }

  // Both are on central's host, which has this many processors.
  void ShareHost(double processors) {
    cluster_.on_host = {true, true};
    cluster_.host_processors = processors;
  }

  // The next report, with device 1 this much slower than profiled.
  std::optional<ChangePlan> Report(double slowdown) {
    step_ += kEvery;
    for (size_t i = 0; i < 2; ++i) {
      Telemetry& telemetry = stages_[i].telemetry;
      const StagePlan& stage = stages_[i].plan;
      const double layers = stage.last_layer - stage.first_layer + 1;
      telemetry.backwards = step_;
      telemetry.busy_ns += static_cast<int64_t>(kEvery * layers * 10e6 * (i == 1 ? slowdown : 1.0));
      if (i == 1)
        telemetry.busy_processor_ns +=
            static_cast<int64_t>(kEvery * layers * processor_ns_a_layer_);
    }
    return replanner_.ProposeChange({step_, plan_, first_, stages_, devices_, seconds_}, cluster_);
  }

  void Take(const Plan& plan) {
    const Generation next(plan_.generation.value() + 1);
    Cut(plan.stages[0].last_layer);
    plan_.generation = next;
    first_ = Sequence(step_);
  }

  int last_of_first() const { return plan_.stages[0].last_layer; }
  const Replanner& replanner() const { return replanner_; }

 private:
  static ReplannerOptions Options(int64_t stop_step, LinkRate rate) {
    ReplannerOptions options;
    options.given_rate = rate;
    options.layer_state_bytes.assign(kLayers, 1'000'000);
    options.stop_step = stop_step;
    return options;
  }

  void Cut(int last) {
    const Generation generation = plan_.generation;
    plan_ = plans_.PlanWith(last);
    plan_.generation = generation;
    stages_.clear();
    for (const StagePlan& stage : plan_.stages) stages_.push_back({stage, "", {}});
  }

  TwoStagePlans plans_{kLayers};
  Replanner replanner_;
  Plan plan_;
  Sequence first_;
  std::vector<StageStatus> stages_;
  std::vector<DeviceFacts> devices_;
  std::vector<DeviceTimes> seconds_ =
      std::vector<DeviceTimes>(2, DeviceTimes::ByLayer(std::vector<double>(kLayers, 0.01)));
  int64_t step_ = 0;
  double processor_ns_a_layer_ = 0;
  MeasuredCluster cluster_;
};

TEST(Replanner, LeavesABalancedPipelineAlone) {
  Pipeline run;
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(run.Report(i % 2 == 0 ? 1.02 : 0.98).has_value());
}

// A device at half speed: a better plan within three reports, and then none any more.
TEST(Replanner, MovesLayersAwayFromADeviceAtHalfSpeed) {
  Pipeline run;
  EXPECT_FALSE(run.Report(1).has_value());
  int reports = 1;
  std::optional<ChangePlan> better = run.Report(2);
  for (; !better.has_value() && reports < 5; ++reports) better = run.Report(2);
  ASSERT_TRUE(better.has_value());
  EXPECT_LE(reports, 3);
  EXPECT_EQ(better->plan.stages[0].last_layer, 3);
  EXPECT_THAT(better->why, HasSubstr("0.06 -> 0.04 s a micro-batch"));
  EXPECT_NEAR(run.replanner().corrections().ratios()[1], 2, 1e-6);
  run.Take(better->plan);
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(run.Report(2).has_value());
  // And back when it is fast again.
  EXPECT_FALSE(run.Report(1).has_value());
  better = run.Report(1);
  ASSERT_TRUE(better.has_value());
  EXPECT_EQ(better->plan.stages[0].last_layer, 2);
}

// A layer of 1 MB takes 2 s at 4 Mbps, from a worker to central's host or back; 1 s is added.
TEST(Replanner, LayersCrossOnlyPathsToOtherHosts) {
  for (const auto& [locals, text] : {std::pair<std::vector<size_t>, const char*>{{0}, "about 3 s"},
                                     {{0, 1}, "about 1 s"},
                                     {{}, "about 3 s"}}) {
    Pipeline run(10'000, MakeImmediateSearch(), LinkRate::Mbps(4));
    for (const size_t device : locals) run.SetLocal(device);
    std::optional<ChangePlan> better;
    for (int i = 0; i < 4 && !better.has_value(); ++i) better = run.Report(2);
    ASSERT_TRUE(better.has_value());
    EXPECT_THAT(better->why, HasSubstr(text));
  }
}

TEST(Replanner, ALoadThatComesAndGoesMovesNothing) {
  Pipeline run;
  for (int i = 0; i < 40; ++i) EXPECT_FALSE(run.Report(i % 2 == 0 ? 2 : 1).has_value());
}

// Done when the test says so.
class ManualSearch final : public PlanSearch {
 public:
  explicit ManualSearch(bool* is_done) : is_done_(is_done) {}
  void Begin(SearchFn search) override { search_ = std::move(search); }
  bool under_way() const override { return search_ != nullptr; }
  std::optional<SearchAnswer> TakeAnswer() override {
    if (search_ == nullptr || !*is_done_) return std::nullopt;
    return SearchAnswer{std::exchange(search_, nullptr)(), 0.25};
  }

 private:
  const bool* is_done_;
  SearchFn search_;
};

// A barrier looks at the answer if there is one, and goes on if there is none.
TEST(Replanner, ASearchTakesAsLongAsItTakes) {
  bool is_done = false;
  Pipeline run(10'000, std::make_unique<ManualSearch>(&is_done));
  for (int i = 0; i < 7; ++i) EXPECT_FALSE(run.Report(2).has_value());
  EXPECT_EQ(run.replanner().searches().done, 0);
  is_done = true;
  const std::optional<ChangePlan> better = run.Report(2);
  ASSERT_TRUE(better.has_value());
  EXPECT_EQ(better->plan.stages[0].last_layer, 3);
  EXPECT_EQ(run.replanner().searches().done, 1);
  EXPECT_DOUBLE_EQ(run.replanner().searches().processor_seconds, 0.25);
}

// The answer is about figures that hold no more: it is thrown away, and another search begins.
TEST(Replanner, AnAnswerAboutOtherFiguresIsNotUsed) {
  bool is_done = false;
  Pipeline run(10'000, std::make_unique<ManualSearch>(&is_done));
  EXPECT_FALSE(run.Report(1.6).has_value());
  is_done = true;
  EXPECT_FALSE(run.Report(4).has_value()) << "the device is far slower than the search knew";
  const std::optional<ChangePlan> better = run.Report(4);
  ASSERT_TRUE(better.has_value());
  EXPECT_EQ(better->plan.stages[0].last_layer, 4);
}

// Each report finds the slow device at another speed, so that each answer is about other figures.
// The second answer in a row that pays is used.
TEST(Replanner, ADeviceWhoseSpeedNeverSettlesLosesLayers) {
  Pipeline run;
  EXPECT_FALSE(run.Report(2).has_value());
  EXPECT_FALSE(run.Report(4).has_value()) << "the first answer came too late";
  const std::optional<ChangePlan> better = run.Report(8);
  ASSERT_TRUE(better.has_value());
  EXPECT_EQ(better->plan.stages[0].last_layer, 4);
}

// One answer that came too late and pays, then one that does not pay: counting begins anew.
TEST(Replanner, AnAnswerThatDoesNotPayEndsTheRowOfThoseThatCameTooLate) {
  Pipeline run;
  EXPECT_FALSE(run.Report(2).has_value());
  EXPECT_FALSE(run.Report(4).has_value());
  EXPECT_FALSE(run.Report(1).has_value());
  EXPECT_FALSE(run.Report(2).has_value());
  EXPECT_FALSE(run.Report(4).has_value());
}

TEST(Replanner, WhereNothingMovedNothingIsSearched) {
  Pipeline run;
  for (int i = 0; i < 10; ++i) run.Report(1);
  EXPECT_EQ(run.replanner().searches().done, 1);
  EXPECT_EQ(run.replanner().searches().skipped, 9);
  run.Report(1.06);
  run.Report(1.06);
  EXPECT_EQ(run.replanner().searches().done, 2);
}

// Two reports in a row want a change, each another one.
TEST(Replanner, ReportsMustWantTheSameMove) {
  Pipeline run;
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(run.Report(2).has_value());
    EXPECT_FALSE(run.Report(0.5).has_value());
  }
}

// FTPipeHD as published: the first device's profile times each stage's ratio to it, and the plan at
// once, at the very end too.
TEST(Replanner, APublishedPlanIsTakenAtOnce) {
  TwoStagePlans plans(kLayers);
  ReplannerOptions options;
  options.layer_state_bytes.assign(kLayers, 1'000'000);
  options.takes_next = true;
  options.stop_step = 11;
  CorrectionOptions corrections;
  corrections.by_first_device = true;
  Replanner replanner(&plans, options, corrections, MakeImmediateSearch());
  Plan plan = plans.PlanWith(2);
  plan.generation = Generation(1);
  std::vector<StageStatus> stages = {{plan.stages[0], "", {}}, {plan.stages[1], "", {}}};
  // The second device was never measured.
  const std::vector<DeviceTimes> times = {DeviceTimes::ByLayer(std::vector<double>(kLayers, 0.01)),
                                          DeviceTimes()};
  const std::vector<DeviceFacts> devices(2);
  for (size_t i = 0; i < 2; ++i) {
    stages[i].telemetry.backwards = 10;
    stages[i].telemetry.busy_ns = static_cast<int64_t>(10 * 3 * (i == 0 ? 13e6 : 20e6));
  }
  const std::optional<ChangePlan> change =
      replanner.ProposeChange({10, plan, Sequence(0), stages, devices, times}, {});
  ASSERT_TRUE(change.has_value());
  EXPECT_EQ(change->plan.stages[0].last_layer, 3) << "4 layers of 10 ms, 2 of 20 ms";
  EXPECT_THAT(change->why, HasSubstr("capacity ratios 1.00, 2.00"));
  EXPECT_NEAR(change->times[1].Seconds({0, 1}), 0.04, 1e-12);
  EXPECT_NEAR(change->times[0].Seconds({0, 1}), 0.02, 1e-12);
  // A report that finds the plan as it would cut it.
  plan = change->plan;
  plan.generation = Generation(2);
  stages = {{plan.stages[0], "", {}}, {plan.stages[1], "", {}}};
  stages[0].telemetry.backwards = stages[1].telemetry.backwards = 20;
  stages[0].telemetry.busy_ns = stages[1].telemetry.busy_ns = 10 * 40'000'000;
  EXPECT_FALSE(
      replanner.ProposeChange({20, plan, Sequence(10), stages, devices, times}, {}).has_value());
}

TEST(Replanner, ShortlyBeforeTheEndAMoveIsNotWorthIt) {
  Pipeline run(/*stop_step=*/80);
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(run.Report(2).has_value());
}

// Whoever catches up at full speed what it did not use looks quicker by the clock than it is.
TEST(Replanner, WithAShareOfAProcessorTheLongerOfBothTimesCounts) {
  Pipeline run;
  run.ShareProcessor(0.5);
  run.Report(1.0);
  EXPECT_NEAR(run.replanner().corrections().ratios()[1], 1.6, 1e-6);  // 8 ms of half a processor
  run.Report(2.5);  // something else takes the processor
  EXPECT_NEAR(run.replanner().corrections().ratios()[1], 2.5, 1e-6);
  EXPECT_NEAR(run.replanner().corrections().ratios()[0], 1.0, 1e-6);
}

// Two stages on one processor wait for each other: the prediction adds that, not the correction.
TEST(Replanner, WhereStagesTakeTurnsTheProcessorTimeCounts) {
  Pipeline run;
  const std::vector<double>& ratios = run.replanner().corrections().ratios();
  run.ShareProcessor(0.8);  // of which a layer took 10 ms
  run.ShareHost(1);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(run.Report(1.8).has_value());
  EXPECT_THAT(ratios, testing::Each(testing::DoubleNear(1, 1e-6)));
  run.ShareHost(2);  // with a processor for each something else holds it up
  run.Report(2);
  EXPECT_NEAR(ratios[1], 2.0, 1e-6);
  run.ShareHost(1);
  run.Report(8);  // longer than any turns are
  EXPECT_NEAR(ratios[1], 8 * SpeedOnHost(1, 2) / 0.8, 1e-6);
}

// ---- with a predictor

// Two devices of a model of 20 layers, whose times are predicted; the truth is known here. Nothing
// but what the ten sub-models and the stages take gets from one to the other.
class PredictedPipeline {
 public:
  explicit PredictedPipeline(const PredictorOptions& predictor = {}, double min_gain = 0.02,
                             int64_t stop_step = 100'000)
      : model_(*MakeModel("mobilenet_v2")),
        predictor_(*RunPredictor::Create(*FindPredictor("mixture"),
                                         *PredictorKnowledge::Create(model_, 8, {}), predictor)),
        slow_(2, std::vector<double>(model_.layer_count(), 1)),
        plans_(model_.layer_count()),
        replanner_(&plans_, Options(min_gain, stop_step), {.predictor = &predictor_},
                   MakeImmediateSearch()),
        devices_(2),
        seconds_(2) {
    for (int device = 0; device < 2; ++device) {
      devices_[device].name = "w" + std::to_string(device);
      Characterise(device);
      seconds_[device] = predictor_.Times(device);
    }
    Take(plans_.BestPlan(seconds_));
  }

  // From now on, these layers of device 1 take so many times what they took.
  void Slow(int first, int last, double factor) {
    for (int layer = first; layer <= last; ++layer) slow_[1][layer] = factor;
  }
  // What stages take beyond what measurements see: others that compute while the pipeline runs.
  double beside = 1;
  bool can_measure = true;

  std::optional<ChangePlan> Report() {
    step_ += kEvery;
    for (StageStatus& stage : stages_) {
      const int device = stage.plan.sole_device();
      const double took = Truth(device, {stage.plan.first_layer, stage.plan.last_layer}) *
                          (device == 1 ? beside : 1);
      stage.telemetry.backwards = step_;
      stage.telemetry.busy_ns += static_cast<int64_t>(kEvery * took * 1e9);
    }
    const BarrierReport report{step_, plan_, first_, stages_, devices_, seconds_};
    for (const int device : replanner_.DevicesToMeasure(report, {})) {
      ++measured_;
      if (can_measure) Characterise(device);
    }
    return replanner_.ProposeChange(report, {});
  }

  void Take(const Plan& plan) {
    plan_ = plan;
    plan_.generation = Generation(++generation_);
    first_ = Sequence(step_);
    stages_.clear();
    for (const StagePlan& stage : plan_.stages) stages_.push_back({stage, "", {}});
  }

  // Of the slowest stage, as it really is, and that of the best of all plans.
  double Period(const Plan& plan) const { return plans_.Slowest(plan, TrueSeconds()); }
  double BestPeriod() const { return Period(plans_.BestPlan(TrueSeconds())); }
  double Predicted(const LayerRange& range) const { return predictor_.Seconds(1, range); }
  double Truth(int device, const LayerRange& range) const {
    double seconds = 1e-4;  // of its boundaries
    for (int layer = range.first_layer; layer <= range.last_layer; ++layer)
      seconds += slow_[device][layer] * (1e-3 + 1e-4 * layer);
    return seconds;
  }

  const Plan& plan() const { return plan_; }
  LayerRange second() const { return {plan_.stages[1].first_layer, plan_.stages[1].last_layer}; }
  int measured() const { return measured_; }
  const Replanner& replanner() const { return replanner_; }
  int layers() const { return model_.layer_count(); }

 private:
  using Rows = std::vector<DeviceTimes>;

  void Characterise(int device) {
    std::vector<double> seconds;
    for (const LayerRange& range : predictor_.representatives())
      seconds.push_back(Truth(device, range));
    ASSERT_TRUE(predictor_.Characterise(device, seconds).ok());
  }
  Rows TrueSeconds() const {
    Rows rows(2);
    for (int device = 0; device < 2; ++device) {
      std::vector<double> seconds;
      for (const LayerRange& range : AllRanges(layers())) seconds.push_back(Truth(device, range));
      rows[device] = DeviceTimes::ByRange(layers(), std::move(seconds));
    }
    return rows;
  }
  ReplannerOptions Options(double min_gain, int64_t stop_step) {
    ReplannerOptions options;
    options.layer_state_bytes.assign(layers(), 1'000'000);
    options.stop_step = stop_step;
    options.min_gain = min_gain;
    return options;
  }

  ModelSpec model_;
  RunPredictor predictor_;
  std::vector<std::vector<double>> slow_;  // by device and layer
  TwoStagePlans plans_;
  Replanner replanner_;
  std::vector<DeviceFacts> devices_;
  std::vector<DeviceTimes> seconds_;
  Plan plan_;
  int generation_ = 0;
  Sequence first_;
  std::vector<StageStatus> stages_;
  int64_t step_ = 0;
  int measured_ = 0;
};

TEST(PredictedReplanner, LeavesAPipelineAsPredictedAlone) {
  PredictedPipeline run;
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(run.Report().has_value());
  EXPECT_EQ(run.measured(), 0);
}

// A cold start: the first plan is from ten sub-models and the FLOPs line, and already near the
// best.
TEST(PredictedReplanner, TenSubModelsMakeAPlan) {
  const PredictedPipeline run;
  EXPECT_LT(run.Period(run.plan()), 1.1 * run.BestPeriod());
}

// Within epsilon: each report is learned from, nothing is measured, and the plan gets better. A
// third of the layers of one half is what the ratio could not tell from the rest.
TEST(PredictedReplanner, LearnsWhatStagesTake) {
  PredictedPipeline run({.epsilon = 0.5});
  run.Slow(10, 19, 1.3);
  const double before = run.Period(run.plan());
  const LayerRange half = run.second();
  EXPECT_LT(run.Predicted(half), run.Truth(1, half) / 1.15);
  std::optional<ChangePlan> better;
  for (int i = 0; i < 30 && !better.has_value(); ++i) better = run.Report();
  ASSERT_TRUE(better.has_value());
  EXPECT_EQ(run.measured(), 0);
  EXPECT_EQ(run.replanner().corrections().ratios()[1], 1) << "no capacity ratio";
  EXPECT_LT(run.Period(better->plan), before * 0.97);
  EXPECT_TRUE(better->times[1].by_range());
  // What it goes on to learn makes the prediction that of the device as it is.
  run.Take(better->plan);
  for (int i = 0; i < 40; ++i) {
    if (const std::optional<ChangePlan> next = run.Report()) run.Take(next->plan);
  }
  EXPECT_NEAR(run.Predicted(run.second()) / run.Truth(1, run.second()), 1, 0.05);
  EXPECT_LT(run.Period(run.plan()), 1.06 * run.BestPeriod());
}

// Off by more than epsilon, twice in a row: measured again, once, and the plan is the best for what
// the device now is. The capacity ratio would have taken all of its layers for slow.
TEST(PredictedReplanner, MeasuresADeviceThatChangedAgain) {
  PredictedPipeline run;
  EXPECT_FALSE(run.Report().has_value());
  run.Slow(12, 19, 2);
  EXPECT_FALSE(run.Report().has_value());
  EXPECT_EQ(run.measured(), 0) << "it may be gone at the next report";
  EXPECT_GT(run.replanner().corrections().ratios()[1], 1.3) << "until then by the capacity ratio";
  EXPECT_FALSE(run.Report().has_value()) << "what was searched for was another device";
  EXPECT_EQ(run.measured(), 1);
  const std::optional<ChangePlan> better = run.Report();
  EXPECT_EQ(run.replanner().corrections().ratios()[1], 1);
  ASSERT_TRUE(better.has_value());
  EXPECT_LT(run.Period(better->plan), 1.06 * run.BestPeriod());
  EXPECT_THAT(better->why, testing::Not(HasSubstr("capacity ratio")));
  run.Take(better->plan);
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(run.Report().has_value());
  EXPECT_EQ(run.measured(), 1);
}

// A device that is slow only while the pipeline runs: measuring it does not show that, so it is
// done once, and what is left is a capacity ratio.
TEST(PredictedReplanner, WhatMeasuringDoesNotShowStaysARatio) {
  for (const bool can_measure : {true, false}) {
    PredictedPipeline run;
    run.can_measure = can_measure;
    run.beside = 1.6;
    EXPECT_FALSE(run.Report().has_value());
    const std::optional<ChangePlan> better = run.Report();
    EXPECT_EQ(run.measured(), 1);
    ASSERT_TRUE(better.has_value());
    EXPECT_THAT(better->why, HasSubstr("w1 by a capacity ratio of 1.6"));
    run.Take(better->plan);
    for (int i = 0; i < 20; ++i) EXPECT_FALSE(run.Report().has_value());
    EXPECT_EQ(run.measured(), 1) << "once is enough";
    // When the others are gone, the ratio says so at once; a device on which measuring explained
    // nothing is measured again more and more rarely.
    run.beside = 1;
    EXPECT_FALSE(run.Report().has_value());
    EXPECT_TRUE(run.Report().has_value());
    EXPECT_NEAR(run.replanner().corrections().ratios()[1], 1, 0.05);
    for (int i = 0; i < 400; ++i) {
      run.beside = i / 10 % 2 == 0 ? 1.6 : 2.4;
      run.Report();
    }
    EXPECT_LE(run.measured(), 10);
  }
}

TEST(PredictedReplanner, ALoadThatComesAndGoesMeasuresNothing) {
  PredictedPipeline run;
  for (int i = 0; i < 40; ++i) {
    run.beside = i % 2 == 0 ? 2 : 1;
    EXPECT_FALSE(run.Report().has_value());
  }
  EXPECT_EQ(run.measured(), 0);
}

TEST(PredictedReplanner, ShortlyBeforeTheEndMeasuringIsNotWorthIt) {
  PredictedPipeline run({}, 0.02, /*stop_step=*/200);
  run.Slow(12, 19, 2);
  for (int i = 0; i < 8; ++i) run.Report();
  EXPECT_EQ(run.measured(), 0);
  EXPECT_GT(run.replanner().corrections().ratios()[1], 1.3) << "a capacity ratio costs nothing";
}

}  // namespace
}  // namespace runnel::replanner_test
