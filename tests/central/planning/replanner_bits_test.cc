// --bits bandwidth at barriers: a link that drops gets fewer bits, one that recovers gets them
// back, one that comes and goes changes nothing.

#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "central/planning/run_planner.h"
#include "central/run/run_planning.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::replanner_bits_test {
namespace {

using ::testing::HasSubstr;

constexpr double kMbps = 125'000;  // bytes a second
constexpr int64_t kEvery = 20;     // micro-batches between reports

// Two workers that compute as profiled; how fast their links are, each report says.
class LiveRun {
 public:
  explicit LiveRun(const std::string& policy, double first_mbps = 0) : times_(2), devices_(2) {
    RunSettings settings;
    settings.model = "lenet";
    settings.dataset = "synthetic_digits";
    settings.local_workers = 2;
    settings.policy = policy;
    settings.bits = "bandwidth";
    if (first_mbps > 0) settings.links = absl::StrCat(first_mbps);
    setup_ = SetUpRun(settings).value();
    EXPECT_TRUE(SetTrainingSamples(1000, setup_).ok());
    PlanningInputs inputs = MakePlanningInputs(setup_, 100'000).value();
    inputs.replan.layer_state_bytes.assign(setup_.model.layer_count(), 100'000);
    planner_ = RunPlanner::Create(std::move(inputs), MakeImmediateSearch()).value();
    for (DeviceTimes& times : times_)
      times = DeviceTimes::ByLayer(std::vector<double>(setup_.model.layer_count(), 0.004));
    Use(planner_->FirstPlan(devices_, times_).value());
  }

  std::optional<ChangePlan> Report(double down_mbps, double up_mbps) {
    step_ += kEvery;
    for (StageStatus& stage : stages_) {
      const double layers = stage.plan.last_layer - stage.plan.first_layer + 1;
      stage.telemetry.backwards = step_;
      stage.telemetry.busy_ns += static_cast<int64_t>(kEvery * layers * 4e6);
    }
    stages_.front().telemetry.downstream_bytes_per_second = up_mbps * kMbps;
    stages_.back().telemetry.upstream_bytes_per_second = down_mbps * kMbps;
    BarrierDecision decision =
        planner_->AtBarrier({step_, plan_, first_, stages_, devices_, times_});
    auto* change = std::get_if<ChangePlan>(&decision);
    if (change == nullptr) return std::nullopt;
    Use(change->plan);
    return std::move(*change);
  }

  const Plan& plan() const { return plan_; }
  const RunSetup& setup() const { return setup_; }
  PlanBandwidth AssumedBandwidth() const { return planner_->AssumedBandwidth(plan_); }

 private:
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
};

constexpr double kFast = 10'000;

bool IsExact(const Plan& plan) { return plan.links.size() == 1 && plan.links[0] == LinkPlan(); }

TEST(ReplannerBits, WithoutBandwidthTheFirstPlanCompressesNothing) {
  const LiveRun run("uniform");
  EXPECT_TRUE(IsExact(run.plan()));
  EXPECT_EQ(run.AssumedBandwidth().source, "none");
  EXPECT_FALSE(MovesLayers(run.setup()));
  EXPECT_TRUE(ChangesCodecs(run.setup()));
  EXPECT_TRUE(NeedsProfile(run.setup()));
  EXPECT_FALSE(IsExact(LiveRun("uniform", 1).plan()));
}

TEST(ReplannerBits, ALinkThatDropsHasFewerBitsAfterTwoReports) {
  LiveRun run("uniform");
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(run.Report(kFast, kFast).has_value());
  EXPECT_FALSE(run.Report(2, kFast).has_value());
  const std::vector<StagePlan> stages = run.plan().stages;
  const std::optional<ChangePlan> fewer = run.Report(2, kFast);
  ASSERT_TRUE(fewer.has_value());
  EXPECT_EQ(fewer->plan.stages, stages);  // uniform's cut stays
  EXPECT_THAT(fewer->plan.links[0].codec_forward.text(), HasSubstr("eden:"));
  EXPECT_EQ(fewer->plan.links[0].codec_backward, CodecSchedule());  // each direction apart
  EXPECT_THAT(fewer->why, HasSubstr("s a micro-batch"));
  const PlanBandwidth bandwidth = run.AssumedBandwidth();
  EXPECT_EQ(bandwidth.source, "measured");
  EXPECT_NEAR(bandwidth.links[0].forward.mbps(), 2, 1e-9);
  EXPECT_NEAR(bandwidth.links[0].backward.mbps(), kFast, 1e-6);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(run.Report(2, kFast).has_value());

  // And back.
  EXPECT_FALSE(run.Report(kFast, kFast).has_value());
  const std::optional<ChangePlan> exact = run.Report(kFast, kFast);
  ASSERT_TRUE(exact.has_value());
  EXPECT_TRUE(IsExact(exact->plan));
  EXPECT_THAT(exact->why, HasSubstr("lose less"));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(run.Report(kFast, kFast).has_value());
}

TEST(ReplannerBits, ALinkThatComesAndGoesChangesNothing) {
  for (const char* policy : {"uniform", "runnel"}) {
    LiveRun run(policy);
    for (int i = 0; i < 40; ++i) {
      EXPECT_FALSE(run.Report(i % 2 == 0 ? 2 : kFast, kFast).has_value()) << policy;
    }
  }
}

// Measurements are never twice the same: bits that just fit do not come and go.
TEST(ReplannerBits, NoiseOfMeasurementChangesNothing) {
  for (double mbps : {2.0, 20.0, 40.0, 60.0, 150.0}) {
    LiveRun run("uniform", mbps);
    int changes = 0;
    for (int i = 0; i < 16; ++i) {
      const double noise = (i / 2) % 2 == 0 ? 0.96 : 1.04;
      changes += run.Report(mbps * noise, mbps / noise).has_value() ? 1 : 0;
    }
    EXPECT_LE(changes, 1) << mbps;
  }
}

TEST(ReplannerBits, RunnelMovesLayersAndBitsTogether) {
  LiveRun run("runnel");
  for (int i = 0; i < 3; ++i) run.Report(kFast, kFast);
  EXPECT_FALSE(run.Report(1, 1).has_value());
  const std::optional<ChangePlan> better = run.Report(1, 1);
  ASSERT_TRUE(better.has_value());
  // One device, or fewer bits: nothing else bears such a link.
  for (const LinkPlan& link : better->plan.links) {
    EXPECT_THAT(link.codec_forward.text(), HasSubstr("eden:"));
    EXPECT_THAT(link.codec_backward.text(), HasSubstr("eden:"));
  }
}

}  // namespace
}  // namespace runnel::replanner_bits_test
