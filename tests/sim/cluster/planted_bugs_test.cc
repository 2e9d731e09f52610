// The simulator finds each of the bugs that can be planted, and says nothing without one.

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/sim/cluster/history.h"

namespace runnel::planted_bugs_test {
namespace {

constexpr uint64_t kMostSeeds = 300;

class Planted : public ::testing::TestWithParam<PlantedBugRow> {};

TEST_P(Planted, IsFoundBySomeSeed) {
  const std::string path =
      absl::StrCat(RUNNEL_SOURCE_DIR, "/tests/sim/cluster/scenarios/", GetParam().scenario, ".txt");
  const Scenario scenario = ReadScenario(path).value();
  for (uint64_t seed = 1; seed <= kMostSeeds; ++seed) {
    const History history = RunHistory(scenario, seed, GetParam().bug);
    if (history.violation.empty()) continue;
    std::printf("seed %llu of %s: %s\n", static_cast<unsigned long long>(seed),
                std::string(GetParam().scenario).c_str(), history.violation.c_str());
    EXPECT_EQ(RunHistory(scenario, seed).violation, "") << "it is not the bug that is found";
    return;
  }
  FAIL() << "no seed up to " << kMostSeeds << " of " << GetParam().scenario << " finds it";
}

INSTANTIATE_TEST_SUITE_P(All, Planted, ::testing::ValuesIn(kPlantedBugs),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace runnel::planted_bugs_test
