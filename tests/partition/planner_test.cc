// A part of what tests/bench/bench_planner.cc looks at, on fixed seeds: how near `runnel` comes to
// the best placement.

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "partition/pipeline_model.h"
#include "tests/partition/random_networks.h"
#include "tests/partition/slow_searches.h"

namespace runnel::planner_test {
namespace {

// Rounding.
constexpr double kWorse = 1e-9;

absl::StatusOr<Partition> Planned(const RandomNetwork& network) {
  return (*FindPolicy("runnel"))->plan(network.request);
}

TEST(Planner, ComesNearTheBestOfAllPlacements) {
  std::vector<double> gaps;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const std::unique_ptr<RandomNetwork> network = MakeSmallNetwork(seed);
    SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", network->about));
    const Placement best = BestByTryingAll(network->model);
    const absl::StatusOr<Partition> found = Planned(*network);
    ASSERT_EQ(found.ok(), !best.order.empty()) << found.status();
    if (!found.ok()) continue;
    EXPECT_EQ(found->placement.order[0], 0);
    EXPECT_TRUE(FitsMemory(network->model, found->placement));
    EXPECT_EQ(found->bottleneck_seconds, *SimulatedPeriod(network->model, found->placement));
    gaps.push_back(SimulatedCharge(network->model, found->placement) /
                       SimulatedCharge(network->model, best) -
                   1);
    EXPECT_LE(gaps.back(), 0.05);
  }
  ASSERT_GT(gaps.size(), 30u);
  std::sort(gaps.begin(), gaps.end());
  EXPECT_LE(gaps[gaps.size() / 2], 0.005);
}

TEST(Planner, IsNotBeatenByRandomRestarts) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const std::unique_ptr<RandomNetwork> network = MakeLargeNetwork(seed);
    SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", network->about));
    const Placement best = BestOfRestarts(network->model, 4, 60, seed);
    const absl::StatusOr<Partition> found = Planned(*network);
    if (best.order.empty()) continue;
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_LE(SimulatedCharge(network->model, found->placement),
              1.05 * SimulatedCharge(network->model, best));
    EXPECT_EQ(Planned(*network)->placement, found->placement) << "the same request, another plan";
  }
}

// Placements that were missed once: with fewer micro-batches in flight than there are stages, and
// with a device more than any order near by had.
TEST(Planner, FindsWhatRestartsFound) {
  const struct {
    uint64_t seed;
    Placement found;
  } cases[] = {{1031, {{0, 1, 5, 3}, {0, 8, 9, 10}, {2, 2, 1, 1}, {0, 0, 0}}},
               {1037, {{0, 2, 1, 4}, {1, 2, 4, 10}, {3, 3, 2, 1}, {0, 0, 0}}}};
  for (const auto& [seed, reference] : cases) {
    const std::unique_ptr<RandomNetwork> network = MakeLargeNetwork(seed);
    SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", network->about));
    ASSERT_TRUE(FitsMemory(network->model, reference));
    const absl::StatusOr<Partition> found = Planned(*network);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_LE(SimulatedCharge(network->model, found->placement),
              1.001 * SimulatedCharge(network->model, reference));
  }
}

// Equal boards, and boards that measurements tell apart. bench_planner looks at more of them.
void ExpectThatOneMoreBoardIsNeverWorse(uint64_t first_seed, uint64_t last_seed) {
  for (uint64_t seed = first_seed; seed <= last_seed; ++seed) {
    const double spread = seed % 2 == 0 ? 0 : 0.02;
    const int boards = 2 + static_cast<int>(seed / 2 % 6);
    double before = 0;
    for (const int count : {boards - 1, boards}) {
      const std::unique_ptr<RandomNetwork> network = MakeBoards(count, spread, seed);
      SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", network->about));
      const absl::StatusOr<Partition> found = Planned(*network);
      ASSERT_TRUE(found.ok()) << found.status();
      const double charged = SimulatedCharge(network->model, found->placement);
      if (count == boards) {
        EXPECT_LE(charged, before * (1 + kWorse));
      }
      before = charged;
    }
  }
}

TEST(Planner, OneMoreBoardIsNeverWorse) { ExpectThatOneMoreBoardIsNeverWorse(1, 48); }

TEST(Planner, OneMoreBoardIsNeverWorseInMoreDraws) { ExpectThatOneMoreBoardIsNeverWorse(49, 200); }

TEST(Planner, ManyDevicesAndLayers) {
  const std::unique_ptr<RandomNetwork> network = MakeNetwork(80, 200, 16, 5);
  const absl::StatusOr<Partition> found = Planned(*network);
  ASSERT_TRUE(found.ok()) << found.status();
  const Placement alone = {{0}, {79}, {1}, {}};
  EXPECT_LE(SimulatedCharge(network->model, found->placement),
            SimulatedCharge(network->model, alone) * (1 + 1e-12));
}

}  // namespace
}  // namespace runnel::planner_test
