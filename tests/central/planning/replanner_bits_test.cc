// --bits bandwidth at barriers: a link that drops gets fewer bits, one that recovers gets them
// back, one that comes and goes changes nothing.

#include <optional>

#include "absl/strings/match.h"
#include "central/planning/link_rates.h"
#include "central/planning/replanner.h"
#include "central/planning/run_setup.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

constexpr double kMbps = 125'000;  // bytes a second
constexpr int64_t kEvery = 20;     // micro-batches between reports

// Two workers that compute as profiled; how fast their links are, each report says.
class LiveRun {
 public:
  explicit LiveRun(const std::string& policy, double first_mbps = 0)
      : setup_(SetUp(policy, first_mbps)), seconds_(2) {
    for (DeviceTimes& times : seconds_)
      times = DeviceTimes::ByLayer(std::vector<double>(setup_.model.layer_count(), 0.004));
    plan_ = PlanFor(setup_, Generation(1), {0, 1}, seconds_).value();
    for (int i = 0; i < 2; ++i) {
      devices_.push_back({"w" + std::to_string(i)});
    }
    Take(plan_);
    replanner_.emplace(Options());
  }
  LiveRun(const LiveRun&) = delete;

  std::optional<ChangePlan> Report(double down_mbps, double up_mbps) {
    step_ += kEvery;
    for (StageStatus& stage : stages_) {
      const double layers = stage.plan.last_layer - stage.plan.first_layer + 1;
      stage.telemetry.backwards = step_;
      stage.telemetry.busy_ns += static_cast<int64_t>(kEvery * layers * 4e6);
    }
    stages_.front().telemetry.downstream_bytes_per_second = up_mbps * kMbps;
    stages_.back().telemetry.upstream_bytes_per_second = down_mbps * kMbps;
    const BarrierReport report{step_, plan_, first_, stages_, devices_, seconds_};
    NoteLinkRates(stages_, 2, rates_);
    std::optional<ChangePlan> better = replanner_->AtBarrier(report);
    if (better.has_value()) Take(better->plan);
    return better;
  }

  const Plan& plan() const { return plan_; }
  const RunSetup& setup() const { return setup_; }
  const LinkRates& rates() const { return rates_; }

 private:
  static RunSetup SetUp(const std::string& policy, double first_mbps) {
    RunSettings settings;
    settings.model = "lenet";
    settings.dataset = "synthetic_digits";
    settings.local_workers = 2;
    settings.policy = policy;
    settings.bits = "bandwidth";
    settings.plan_mbps = first_mbps;
    return SetUpRun(settings).value();
  }

  ReplannerOptions Options() {
    ReplannerOptions options;
    if (MovesLayers(setup_)) {
      options.make_plan = [this](const std::vector<int>& devices, const auto& seconds) {
        return PlanFor(setup_, Generation(1), devices, seconds, {rates_, {}, {}});
      };
    }
    options.period_seconds = [this](const Plan& plan, const auto& seconds) {
      return PredictPeriod(setup_, plan, seconds, {rates_, {}, {}});
    };
    options.fit_bits = [this](const Plan& plan, const auto& seconds, double share) {
      return RefitBits(setup_, plan, seconds, {Scaled(rates_, share), {}, {}});
    };
    options.coding_error = [this](const Plan& plan) { return CodingErrorOf(setup_, plan); };
    options.layer_state_bytes.assign(setup_.model.layer_count(), 100'000);
    options.stop_step = 100'000;
    return options;
  }

  void Take(const Plan& plan) {
    const Generation next(plan_.generation.value() + 1);
    plan_ = plan;
    plan_.generation = next;
    first_ = Sequence(step_);
    stages_.clear();
    for (const StagePlan& stage : plan_.stages) stages_.push_back({stage, "", {}});
  }

  RunSetup setup_;
  std::vector<DeviceTimes> seconds_;
  LinkRates rates_;
  Plan plan_;
  Sequence first_;
  std::vector<StageStatus> stages_;
  std::vector<DeviceFacts> devices_;
  std::optional<Replanner> replanner_;
  int64_t step_ = 0;
};

constexpr double kFast = 10'000;

bool IsExact(const Plan& plan) {
  return plan.links.size() == 1 && plan.links[0] == LinkPlan{"identity", "identity"};
}

TEST(ReplannerBits, WithoutBandwidthTheFirstPlanCompressesNothing) {
  const LiveRun run("uniform");
  EXPECT_TRUE(IsExact(run.plan()));
  EXPECT_EQ(BandwidthOf(run.setup(), run.plan(), {}).source, "none");
  EXPECT_FALSE(MovesLayers(run.setup()));
  EXPECT_TRUE(Replans(run.setup()));
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
  EXPECT_THAT(fewer->plan.links[0].codec_forward, HasSubstr("hadamard:"));
  EXPECT_EQ(fewer->plan.links[0].codec_backward, "identity");  // each direction apart
  EXPECT_THAT(fewer->why, HasSubstr("s a micro-batch"));
  const PlanBandwidth bandwidth = BandwidthOf(run.setup(), run.plan(), run.rates());
  EXPECT_EQ(bandwidth.source, "measured");
  EXPECT_NEAR(bandwidth.links[0].forward, 2, 1e-9);
  EXPECT_NEAR(bandwidth.links[0].backward, kFast, 1e-6);
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
    EXPECT_THAT(link.codec_forward, HasSubstr("hadamard:"));
    EXPECT_THAT(link.codec_backward, HasSubstr("hadamard:"));
  }
}

}  // namespace
}  // namespace runnel
