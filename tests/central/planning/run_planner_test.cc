// Before layers move to a device that has no stage, the way there is measured again.

#include "central/planning/run_planner.h"

#include <cmath>
#include <cstdio>
#include <optional>

#include "central/planning/bandwidth_bits.h"
#include "central/run/run_planning.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/training/codecs/link_levels.h"

namespace runnel::run_planner_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr double kMbps = 125'000;  // bytes a second
constexpr int64_t kEvery = 20;     // micro-batches between reports

PathFigures PathOf(double mbps) {
  const WayFigures way = {LinkRate::Mbps(mbps), 0.001};
  return {way, way};
}

// LeNet on one device of central's host and two others.
RunSetup SetUpThreeDevices() {
  RunSettings settings;
  settings.model = "lenet";
  settings.dataset = "synthetic_digits";
  settings.local_workers = 1;
  settings.workers = 2;
  settings.policy = "runnel";
  RunSetup setup = SetUpRun(settings).value();
  EXPECT_TRUE(SetTrainingSamples(1000, setup).ok());
  return setup;
}

// A slow computer and two faster ones at links of their own; a plan uses the fastest one.
class ThreeHosts : public ::testing::Test {
 protected:
  ThreeHosts() : devices_(3) {
    setup_ = SetUpThreeDevices();
    PlanningInputs inputs = MakePlanningInputs(setup_, 100'000).value();
    inputs.replan.layer_state_bytes.assign(setup_.model.layer_count(), 100'000);
    planner_ = RunPlanner::Create(std::move(inputs), MakeImmediateSearch()).value();
    std::vector<double> local(setup_.model.layer_count(), 0.5);
    local.front() = 0.1;
    local[1] = 0.001;
    times_.push_back(DeviceTimes::ByLayer(local));
    for (const double layer_seconds : {0.02, 0.04}) {
      times_.push_back(
          DeviceTimes::ByLayer(std::vector<double>(setup_.model.layer_count(), layer_seconds)));
    }
    devices_[0].is_local = true;
    devices_[1].path = PathOf(40);
    devices_[2].path = PathOf(16);
    Use(planner_->FirstPlan(devices_, times_).value());
  }

  // How much slower than profiled device 1 is, and its link's rate, until the planner wants
  // something.
  BarrierDecision ReportUntilItDecides(double slowdown, double mbps, int most = 12) {
    for (int i = 0; i < most; ++i) {
      BarrierDecision decision = Report(slowdown, mbps);
      if (!std::holds_alternative<KeepPlan>(decision)) return decision;
    }
    return KeepPlan{};
  }
  BarrierDecision Report(double slowdown, double mbps) {
    step_ += kEvery;
    for (StageStatus& stage : stages_) {
      const LayerRange range{stage.plan.first_layer, stage.plan.last_layer};
      const auto device = static_cast<size_t>(stage.plan.sole_device());
      const double seconds = times_[device].Seconds(range) * (device == 1 ? slowdown : 1);
      stage.telemetry.backwards = step_;
      stage.telemetry.busy_ns += static_cast<int64_t>(kEvery * seconds * 1e9);
    }
    if (stages_.size() > 1) {
      stages_.front().telemetry.downstream_bytes_per_second = mbps * kMbps;
      stages_.back().telemetry.upstream_bytes_per_second = mbps * kMbps;
    }
    return Ask();
  }
  // At the same barrier.
  BarrierDecision Ask() {
    BarrierReport report = {step_, plan_, first_, stages_, devices_, times_};
    report.changes = &changes_;
    return planner_->AtBarrier(report);
  }
  void Use(const Plan& plan) {
    const Generation next(plan_.generation.value() + 1);
    plan_ = plan;
    plan_.generation = next;
    first_ = Sequence(step_);
    stages_.clear();
    for (const StagePlan& stage : plan_.stages) stages_.push_back({stage, "", {}});
  }

  RunSetup setup_;
  std::vector<DeviceTimes> times_;
  std::unique_ptr<RunPlanner> planner_;
  Plan plan_;
  Sequence first_;
  std::vector<StageStatus> stages_;
  std::vector<DeviceFacts> devices_;
  int64_t step_ = 0;
  std::vector<TrainingChange> changes_;
};

// Codec recipe: with the last level's bits the tensor behind the first pool is what everything waits
// for, so that the cut moves behind the second one.
TEST_F(ThreeHosts, LayersMoveAtATurnThatMakesTheLinkSlow) {
  setup_.settings.recipe = "sbm:8,8,8";
  setup_.settings.bits.clear();
  setup_.settings.codec_forward = setup_.settings.codec_backward = CodecSchedule(RecipeCodec());
  setup_.training.precision = "pfq:3,8/6,16";
  PlanningInputs inputs = MakePlanningInputs(setup_, 100'000).value();
  inputs.replan.layer_state_bytes.assign(setup_.model.layer_count(), 100'000);
  planner_ = RunPlanner::Create(std::move(inputs), MakeImmediateSearch()).value();
  times_[0] = DeviceTimes::ByLayer({0.1, 0.001, 0.05, 0.001, 0.5, 0.5});
  for (const int device : {1, 2}) devices_[device].path = PathOf(16);
  Use(planner_->FirstPlan(devices_, times_).value());
  ASSERT_EQ(plan_.stages[0].last_layer, 1);
  ASSERT_EQ(plan_.links[0].codec_forward.text(), "recipe");
  EXPECT_TRUE(std::holds_alternative<KeepPlan>(ReportUntilItDecides(1, 16)));
  changes_ = {ChangeOfPrecision(step_, 1)};
  const BarrierDecision decision = ReportUntilItDecides(1, 16);
  ASSERT_TRUE(std::holds_alternative<ChangePlan>(decision));
  EXPECT_EQ(std::get<ChangePlan>(decision).plan.stages[0].last_layer, 3);
}

// It is planned at the level that it goes on with, and so it is when others are there again.
TEST_F(ThreeHosts, AResumedRunIsPlannedAtItsLevel) {
  setup_.settings.recipe = "sbm:8,8,8";
  setup_.settings.bits.clear();
  setup_.settings.codec_forward = setup_.settings.codec_backward = CodecSchedule(RecipeCodec());
  times_[0] = DeviceTimes::ByLayer({0.1, 0.001, 0.05, 0.001, 0.5, 0.5});
  for (const int device : {1, 2}) devices_[device].path = PathOf(16);
  const auto first_cut = [this](const char* precision, int64_t first_step) {
    setup_.training.precision = precision;
    planner_ = MakeRunPlanner(setup_, 100'000, first_step, changes_).value();
    planner_->FirstPlan(devices_, times_).value();
    return planner_->FirstPlan(devices_, times_).value().stages[0].last_layer;
  };
  EXPECT_EQ(first_cut("pfq:3,8/6,16", 0), 1);
  changes_ = {ChangeOfPrecision(200, 1)};
  EXPECT_EQ(first_cut("pfq:3,8/6,16", 200), 3);
  // By epochs of as many steps as are trained.
  const int64_t epoch = MakeBatching(setup_.training)->steps_per_epoch();
  changes_.clear();
  EXPECT_EQ(first_cut("at:0:3/6,1:8/16", epoch - 1), 1);
  EXPECT_EQ(first_cut("at:0:3/6,1:8/16", epoch), 3);
}

// A last mini-batch of one sample is no step with batch norm.
TEST(RunPlanner, EpochsOfLevelsHaveTheStepsThatAreTrained) {
  RunSettings settings;
  settings.model = "resnet20";
  settings.recipe = "sbm:8,8,8";
  settings.codec_forward = settings.codec_backward = CodecSchedule(RecipeCodec());
  settings.training.precision = "at:0:3/6,1:8/16";
  settings.training.batch_size = 10;
  RunSetup setup = SetUpRun(settings).value();
  ASSERT_TRUE(SetTrainingSamples(101, setup).ok());
  const auto bits_at = [&setup](int64_t step) {
    return MakePlanningInputs(setup, 1000, step).value().codecs.first_bits;
  };
  EXPECT_EQ(MakePlanningInputs(setup, 1000).value().codecs.steps_per_epoch, 10);
  EXPECT_EQ(bits_at(9), (GridBits{3, 6}));
  EXPECT_EQ(bits_at(10), (GridBits{8, 16}));
}

// With barriers after each step, what a plan promises has the way to central and back in it.
TEST_F(ThreeHosts, BarriersCostARoundTrip) {
  const auto promised = [this](double delay_seconds) {
    for (const int device : {1, 2}) {
      devices_[device].path.down.delay_seconds = delay_seconds;
      devices_[device].path.up.delay_seconds = delay_seconds;
    }
    PlanningInputs inputs = MakePlanningInputs(setup_, 100'000).value();
    inputs.barrier_every = 1;
    const auto planner = RunPlanner::Create(std::move(inputs), MakeImmediateSearch()).value();
    EXPECT_TRUE(planner->FirstPlan(devices_, times_).ok());
    return 1 / planner->predicted_samples_per_s();
  };
  const double near = promised(0), far = promised(0.1);
  EXPECT_GT((far - near) * static_cast<double>(setup_.training.batch_size), 0.3)
      << "0.2 s on the link, and 0.2 s on the way to central and back";
}

TEST_F(ThreeHosts, AnIdlePathIsMeasuredBeforeLayersMoveThere) {
  ASSERT_TRUE(plan_.Uses(1));
  ASSERT_FALSE(plan_.Uses(2));
  BarrierDecision decision = ReportUntilItDecides(1, 0.5);
  ASSERT_TRUE(std::holds_alternative<MeasureDevices>(decision));
  EXPECT_THAT(std::get<MeasureDevices>(decision).paths, ElementsAre(2));
  EXPECT_THAT(std::get<MeasureDevices>(decision).devices, IsEmpty());
  devices_[2].path = PathOf(14);
  decision = Ask();
  ASSERT_TRUE(std::holds_alternative<ChangePlan>(decision));
  EXPECT_TRUE(std::get<ChangePlan>(decision).plan.Uses(2));
}

TEST_F(ThreeHosts, APathThatFellTooTakesNoLayers) {
  ASSERT_TRUE(std::holds_alternative<MeasureDevices>(ReportUntilItDecides(1, 0.5)));
  devices_[2].path = PathOf(0.01);
  EXPECT_TRUE(std::holds_alternative<KeepPlan>(Ask()));
  // What is proposed now goes without it.
  const BarrierDecision decision = ReportUntilItDecides(1, 0.5, 4);
  EXPECT_FALSE(std::holds_alternative<MeasureDevices>(decision));
  if (const auto* change = std::get_if<ChangePlan>(&decision); change != nullptr) {
    EXPECT_FALSE(change->plan.Uses(2));
  }
}

TEST_F(ThreeHosts, WhoIsLostMeanwhileTakesNoLayers) {
  ASSERT_TRUE(std::holds_alternative<MeasureDevices>(ReportUntilItDecides(1, 0.5)));
  devices_[2].is_lost = true;
  EXPECT_TRUE(std::holds_alternative<KeepPlan>(Ask()));
}

// A device that was slow and lost its layers is measured before it gets some again.
TEST_F(ThreeHosts, ADeviceThatWasSlowIsMeasuredBeforeItComesBack) {
  BarrierDecision decision = ReportUntilItDecides(100, 40);
  ASSERT_TRUE(std::holds_alternative<MeasureDevices>(decision)) << "the way to the other one";
  decision = Ask();
  ASSERT_TRUE(std::holds_alternative<ChangePlan>(decision));
  ASSERT_FALSE(std::get<ChangePlan>(decision).plan.Uses(1));
  Use(std::get<ChangePlan>(decision).plan);
  decision = ReportUntilItDecides(1, 16, 60);
  ASSERT_TRUE(std::holds_alternative<MeasureDevices>(decision)) << "it is forgiven in the end";
  EXPECT_THAT(std::get<MeasureDevices>(decision).devices, ElementsAre(1));
  EXPECT_THAT(std::get<MeasureDevices>(decision).paths, ElementsAre(1));
  times_[1] = times_[1].Scaled(100);
  EXPECT_TRUE(std::holds_alternative<KeepPlan>(Ask())) << "as slow as it was";
}

// ---- links by way of central

// Two phones behind routers and a computer whose way to the internet both share.
class TwoPhones : public ::testing::Test {
 protected:
  TwoPhones() : devices_(3) {
    setup_ = SetUpThreeDevices();
    const auto layers = static_cast<size_t>(setup_.model.layer_count());
    times_ = {DeviceTimes::ByLayer(std::vector<double>(layers, 0.2)),
              DeviceTimes::ByLayer(std::vector<double>(layers, 0.2)),
              DeviceTimes::ByLayer(std::vector<double>(layers, 0.2))};
    devices_[0].is_local = true;
    for (const int phone : {1, 2}) {
      devices_[phone].path = PathOf(kUplinkMbps);
      devices_[phone].path.medium = 0;
    }
    planner_ = MakePlanner();
  }
  std::unique_ptr<RunPlanner> MakePlanner() const {
    PlanningInputs inputs = MakePlanningInputs(setup_, 100'000).value();
    inputs.replan.layer_state_bytes.assign(setup_.model.layer_count(), 100'000);
    return RunPlanner::Create(std::move(inputs), MakeImmediateSearch()).value();
  }

  static constexpr double kUplinkMbps = 15;
  RunSetup setup_;
  std::vector<DeviceTimes> times_;
  std::vector<DeviceFacts> devices_;
  std::unique_ptr<RunPlanner> planner_;
};

// Straight from phone to phone, frames would not take the computer's way out.
TEST_F(TwoPhones, LinksByWayOfCentralShareItsWayOut) {
  const Plan straight = planner_->FirstPlan(devices_, times_).value();
  EXPECT_EQ(straight.stages.size(), 3u);
  const double promised = planner_->predicted_samples_per_s();
  for (const int phone : {1, 2}) devices_[phone].is_dialable = false;
  planner_ = MakePlanner();
  const Plan relayed = planner_->FirstPlan(devices_, times_).value();
  EXPECT_EQ(relayed.stages.size(), 2u) << "the second phone gets no stage";
  EXPECT_LT(planner_->predicted_samples_per_s(), promised * 0.9);
}

// One of them can be dialled, so that it depends on the order of stages: what is seen counts.
TEST_F(TwoPhones, ALinkThatProvesToBeRelayedCountsAtTheNextBarrier) {
  const Plan plan = planner_->FirstPlan(devices_, times_).value();
  ASSERT_EQ(plan.stages.size(), 3u);
  std::vector<StageStatus> stages;
  for (const StagePlan& stage : plan.stages) stages.push_back({stage, "", {}});
  int64_t step = 0;
  const auto decide = [&]() -> std::optional<ChangePlan> {
    for (const int64_t end = step + 12 * kEvery; step < end;) {
      step += kEvery;
      for (StageStatus& stage : stages) {
        const LayerRange range{stage.plan.first_layer, stage.plan.last_layer};
        const auto device = static_cast<size_t>(stage.plan.sole_device());
        stage.telemetry.backwards = step;
        stage.telemetry.busy_ns +=
            static_cast<int64_t>(1e9 * static_cast<double>(kEvery) * times_[device].Seconds(range));
      }
      const BarrierDecision decision =
          planner_->AtBarrier({step, plan, Sequence(), stages, devices_, times_});
      if (const auto* change = std::get_if<ChangePlan>(&decision)) return *change;
      EXPECT_TRUE(std::holds_alternative<KeepPlan>(decision));
    }
    return std::nullopt;
  };
  EXPECT_FALSE(decide().has_value());
  stages[2].relayed = true;
  const std::optional<ChangePlan> change = decide();
  ASSERT_TRUE(change.has_value());
  EXPECT_EQ(change->plan.stages.size(), 2u) << change->why;
}

// ---- who comes and goes

// As fast as the two that are there.
TEST_F(ThreeHosts, OneThatJoinsIsMeasuredAndMakesTheNextPlanFaster) {
  const DeviceTimes alike =
      DeviceTimes::ByLayer(std::vector<double>(setup_.model.layer_count(), 0.02));
  times_ = {alike, alike};
  devices_.resize(2);
  devices_[1].path = PathOf(400);
  PlanningInputs inputs = MakePlanningInputs(setup_, 100'000).value();
  inputs.replan.layer_state_bytes.assign(setup_.model.layer_count(), 100'000);
  planner_ = RunPlanner::Create(std::move(inputs), MakeImmediateSearch()).value();
  Use(planner_->FirstPlan(devices_, times_).value());
  ASSERT_EQ(plan_.stages.size(), 2u);
  ASSERT_TRUE(std::holds_alternative<KeepPlan>(ReportUntilItDecides(1, 400, 3)));
  devices_.push_back({.name = "late", .path = PathOf(400)});
  BarrierDecision decision = Report(1, 400);
  ASSERT_TRUE(std::holds_alternative<MeasureDevices>(decision)) << "nothing is known of it";
  EXPECT_THAT(std::get<MeasureDevices>(decision).devices, ElementsAre(2));
  EXPECT_TRUE(std::get<MeasureDevices>(decision).beside);
  EXPECT_TRUE(std::holds_alternative<KeepPlan>(Ask())) << "its times are not there yet";
  times_.push_back(alike);
  decision = ReportUntilItDecides(1, 400);
  if (std::holds_alternative<KeepPlan>(decision)) decision = ReportUntilItDecides(1, 400);
  if (std::holds_alternative<MeasureDevices>(decision)) decision = Ask();  // the way to it
  ASSERT_TRUE(std::holds_alternative<ChangePlan>(decision));
  EXPECT_TRUE(std::get<ChangePlan>(decision).plan.Uses(2));
  double before = 0, after = 0;
  const std::string& why = std::get<ChangePlan>(decision).why;
  ASSERT_EQ(std::sscanf(why.c_str(), "step %*d: %lf -> %lf s", &before, &after), 2) << why;
  EXPECT_LT(after, before * 0.75) << "a third of the layers instead of half";
  std::printf("%s\n", why.c_str());
}

// Without an order two reports must want the same change.
TEST_F(ThreeHosts, AnOperatorsOrderTakesAPlanAtTheNextBarrier) {
  ASSERT_TRUE(std::holds_alternative<KeepPlan>(Report(1, 40)));
  ASSERT_TRUE(planner_->OrderReplan().ok());
  BarrierDecision decision = Report(100, 40);
  // It and the way to the third are measured.
  for (int i = 0; i < 2 && std::holds_alternative<MeasureDevices>(decision); ++i) decision = Ask();
  ASSERT_TRUE(std::holds_alternative<ChangePlan>(decision));
  EXPECT_FALSE(std::get<ChangePlan>(decision).plan.Uses(1));
  EXPECT_THAT(planner_->TakeRemark(), HasSubstr("as ordered: another plan is faster"));
}

TEST_F(ThreeHosts, AnOperatorsOrderPlansAnewAtTheNextBarrierOnce) {
  EXPECT_TRUE(planner_->OrderReplan().ok());
  Report(1, 40);
  EXPECT_THAT(planner_->TakeRemark(), HasSubstr("planned anew, as ordered: "));
  Report(1, 40);
  EXPECT_THAT(planner_->TakeRemark(), Not(HasSubstr("as ordered")));
  setup_.settings.replan = "off";
  const auto fixed = RunPlanner::Create(MakePlanningInputs(setup_, 100'000).value()).value();
  EXPECT_EQ(fixed->OrderReplan().code(), absl::StatusCode::kFailedPrecondition);
}

// It could not measure, or did not answer: it is asked once.
TEST_F(ThreeHosts, OneOfWhomNothingIsKnownIsNotUsed) {
  devices_.push_back({.name = "late", .path = PathOf(400)});
  ASSERT_TRUE(std::holds_alternative<MeasureDevices>(Report(1, 40)));
  EXPECT_TRUE(std::holds_alternative<KeepPlan>(Ask()));
  EXPECT_TRUE(std::holds_alternative<KeepPlan>(ReportUntilItDecides(1, 40, 6)));
  const absl::StatusOr<Plan> plan =
      planner_->PlanForSurvivors({step_, plan_, first_, stages_, devices_, times_});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_FALSE(plan->Uses(3));
}

TEST_F(ThreeHosts, OneThatComesBackIsUsedAgain) {
  devices_[1].is_lost = true;
  Use(planner_->PlanForSurvivors({step_, plan_, first_, stages_, devices_, times_}).value());
  ASSERT_FALSE(plan_.Uses(1));
  ReportUntilItDecides(1, 16, 2);
  devices_[1].is_lost = false;
  BarrierDecision decision = ReportUntilItDecides(1, 16);
  if (std::holds_alternative<MeasureDevices>(decision)) decision = Ask();
  ASSERT_TRUE(std::holds_alternative<ChangePlan>(decision));
  EXPECT_TRUE(std::get<ChangePlan>(decision).plan.Uses(1));
}

// What was measured of the plan's codecs stands for all of them, also when a plan is made anew.
TEST(RunPlanner, CodecsAreChargedWhatTheyWereMeasuredToAdd) {
  RunSettings settings;
  settings.model = "lenet";
  settings.dataset = "synthetic_digits";
  settings.local_workers = 1;
  settings.workers = 1;
  settings.policy = "runnel";
  settings.links = "2";
  settings.learning_budget = 1;
  settings.bits = "bandwidth";
  RunSetup setup = SetUpRun(settings).value();
  ASSERT_TRUE(SetTrainingSamples(1000, setup).ok());
  const auto planner = MakeRunPlanner(setup, 1000).value();
  std::vector<DeviceFacts> devices(2);
  devices[0].is_local = true;
  const std::vector<DeviceTimes> times(2, DeviceTimes::ByLayer(std::vector<double>(6, 0.1)));
  const Plan plan = planner->FirstPlan(devices, times).value();
  const double by_table = NoiseByTable(plan, 0);
  ASSERT_GT(by_table, 0);
  const std::vector<StageStatus> none;
  const auto noise_after = [&](double added) {
    planner->SetNoise({.added = added, .by_table = by_table});
    return NoiseByTable(
        planner->PlanForSurvivors({10, plan, Sequence(), none, devices, times}).value(), 0);
  };
  EXPECT_EQ(noise_after(by_table), by_table);
  EXPECT_GE(noise_after(by_table / 20), by_table);
  EXPECT_EQ(noise_after(100 * by_table), 0);
  EXPECT_EQ(noise_after(std::nan("")), 0) << "says nothing";
  EXPECT_EQ(NoiseByTable(planner->FirstPlan(devices, times).value(), 0), 0) << "of a resumed run";
}

PlanningInputs OfThreeLocalWorkers() {
  RunSettings settings;
  settings.model = "lenet";
  settings.dataset = "synthetic_digits";
  settings.local_workers = 3;
  settings.policy = "runnel";
  RunSetup setup = SetUpRun(settings).value();
  EXPECT_TRUE(SetTrainingSamples(1000, setup).ok());
  PlanningInputs inputs = MakePlanningInputs(setup, 1000).value();
  inputs.host_processors = 2;
  return inputs;
}

// A share of a processor each.
std::vector<DeviceFacts> ThreeLocals(double processor_share) {
  std::vector<DeviceFacts> devices(3);
  for (DeviceFacts& device : devices) {
    device.is_local = true;
    device.processor_share = processor_share;
  }
  return devices;
}

// Each stage gets as much less as others take, so that the plan is that of a quiet host.
TEST(RunPlanner, ABusyHostGetsThePlanOfTheQuietOne) {
  const PlanningInputs inputs = OfThreeLocalWorkers();
  const std::vector<DeviceTimes> times(3, DeviceTimes::ByLayer({0.1, 0.1, 0.2, 0.1, 0.3, 0.1}));
  const auto quiet = RunPlanner::Create(inputs, MakeImmediateSearch()).value();
  const Plan expected = quiet->FirstPlan(ThreeLocals(1), times).value();
  EXPECT_THAT(quiet->Explanation(), Not(HasSubstr("others took")));
  ASSERT_GT(expected.stages.size(), 1u);
  for (const double share : {0.8, 0.5, 0.2}) {
    const auto busy = RunPlanner::Create(inputs, MakeImmediateSearch()).value();
    std::vector<DeviceTimes> longer(3, times[0].Scaled(1 / share));
    const Plan plan = busy->FirstPlan(ThreeLocals(share), longer).value();
    ASSERT_EQ(plan.stages.size(), expected.stages.size()) << share;
    for (size_t i = 0; i < plan.stages.size(); ++i)
      EXPECT_EQ(plan.stages[i].last_layer, expected.stages[i].last_layer) << share;
    EXPECT_NEAR(busy->predicted_samples_per_s() / quiet->predicted_samples_per_s(), share,
                0.01 * share);
    EXPECT_THAT(busy->Explanation(), HasSubstr("; others took "));
  }
}

// Measured beside one another they got two thirds of a processor each.
TEST(RunPlanner, WorkersOnCentralsHostShareItsProcessors) {
  PlanningInputs inputs = OfThreeLocalWorkers();
  const auto samples = static_cast<double>(inputs.micro_batch_size);
  std::vector<DeviceFacts> devices = ThreeLocals(2.0 / 3);
  // A tenth of a second a layer on a processor of its own.
  std::vector<DeviceTimes> times(3, DeviceTimes::ByLayer(std::vector<double>(6, 0.15)));
  const auto planner = RunPlanner::Create(inputs, MakeImmediateSearch()).value();
  const Plan plan = planner->FirstPlan(devices, times).value();
  EXPECT_EQ(plan.stages.size(), 2u) << "as many as there are processors";
  const double period_s = samples / planner->predicted_samples_per_s();
  EXPECT_GT(period_s, 0.45) << "as slow as they were measured";
  EXPECT_LT(period_s, 0.48);
  EXPECT_THAT(planner->Explanation(), HasSubstr("; 3 workers share 2 processors of this host"));
  EXPECT_THAT(planner->Explanation(), HasSubstr("; others took 33 % of this host"));

  // One that is gone takes nothing.
  std::vector<DeviceFacts> two = devices;
  two[2].is_lost = true;
  for (DeviceFacts& device : two) device.processor_share = 1;
  inputs.host_processors = 2;
  const auto for_two = RunPlanner::Create(inputs, MakeImmediateSearch()).value();
  ASSERT_TRUE(for_two->FirstPlan(two, times).ok());
  EXPECT_THAT(for_two->Explanation(), Not(HasSubstr("share 2 processors")));

  std::vector<DeviceFacts> one = {devices[0]};
  one[0].processor_share = 0.367;
  inputs.host_processors = 2;
  const auto for_one = RunPlanner::Create(inputs, MakeImmediateSearch()).value();
  ASSERT_TRUE(for_one->FirstPlan(one, {times[0]}).ok());
  EXPECT_THAT(for_one->Explanation(), HasSubstr("; others took 63 % of this host"));

  // The idle one is measured alone: its times are shorter, and it is no faster than it was.
  devices[plan.Uses(1) ? 2 : 1].processor_share = 1;
  times[plan.Uses(1) ? 2 : 1] = times[0].Scaled(2.0 / 3);
  const std::vector<StageStatus> none;
  planner->AtBarrier({10, plan, Sequence(), none, devices, times});
  const Plan next = planner->PlanForSurvivors({10, plan, Sequence(), none, devices, times}).value();
  EXPECT_EQ(next.stages.size(), plan.stages.size());
  EXPECT_EQ(next.stages[0].last_layer, plan.stages[0].last_layer);

  // With a processor for each of them there is nothing to say.
  inputs.host_processors = 4;
  for (DeviceFacts& device : devices) device.processor_share = 1;
  times.assign(3, DeviceTimes::ByLayer(std::vector<double>(6, 0.1)));
  const auto roomy = RunPlanner::Create(inputs, MakeImmediateSearch()).value();
  EXPECT_EQ(roomy->FirstPlan(devices, times).value().stages.size(), 3u);
  EXPECT_THAT(roomy->Explanation(), Not(HasSubstr("share")));
}

// A policy that weighs nothing cuts for those that are there.
TEST(RunPlanner, AnEvenCutFollowsWhoIsThere) {
  RunSettings settings;
  settings.model = "lenet";
  settings.dataset = "synthetic_digits";
  settings.local_workers = 1;
  settings.workers = 1;
  for (const char* replan : {"auto", "off"}) {
    settings.replan = replan;
    RunSetup setup = SetUpRun(settings).value();
    ASSERT_TRUE(SetTrainingSamples(1000, setup).ok());
    const auto planner = MakeRunPlanner(setup, 1000).value();
    std::vector<DeviceFacts> devices(2);
    devices[0].is_local = true;
    const Plan plan = planner->FirstPlan(devices, {}).value();
    const std::vector<StageStatus> none;
    const std::vector<DeviceTimes> times;
    const auto ask = [&](int64_t step) {
      return planner->AtBarrier({step, plan, Sequence(), none, devices, times});
    };
    EXPECT_TRUE(std::holds_alternative<KeepPlan>(ask(10)));
    devices.emplace_back();
    const BarrierDecision decision = ask(20);
    const auto* change = std::get_if<ChangePlan>(&decision);
    ASSERT_EQ(change != nullptr, settings.replan == "auto");
    if (change == nullptr) continue;
    EXPECT_EQ(change->plan.stages.size(), 3u);
    EXPECT_TRUE(std::holds_alternative<KeepPlan>(ask(30))) << "it was proposed";
    devices.resize(30);
    EXPECT_TRUE(std::holds_alternative<KeepPlan>(ask(40))) << "more than there are layers";
  }
}

}  // namespace
}  // namespace runnel::run_planner_test
