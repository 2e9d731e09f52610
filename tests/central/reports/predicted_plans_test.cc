#include "central/reports/predicted_plans.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "central/reports/scenario_file.h"
#include "central/reports/simulate_table.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "predictor/profiles/profile_folder.h"
#include "predictor/profiles/sub_models.h"

namespace runnel::predicted_plans_test {
namespace {

std::vector<DeviceTask> TasksIn(const std::string& folder) {
  std::vector<DeviceProfile> profiles =
      *LoadProfiles(absl::StrCat(RUNNEL_SOURCE_DIR, "/predictor/profiles", folder));
  for (DeviceProfile& profile : profiles)
    std::erase_if(profile.sub_models,
                  [](const SubModelTime& row) { return row.model != "har_cnn"; });
  return *TasksOf(profiles, kMaxProfiledMacs, MakeModel);
}

std::vector<DeviceTimes> ByLayer(const std::vector<std::vector<double>>& seconds) {
  std::vector<DeviceTimes> times;
  for (const std::vector<double>& row : seconds) times.push_back(DeviceTimes::ByLayer(row));
  return times;
}

// A plan that takes a slow host for a fast one is as slow as the hosts really are.
TEST(PredictedPlans, PlannedFromOneSimulatedWithAnother) {
  ScenarioModel model = *ScenarioModel::Create(*FindScenario("three-pis"),
                                               {.policies = {}, .codecs = DefaultCodecPairs()});
  const SimulatedMethod runnel = MethodsFor({"runnel"}).front();
  const size_t layers = MakeModel("har_cnn")->layers.size();
  const std::vector<double> fast(layers, 0.01), slow(layers, 0.1);
  model.SetTimes(ByLayer({fast, fast, slow}), ByLayer({fast, fast, slow}));
  const double right = model.Run(runnel, 0)->seconds_per_batch;
  model.SetTimes(ByLayer({slow, slow, fast}), ByLayer({fast, fast, slow}));
  const double wrong = model.Run(runnel, 0)->seconds_per_batch;
  EXPECT_GT(wrong, 1.5 * right);
}

TEST(PredictedPlans, EveryRowIsJudgedOnEveryRotation) {
  const std::vector<DeviceTask> known = TasksIn(""), unseen = TasksIn("/unseen");
  ASSERT_EQ(unseen.size(), 3u);
  const std::vector<Scenario> scenarios = {*FindScenario("three-pis")};
  const auto no_network = [](const PredictorRow&, const std::string&) {
    return std::optional<PredictorNetwork>();
  };
  const absl::StatusOr<std::vector<PredictedPlan>> plans =
      JudgePlans(scenarios, known, unseen, no_network);
  ASSERT_TRUE(plans.ok()) << plans.status();
  for (const char* row : {"mixture", "lut", "ratio", "flops"}) {
    EXPECT_EQ(std::count_if(plans->begin(), plans->end(),
                            [&](const PredictedPlan& plan) { return plan.row == row; }),
              3)
        << row;
    EXPECT_LE(MedianRatio(*plans, row), WorstRatio(*plans, row));
  }
  EXPECT_TRUE(std::isnan(MedianRatio(*plans, "mlp"))) << "it has no network here";
  EXPECT_LT(MedianRatio(*plans, "mixture"), 1.1);
  EXPECT_GT(MedianRatio(*plans, "mixture"), 0.9);
  // Hosts with device profiles of their own.
  std::vector<Scenario> measured = scenarios;
  for (ScenarioProfile& profile : measured[0].profiles) {
    profile.layer_ms.clear();
    profile.device_profile = "base.profile";
  }
  const std::string folder = absl::StrCat(RUNNEL_SOURCE_DIR, "/predictor/profiles");
  EXPECT_TRUE(JudgePlans(measured, known, unseen, no_network, folder).ok());
  EXPECT_FALSE(JudgePlans(measured, known, unseen, no_network).ok()) << "no folder";
  EXPECT_EQ(JudgePlans({*FindScenario("accept-1")}, known, unseen, no_network).status().code(),
            absl::StatusCode::kInvalidArgument)
      << "no device of that model is unseen";
}

}  // namespace
}  // namespace runnel::predicted_plans_test
