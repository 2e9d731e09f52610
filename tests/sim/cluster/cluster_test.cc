// The shipped scenarios over many seeds: no rule is broken, and a seed gives its history again.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/sim/cluster/drawn_scenario.h"
#include "tests/sim/cluster/history.h"

namespace runnel::cluster_test {
namespace {

using ::testing::HasSubstr;

std::string Folder() { return std::string(RUNNEL_SOURCE_DIR) + "/tests/sim/cluster/scenarios"; }

std::vector<std::string> Shipped() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(Folder()))
    names.push_back(file.path().stem());
  std::sort(names.begin(), names.end());
  return names;
}

Scenario Read(const std::string& name) {
  return ReadScenario(Folder() + "/" + name + ".txt").value();
}

// RUNNEL_SIM_SEEDS=N: of each scenario.
uint64_t Seeds() {
  const char* const seeds = std::getenv("RUNNEL_SIM_SEEDS");
  return seeds == nullptr ? 120 : std::strtoull(seeds, nullptr, 10);
}

class ShippedScenario : public ::testing::TestWithParam<std::string> {};

TEST_P(ShippedScenario, BreaksNoRule) {
  const Scenario scenario = Read(GetParam());
  int64_t faults = 0;
  for (uint64_t seed = 1; seed <= Seeds(); ++seed) {
    const History history = RunHistory(scenario, seed);
    ASSERT_EQ(history.violation, "") << "again: runnel-sim --scenario tests/sim/cluster/scenarios/"
                                     << GetParam() << ".txt --seed " << seed << " --verbose";
    faults += history.faults;
  }
  EXPECT_GT(faults, static_cast<int64_t>(Seeds())) << "the faults did not bite";
}

TEST_P(ShippedScenario, IsAFunctionOfItsSeed) {
  const Scenario scenario = Read(GetParam());
  for (const uint64_t seed : {1, 2, 3}) {
    const History first = RunHistory(scenario, seed, PlantedBug::kNone, /*keeps_log=*/true);
    const History again = RunHistory(scenario, seed, PlantedBug::kNone, /*keeps_log=*/true);
    EXPECT_EQ(first.log, again.log);
    EXPECT_EQ(first.digest, again.digest);
    EXPECT_NE(first.digest, RunHistory(scenario, seed + 100).digest);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ShippedScenario, ::testing::ValuesIn(Shipped()),
                         [](const auto& info) { return info.param; });

// RUNNEL_SIM_DRAWN=N: scenarios.
uint64_t DrawnScenarios() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr uint64_t kDrawn = 200;
#else
  constexpr uint64_t kDrawn = 1000;
#endif
  const char* const drawn = std::getenv("RUNNEL_SIM_DRAWN");
  return drawn == nullptr ? kDrawn : std::strtoull(drawn, nullptr, 10);
}

TEST(DrawnScenario, BreaksNoRule) {
  for (uint64_t number = 1; number <= DrawnScenarios(); ++number) {
    EXPECT_EQ(RunHistory(DrawScenario(number), number).violation, "")
        << "again: runnel-sim --drawn 1 --first-drawn " << number << " --seed " << number
        << " --verbose";
  }
}

TEST(DrawnScenario, DrawsEachSwitchBothWaysAndEachFault) {
  std::string all;
  for (uint64_t number = 1; number <= 200; ++number) {
    EXPECT_EQ(DrawnText(number), DrawnText(number));
    all += DrawnText(number);
  }
  for (const char* line : {"locals 3\n",
                           "spares 2\n",
                           "behind 1\n",
                           "schedule async\n",
                           "schedule sync\n",
                           "replicate -1\n",
                           "replicate 2\n",
                           "checkpoints yes\n",
                           "checkpoints no\n",
                           "evaluates yes\n",
                           "measures_first layers\n",
                           "measures_first ranges\n",
                           "needs 4\n",
                           "damage_one_in ",
                           "latency_ms 1..1\n",
                           "fault crash central",
                           "fault crash any",
                           "fault freeze worker",
                           "fault partition local",
                           "fault cut_link central",
                           "fault cut_link any",
                           "fault break ",
                           "fault drain ",
                           "fault disk_full ",
                           "fault disk_rot "}) {
    EXPECT_THAT(all, HasSubstr(line));
  }
}

TEST(Scenario, SaysWhatIsWrongAndWhere) {
  const auto error = [](const char* text) {
    return std::string(ParseScenario("s", text).status().message());
  };
  EXPECT_TRUE(ParseScenario("s", "# nothing\n\nworkers 2 # two\n").ok());
  EXPECT_THAT(error("workers 2\nworkrs 3"), HasSubstr("s:2: no line begins with 'workrs'; there"));
  EXPECT_THAT(error("workers many"), HasSubstr("s:1: 'many' is no number from 0 to 64"));
  EXPECT_THAT(error("workers 2.5"), HasSubstr("workers wants a whole number"));
  EXPECT_THAT(error("steps"), HasSubstr("steps wants one number"));
  EXPECT_THAT(error("schedule often"), HasSubstr("schedule is sync or async"));
  EXPECT_THAT(error("latency_ms 5..1"), HasSubstr("wrong way round"));
  EXPECT_THAT(error("fault explode any"), HasSubstr("no fault is called 'explode'; there are"));
  EXPECT_THAT(error("fault crash everybody"), HasSubstr("crash does not happen to 'everybody'"));
  EXPECT_THAT(error("fault crash any often"), HasSubstr("'often' is not every=, for= or most="));
  EXPECT_THAT(error("fault crash central"), HasSubstr("so checkpoints is yes"));
  EXPECT_THAT(error("measures_first often"), HasSubstr("measures_first is no, layers or ranges"));
  EXPECT_THAT(error("needs 9"), HasSubstr("so many of locals and workers"));
  EXPECT_THAT(error("expect_error"), HasSubstr("wants a part of the error's text"));
  EXPECT_THAT(error("schedule async"), HasSubstr("micro_batches is 1"));
  EXPECT_EQ(ReadScenario("/nowhere").status().code(), absl::StatusCode::kNotFound);
}

TEST(Scenario, AnExpectedErrorIsNoBrokenRule) {
  // The last worker on central's host dies again and again.
  const char text[] = "workers 0\ncompute_ms 3000..4000\nfault crash local every=1..2 most=1000\n";
  Scenario scenario = ParseScenario("s", text).value();
  EXPECT_THAT(RunHistory(scenario, 1).violation, HasSubstr("the run ends with: worker local-0"));
  scenario.expected_errors = {"workers of this host were started again for 10 minutes"};
  EXPECT_EQ(RunHistory(scenario, 1).violation, "");
}

}  // namespace
}  // namespace runnel::cluster_test
