// Scenario files and what `simulate` makes of them.

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "proto/process/atomic_file.h"
#include "central/reports/scenario_file.h"
#include "central/reports/simulate_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

std::string Released(absl::string_view name) {
  return absl::StrCat(RUNNEL_SOURCE_DIR, "/deploy/lab/scenarios/", name, ".json");
}

SimulateOptions Options() {
  return {.policies = {"ftpipehd", "accept", "runnel"},
          .mbps = {},
          .codecs = {"hadamard:8/hadamard:8", "hadamard:4/hadamard:4", "hadamard:2/hadamard:4"}};
}

TEST(Scenario, ReleasedOnesAreRightAndCanBePlanned) {
  for (const char* name : {"accept-1", "accept-2", "accept-3", "three-pis"}) {
    SCOPED_TRACE(name);
    const absl::StatusOr<Scenario> scenario = ReadScenario(Released(name));
    ASSERT_TRUE(scenario.ok()) << scenario.status();
    const absl::StatusOr<ScenarioModel> model = ScenarioModel::Create(*scenario, Options());
    ASSERT_TRUE(model.ok()) << model.status();
    double accept = 0;
    for (const SimulatedMethod& method : MethodsFor(Options().policies)) {
      const absl::StatusOr<SimulatedCell> cell = model->Run(method, 1);
      ASSERT_TRUE(cell.ok()) << cell.status();
      EXPECT_GT(cell->seconds_per_batch, 0);
      EXPECT_LE(cell->efficiency, 1 + 1e-6);
      for (double share : cell->busy_share) EXPECT_LE(share, 1);
      for (double share : cell->link_share) EXPECT_LE(share, 1);
      if (method.name == "accept") accept = cell->seconds_per_batch;
      // Steady, accept's plan is one that runnel could have; between barriers it may pay more for
      // filling deeper pipelines.
      if (method.name == "runnel") {
        EXPECT_LE(cell->seconds_per_batch, accept * 1.05);
      }
    }
  }
}

TEST(Scenario, TheLabsAreKnownByName) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(
           absl::StrCat(RUNNEL_SOURCE_DIR, "/deploy/lab/scenarios"))) {
    files.push_back(entry.path().stem().string());
  }
  std::sort(files.begin(), files.end());
  EXPECT_EQ(ScenarioNames(), files);
  for (const std::string& name : files) {
    const absl::StatusOr<Scenario> builtin = FindScenario(name);
    ASSERT_TRUE(builtin.ok()) << builtin.status();
    EXPECT_EQ(builtin->name, ReadScenario(Released(name))->name);
    EXPECT_EQ(builtin->hosts.size(), ReadScenario(Released(name))->hosts.size());
  }
  EXPECT_TRUE(FindScenario(Released("accept-1")).ok());
  const absl::Status unknown = FindScenario("accept-9").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown.message()),
              HasSubstr("scenario accept-9: is no file and none of accept-1, accept-2"));
}

void ExpectKeysIn(const Json& json, const std::string& description) {
  for (const auto& [key, value] : json.items()) {
    if (json.is_object()) {
      EXPECT_THAT(description, HasSubstr(absl::StrCat("\"", key, "\": ")));
    }
    if (value.is_structured()) ExpectKeysIn(value, description);
  }
}

TEST(Scenario, TheDescriptionNamesEveryKey) {
  const absl::StatusOr<std::string> text = ReadWholeFile(Released("accept-1"), 1 << 20);
  ASSERT_TRUE(text.ok());
  ExpectKeysIn(*ParseJson(*text), kScenarioFormat);
}

TEST(Methods, NamedOnesPoliciesAndAblations) {
  const auto names = [](const std::vector<std::string>& asked) {
    std::vector<std::string> names;
    for (const SimulatedMethod& method : MethodsFor(asked)) names.push_back(method.name);
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names({"ftpipehd", "accept", "runnel"}),
            (Names{"ftpipehd", "compression", "predictor", "accept", "runnel"}));
  EXPECT_EQ(names({"accept", "uniform"}), (Names{"accept", "uniform"}));
  EXPECT_EQ(names({"ftpipehd", "predictor", "accept"}),
            (Names{"ftpipehd", "predictor", "compression", "accept"}));
  EXPECT_EQ(TrainFlags(MethodsFor({"compression"})[0]),
            (Names{"--policy", "ftpipehd", "--codec-forward", "mbq:2", "--codec-backward",
                   "stochastic:8"}));
  EXPECT_EQ(TrainFlags(MethodsFor({"runnel"})[0]),
            (Names{"--policy", "runnel", "--bits", "bandwidth"}));
}

TEST(Scenario, EveryMistakeIsNamed) {
  const absl::StatusOr<std::string> good = ReadWholeFile(Released("three-pis"), 1 << 20);
  ASSERT_TRUE(good.ok());
  ASSERT_TRUE(ScenarioFromJson(*good).ok());
  const std::pair<std::string, std::pair<std::string, std::string>> mistakes[] = {
      {"twice", {"\"pi-1\"", "\"pi-0\""}},
      {"profile 'none'", {"\"profile\": \"cpu-1\"", "\"profile\": \"none\""}},
      {"duplex 'twice'", {"\"full\"", "\"twice\""}},
      {"batch_size 0", {"\"batch_size\": 64,\n    \"micro", "\"batch_size\": 0,\n    \"micro"}},
      {"speed must be above 0", {"\"speed\": 0.4", "\"speed\": 0"}},
      {"cpu_quota", {"\"cpu_quota\": 0.4", "\"cpu_quota\": -1"}},
      {"host 'x' is not there", {"\"to\": \"*\"", "\"to\": \"x\""}},
      {"bandwidths", {"\"up_mbps\": 4", "\"up_mbps\": -4"}},
      {"shares", {"\"forward_share\": 0.333", "\"forward_share\": 0.9"}},
      {"colour", {"\"name\": \"pi-0\"", "\"colour\": 1, \"name\": \"pi-0\""}},
      {"delay_ms", {"\"delay_ms\": 0", "\"delay\": 0"}},
  };
  for (const auto& [text, change] : mistakes) {
    const std::string bad = absl::StrReplaceAll(*good, {change});
    ASSERT_NE(bad, *good) << text;
    const absl::Status status = ScenarioFromJson(bad).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(status.message(), HasSubstr(text));
  }
  EXPECT_EQ(ReadScenario("/nowhere/x.json").status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(ScenarioFromJson("[]").ok());
  EXPECT_FALSE(ScenarioFromJson("{").ok());
}

TEST(Scenario, LinksGoBothWays) {
  absl::StatusOr<Scenario> scenario = ReadScenario(Released("three-pis"));
  ASSERT_TRUE(scenario.ok());
  scenario->links = {{"*", "*", LinkRate::Mbps(4), LinkRate::Mbps(2), 1},
                     {"pi-2", "pi-0", LinkRate::Mbps(8), LinkRate::Mbps(1), 0}};
  EXPECT_EQ(SpeedBetween(*scenario, 0, 1).rate.mbps(), 4);
  EXPECT_EQ(SpeedBetween(*scenario, 1, 0).rate.mbps(), 2);
  EXPECT_EQ(SpeedBetween(*scenario, 0, 1).delay_seconds, 1e-3);
  EXPECT_EQ(SpeedBetween(*scenario, 2, 0).rate.mbps(), 8);
  EXPECT_EQ(SpeedBetween(*scenario, 0, 2).rate.mbps(), 1);
}

// AccEPT's Table 5 by simulation, speeds from the column at 4 Mbps alone.
TEST(Simulate, PublishedTimesComeOut) {
  std::vector<ReproducedCell> cells;
  for (const char* name : {"accept-1", "accept-2"}) {
    absl::StatusOr<ScenarioModel> model =
        ScenarioModel::Create(*ReadScenario(Released(name)), Options());
    ASSERT_TRUE(model.ok()) << model.status();
    const std::vector<SimulatedMethod> methods = MethodsFor({"ftpipehd", "accept"});
    const absl::StatusOr<std::vector<double>> speeds = FitSpeeds(*model, methods);
    ASSERT_TRUE(speeds.ok()) << speeds.status();
    model->SetSpeeds(*speeds);
    const absl::StatusOr<std::vector<ReproducedCell>> some = Reproduce(*model, methods);
    ASSERT_TRUE(some.ok()) << some.status();
    EXPECT_EQ(some->size(), 20);
    cells.insert(cells.end(), some->begin(), some->end());
  }
  EXPECT_LE(MedianError(cells), kMostMedianError);
}

TEST(Simulate, MedianErrorLooksAtTheDecidingCellsOnly) {
  std::vector<ReproducedCell> cells = {{"s", "ftpipehd", 1, 100, 110, false},
                                       {"s", "ftpipehd", 4, 100, 900, true},
                                       {"s", "predictor", 1, 100, 900, false}};
  EXPECT_NEAR(MedianError(cells), 0.1, 1e-12);
  cells.push_back({"s", "accept", 1, 100, 70, false});
  EXPECT_NEAR(MedianError(cells), 0.2, 1e-12);
  EXPECT_TRUE(std::isnan(MedianError({})));
}

}  // namespace
}  // namespace runnel
