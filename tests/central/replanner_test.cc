// When another plan is worth the move.

#include "central/replanner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

constexpr int kLayers = 6;
constexpr int64_t kEvery = 20;  // micro-batches between reports

// Two devices of the same speed, 10 ms a layer; the best cut balances them.
class Pipeline {
 public:
  explicit Pipeline(int64_t stop_step = 10'000) : replanner_(Options(stop_step)) {
    plan_.generation = Generation(1);
    Cut(2);
    for (int i = 0; i < 2; ++i) {
      Device device;
      device.hello.name = "w" + std::to_string(i);
      devices_.push_back(device);
    }
  }

  // The next report, with device 1 this much slower than profiled.
  std::optional<BetterPlan> Report(double slowdown) {
    step_ += kEvery;
    for (size_t i = 0; i < 2; ++i) {
      Telemetry& telemetry = stages_[i].telemetry;
      const StagePlan& stage = stages_[i].plan;
      const double layers = stage.last_layer - stage.first_layer + 1;
      telemetry.backwards = step_;
      telemetry.busy_ns += static_cast<int64_t>(kEvery * layers * 10e6 * (i == 1 ? slowdown : 1.0));
    }
    return replanner_.AtBarrier({step_, plan_, first_, stages_, devices_, lost_, seconds_});
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
  static double Slowest(const Plan& plan, const std::vector<std::vector<double>>& seconds) {
    double slowest = 0;
    for (const StagePlan& stage : plan.stages) {
      double sum = 0;
      for (int l = stage.first_layer; l <= stage.last_layer; ++l) {
        sum += seconds[stage.device.value()][l];
      }
      slowest = std::max(slowest, sum);
    }
    return slowest;
  }

  static Plan PlanWith(int last) {
    Plan plan;
    plan.stages = {{DeviceId(0), 0, last, 2}, {DeviceId(1), last + 1, kLayers - 1, 1}};
    plan.links.emplace_back();
    return plan;
  }

  static ReplannerOptions Options(int64_t stop_step) {
    ReplannerOptions options;
    options.make_plan = [](const std::vector<int>&, const auto& seconds) -> absl::StatusOr<Plan> {
      Plan best = PlanWith(0);
      for (int last = 1; last + 1 < kLayers; ++last) {
        if (Slowest(PlanWith(last), seconds) < Slowest(best, seconds)) best = PlanWith(last);
      }
      return best;
    };
    options.period_seconds = [](const Plan& plan, const auto& seconds) -> absl::StatusOr<double> {
      return Slowest(plan, seconds);
    };
    options.layer_state_bytes.assign(kLayers, 1'000'000);
    options.stop_step = stop_step;
    return options;
  }

  void Cut(int last) {
    const Generation generation = plan_.generation;
    plan_ = PlanWith(last);
    plan_.generation = generation;
    stages_.clear();
    for (const StagePlan& stage : plan_.stages) stages_.push_back({stage, "", {}});
  }

  Replanner replanner_;
  Plan plan_;
  Sequence first_;
  std::vector<StageStatus> stages_;
  std::vector<Device> devices_;
  std::vector<bool> lost_ = {false, false};
  std::vector<std::vector<double>> seconds_ = {std::vector<double>(kLayers, 0.01),
                                               std::vector<double>(kLayers, 0.01)};
  int64_t step_ = 0;
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
  std::optional<BetterPlan> better = run.Report(2);
  for (; !better.has_value() && reports < 5; ++reports) better = run.Report(2);
  ASSERT_TRUE(better.has_value());
  EXPECT_LE(reports, 3);
  EXPECT_EQ(better->plan.stages[0].last_layer, 3);
  EXPECT_THAT(better->why, HasSubstr("0.06 -> 0.04 s a micro-batch"));
  EXPECT_NEAR(run.replanner().slowdowns()[1], 2, 1e-6);
  run.Take(better->plan);
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(run.Report(2).has_value());
  // And back when it is fast again.
  EXPECT_FALSE(run.Report(1).has_value());
  better = run.Report(1);
  ASSERT_TRUE(better.has_value());
  EXPECT_EQ(better->plan.stages[0].last_layer, 2);
}

TEST(Replanner, ALoadThatComesAndGoesMovesNothing) {
  Pipeline run;
  for (int i = 0; i < 40; ++i) EXPECT_FALSE(run.Report(i % 2 == 0 ? 2 : 1).has_value());
}

TEST(Replanner, ShortlyBeforeTheEndAMoveIsNotWorthIt) {
  Pipeline run(/*stop_step=*/80);
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(run.Report(2).has_value());
}

}  // namespace
}  // namespace runnel
