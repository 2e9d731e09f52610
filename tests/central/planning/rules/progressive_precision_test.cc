#include "central/planning/rules/progressive_precision.h"

#include <fstream>

#include "central/planning/rules/training_rules.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace runnel::progressive_precision_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr char kLevels[] = "3,4,6,8/6,6,8,8";

json Golden() {
  std::ifstream file(RUNNEL_SOURCE_DIR "/tests/golden/fractrain.json");
  return json::parse(file);
}

std::vector<double> GoldenLosses(const std::string& name) {
  for (const json& trace : Golden()["indicator"]) {
    if (trace["name"] == name) return trace["losses"];
  }
  return {};
}

// Periods of turns, from 1.
std::vector<int64_t> TurnsOf(const std::vector<double>& losses, LossIndicatorOptions options = {}) {
  LossIndicator indicator(options);
  std::vector<int64_t> turns;
  for (size_t i = 0; i < losses.size(); ++i) {
    if (indicator.Observe(losses[i])) turns.push_back(static_cast<int64_t>(i) + 1);
  }
  return turns;
}

TEST(LossIndicator, TurnsWhereTheGoldenTracesDo) {
  const json traces = Golden()["indicator"];
  ASSERT_EQ(traces.size(), 4u);
  for (const json& trace : traces) {
    SCOPED_TRACE(trace["name"].get<std::string>());
    LossIndicator indicator({.eps = trace["eps0"], .alpha = trace["alpha"]});
    const std::vector<double> losses = trace["losses"];
    for (size_t i = 0; i < losses.size(); ++i) {
      const json& want = trace["detail"][i];
      EXPECT_EQ(indicator.Observe(losses[i]), want["turn"].get<bool>()) << i;
      EXPECT_NEAR(indicator.scale(), want["scale"].get<double>(), 1e-12) << i;
      EXPECT_EQ(indicator.distance().has_value(), !want["max_d"].is_null()) << i;
      if (indicator.distance().has_value()) {
        EXPECT_NEAR(*indicator.distance(), want["max_d"].get<double>(), 1e-12) << i;
      }
      EXPECT_NEAR(indicator.eps(), want["eps_after"].get<double>(), 1e-12) << i;
      // Whoever goes on from its state goes on alike.
      LossIndicator restored({.eps = 7, .alpha = trace["alpha"]});
      ASSERT_TRUE(restored.Restore(indicator.State()).ok());
      indicator = restored;
    }
    EXPECT_EQ(TurnsOf(losses), trace["turn_epochs"].get<std::vector<int64_t>>());
  }
}

TEST(LossIndicator, TurnsNoOftenerThanThereAreLevels) {
  EXPECT_EQ(TurnsOf(std::vector<double>(40, 1)), (std::vector<int64_t>{5, 10, 15}));
  EXPECT_EQ(TurnsOf(std::vector<double>(40, 1), {.most_turns = 1}), (std::vector<int64_t>{5}));
  EXPECT_TRUE(TurnsOf({1, 1, 1, 1, std::numeric_limits<double>::quiet_NaN()}).empty());
}

TEST(LossIndicator, TurnsAtTheLatestAtEvenPartsOfTheShare) {
  const auto turns = [](const LossIndicatorOptions& options, bool is_known) {
    LossIndicator indicator(options);
    std::vector<int> at;
    for (int period = 1; period <= 20; ++period) {
      if (indicator.Observe(100.0 / period, is_known ? period / 20.0 : 0)) at.push_back(period);
    }
    return at;
  };
  const LossIndicatorOptions never = {.eps = 1e-9};
  EXPECT_TRUE(turns(never, true).empty());
  const LossIndicatorOptions latest = {.eps = 1e-9, .latest = 0.6};
  EXPECT_EQ(turns(latest, true), (std::vector<int>{4, 8, 12}));
  EXPECT_TRUE(turns(latest, false).empty());
  // The first one by its loss, before it is due; nothing is due twice.
  EXPECT_EQ(turns({.eps = 100, .alpha = 1e-9, .latest = 0.9}, true), (std::vector<int>{5, 12, 18}));
}

TEST(LossIndicator, ArgumentsThatDoNotFitAreNamed) {
  EXPECT_EQ(ParseLossIndicator(",,,0.6")->latest, 0.6);
  EXPECT_EQ(ParseLossIndicator("0.1,,200")->latest, 0);
  EXPECT_EQ(ParseLossIndicator("0.1,,200")->every_steps, 200);
  EXPECT_EQ(ParseLossIndicator("0.1,,200")->alpha, 0.3);
  for (const char* text : {"0.1", "0,0.3,10", "0.1,1.5,10", "0.1,0.3,0", "x,0.3,10", "1,1,1,0",
                           "1,1,1,1.1", "1,1,1,x", "1,1,1,1,1"})
    EXPECT_FALSE(ParseLossIndicator(text).ok()) << text;
}

// A pipeline whose losses a test sets, by barriers each 50 steps.
class TrainedRun {
 public:
  explicit TrainedRun(const std::string& arguments) : arguments_(arguments) { Begin(); }

  // At the next barrier, after 100 samples of this mean loss.
  std::optional<ChangeTraining> Barrier(double loss, int64_t steps = 50) {
    stages_[1].telemetry.loss_samples += 100;
    stages_[1].telemetry.loss_sum += 100 * loss;
    step_ += steps;
    BarrierReport report = {step_, plan_, Sequence(0), stages_, {}, times_};
    report.is_regular = step_ % 50 == 0;
    report.run_steps = kRunSteps;
    std::vector<ChangeTraining> changes = rules_.AtBarrier(report);
    if (changes.empty()) return std::nullopt;
    return changes.front();
  }
  // Another central goes on from the check-point of the last barrier; its stages count from 0.
  void Resume() {
    const RuleStates states = rules_.StatesAt(step_);
    rules_ = TrainingRules();
    Begin();
    EXPECT_TRUE(rules_.Restore(states).ok());
    plan_.generation = plan_.generation.next();
    stages_[1].telemetry = Telemetry();
  }
  int64_t step() const { return step_; }

 private:
  static constexpr int64_t kRunSteps = 1000;

  void Begin() {
    auto rule = MakeProgressivePrecision("0", arguments_);
    ASSERT_TRUE(rule.ok()) << rule.status();
    rules_.Add("pfq", *std::move(rule));
  }

  std::string arguments_;
  TrainingRules rules_;
  Plan plan_;
  std::vector<StageStatus> stages_{2};
  std::vector<DeviceTimes> times_;
  int64_t step_ = 0;
};

TEST(ProgressivePrecision, TurnsTheDialWithTheMeanLossOfEachPeriod) {
  TrainedRun run(absl::StrCat(kLevels, "@,,100"));
  for (const double loss : GoldenLosses("sheet")) {
    // The mean of both barriers of a period; the run is resumed within each of them.
    EXPECT_FALSE(run.Barrier(loss + 0.5).has_value());
    run.Resume();
    const auto change = run.Barrier(loss - 0.5);
    ASSERT_EQ(change.has_value(), run.step() == 800) << run.step();
    if (!change.has_value()) continue;
    EXPECT_EQ(change->change, ChangeOfPrecision(800, 1));
    EXPECT_THAT(change->why, HasSubstr("4/6 bits; the training loss moved by 0.0318"));
  }
}

TEST(ProgressivePrecision, BarriersInBetweenAddToThePeriodWithoutAnEvery) {
  TrainedRun run(kLevels);
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(run.Barrier(1, 30).has_value());
    EXPECT_FALSE(run.Barrier(1, 20).has_value());
  }
  EXPECT_FALSE(run.Barrier(1, 30).has_value()) << "no regular barrier";
  EXPECT_EQ(run.Barrier(1, 20)->change, ChangeOfPrecision(250, 1));
}

TEST(ProgressivePrecision, TurnsWhereItIsDueAndSaysSo) {
  TrainedRun run(absl::StrCat(kLevels, "@,,,0.6"));
  std::vector<int64_t> turns;
  for (double loss = 1e6; run.step() < 1000; loss /= 2) {
    const auto change = run.Barrier(loss);
    run.Resume();
    if (!change.has_value()) continue;
    turns.push_back(run.step());
    EXPECT_THAT(change->why,
                HasSubstr(absl::StrCat("bits; ", run.step() / 10, " % of the run are")));
  }
  EXPECT_EQ(turns, (std::vector<int64_t>{200, 400, 600}));
}

// The same indicator turns the target of cost.
TEST(ProgressiveCost, TurnsAsThePrecisionDoes) {
  auto rule = *MakeProgressiveCost("0", "1.5,2,2.5@1000,1,");
  const Plan plan;
  std::vector<StageStatus> stages(1);
  std::vector<int64_t> turns;
  for (int64_t step = 50; step <= 1000; step += 50) {
    stages[0].telemetry.loss_samples += 10;
    stages[0].telemetry.loss_sum += 20;
    const auto change = rule->AtBarrier({step, plan, Sequence(0), stages, {}, {}});
    if (!change.has_value()) continue;
    EXPECT_EQ(change->change, ChangeOfCostTarget(step, static_cast<int64_t>(turns.size()) + 1));
    EXPECT_THAT(change->why, HasSubstr(turns.empty() ? "2 % of FP32; the" : "2.5 % of FP32; the"));
    turns.push_back(step);
  }
  EXPECT_EQ(turns, (std::vector<int64_t>{250, 500})) << "no more than there are targets";
  EXPECT_FALSE(MakeProgressiveCost("64", "1.5,2").ok());
  EXPECT_FALSE(MakeProgressiveCost("0", "2,1.5").ok());
  EXPECT_FALSE(MakeProgressiveCost("0", "1.5@1").ok());
}

TEST(ProgressivePrecision, StatesAndArgumentsThatAreNoneAreRefused) {
  auto rule = *MakeProgressivePrecision("0", kLevels);
  EXPECT_TRUE(rule->Restore(rule->State()).ok());
  for (const char* state : {"", "{}", R"({"loss":1,"samples":1,"indicator":"{}"})"})
    EXPECT_FALSE(rule->Restore(state).ok()) << state;
  EXPECT_FALSE(MakeProgressivePrecision("x", kLevels).ok());
  EXPECT_FALSE(MakeProgressivePrecision("0", "3,4/6").ok());
  EXPECT_FALSE(MakeProgressivePrecision("0", "3,4/6,6@1").ok());
  EXPECT_EQ((*MakeProgressivePrecision("0", "3,4/6,6@,,70"))->every_steps(), 70);
}

}  // namespace
}  // namespace runnel::progressive_precision_test
