// Where weight-gradients run, against every placement and every grouping there is.

#include "kernels/ir/co_scheduler/gradient_placement.h"

#include <algorithm>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/ir/co_scheduler/chain_schedule.h"
#include "proto/base/random.h"

namespace runnel::gradient_placement_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// When a processor is done with these items if bit i of `borders` says that a group ends behind
// item i: played forward, as it runs.
double LaneEnd(const GradientLanes& lanes, size_t processor, const std::vector<size_t>& items,
               uint32_t borders) {
  double at = lanes.free_seconds[processor];
  for (size_t first = 0; first < items.size();) {
    size_t end = first + 1;
    while (end < items.size() && (borders >> (end - 1) & 1) == 0) ++end;
    for (size_t i = first; i < end; ++i) at = std::max(at, lanes.items[items[i]].ready_seconds);
    at += lanes.group_seconds[processor];
    for (size_t i = first; i < end; ++i) at += lanes.items[items[i]].seconds[processor];
    first = end;
  }
  return at;
}

double LeastEnd(const GradientLanes& lanes, const std::vector<int>& processors) {
  double end = lanes.least_end_seconds;
  for (size_t p = 0; p < lanes.free_seconds.size(); ++p) {
    std::vector<size_t> items;
    for (size_t i = 0; i < processors.size(); ++i) {
      if (processors[i] == static_cast<int>(p)) items.push_back(i);
    }
    const uint32_t ways = items.empty() ? 1 : 1u << (items.size() - 1);
    double least = kUnsupported;
    for (uint32_t borders = 0; borders < ways; ++borders)
      least = std::min(least, LaneEnd(lanes, p, items, borders));
    end = std::max(end, least);
  }
  return end;
}

bool IsSupported(const GradientLanes& lanes, const std::vector<int>& processors) {
  for (size_t i = 0; i < processors.size(); ++i) {
    if (lanes.items[i].seconds[static_cast<size_t>(processors[i])] == kUnsupported) return false;
  }
  return true;
}

double LeastEndOfAll(const GradientLanes& lanes) {
  std::vector<int> processors(lanes.items.size());
  double least = kUnsupported;
  for (;;) {
    if (IsSupported(lanes, processors)) least = std::min(least, LeastEnd(lanes, processors));
    size_t i = 0;
    while (i < processors.size() && ++processors[i] == lanes.processors()) processors[i++] = 0;
    if (i == processors.size()) return least;
  }
}

// Whole numbers, so that sums are exact in any order. The first processor has everything.
GradientLanes RandomLanes(uint64_t seed) {
  const CounterRandom random(seed, RandomPurpose::kTest, 2, 2);
  uint64_t drawn = 0;
  const auto below = [&](int limit) {
    return static_cast<int>(random.Below(drawn++, static_cast<uint32_t>(limit)));
  };
  GradientLanes lanes;
  const int processors = 2 + below(2);
  lanes.least_end_seconds = below(60);
  for (int p = 0; p < processors; ++p) {
    lanes.free_seconds.push_back(p == 0 ? lanes.least_end_seconds : below(60));
    lanes.group_seconds.push_back(p == 0 ? 0 : below(20));
  }
  const int count = below(processors == 2 ? 9 : 7);
  int ready = 0;
  for (int i = 0; i < count; ++i) {
    // Mostly in the order in which input-gradients come.
    ready = below(5) == 0 ? below(60) : ready + below(15);
    GradientItem& item = lanes.items.emplace_back();
    item.ready_seconds = ready;
    for (int p = 0; p < processors; ++p)
      item.seconds.push_back(p > 0 && below(6) == 0 ? kUnsupported : 1 + below(30));
  }
  return lanes;
}

TEST(GradientPlacement, IsTheBestOfAllPlacementsOf3000Backwards) {
  int beside = 0, several_groups = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    const GradientLanes lanes = RandomLanes(seed);
    const std::vector<int> start(lanes.items.size());
    const GradientPlacement placed = PlaceGradients(lanes, start);
    ASSERT_EQ(placed.end_seconds, LeastEndOfAll(lanes)) << "seed " << seed;
    ASSERT_EQ(placed.end_seconds, LeastEnd(lanes, placed.processors)) << "seed " << seed;
    // What was told is what was meant: nothing begins before it may, and all ends then.
    double end = lanes.least_end_seconds;
    for (size_t i = 0; i < lanes.items.size(); ++i) {
      const auto p = static_cast<size_t>(placed.processors[i]);
      ASSERT_GE(placed.begin_seconds[i], lanes.free_seconds[p]) << "seed " << seed;
      ASSERT_GE(placed.begin_seconds[i], lanes.items[i].ready_seconds) << "seed " << seed;
      end = std::max(end, placed.begin_seconds[i] + lanes.items[i].seconds[p]);
      several_groups += p > 0 && placed.groups[i] > 0 ? 1 : 0;
    }
    ASSERT_LE(end, placed.end_seconds) << "seed " << seed;
    beside += placed.processors != start ? 1 : 0;
  }
  EXPECT_GT(beside, 1000);
  EXPECT_GT(several_groups, 500);
}

GradientLanes TwoProcessors() {
  GradientLanes lanes;
  lanes.free_seconds = {100, 0};
  lanes.group_seconds = {0, 10};
  lanes.least_end_seconds = 100;
  return lanes;
}

TEST(GradientPlacement, StaysWhereNothingIsGained) {
  GradientLanes lanes = TwoProcessors();
  lanes.items = {{20, {5, 200}}, {40, {5, 200}}};
  EXPECT_THAT(PlaceGradients(lanes, {0, 0}).processors, ElementsAre(0, 0));
  // Equally good: what was there stays.
  lanes.items = {{20, {0, 10}}};
  EXPECT_THAT(PlaceGradients(lanes, {1}).processors, ElementsAre(1));
  EXPECT_THAT(PlaceGradients(lanes, {0}).processors, ElementsAre(0));
}

TEST(GradientPlacement, WhatRunsBesideTheInputGradientsTakesNoTime) {
  GradientLanes lanes = TwoProcessors();
  lanes.items = {{20, {30, 40}}, {95, {30, 40}}};
  // 20 + 10 + 40 = 70 while the input-gradients run; the other one on the host, until 130.
  const GradientPlacement placed = PlaceGradients(lanes, {0, 0});
  EXPECT_THAT(placed.processors, ElementsAre(1, 0));
  EXPECT_THAT(placed.begin_seconds, ElementsAre(20, 100));
  EXPECT_EQ(placed.end_seconds, 130);
}

// One switch for several, if that does not keep the first one waiting for too long.
TEST(GradientPlacement, GroupsSaveSwitches) {
  GradientLanes lanes = TwoProcessors();
  lanes.items = {{20, {900, 10}}, {25, {900, 10}}, {70, {900, 10}}};
  const GradientPlacement placed = GroupGradients(lanes, {1, 1, 1});
  EXPECT_THAT(placed.groups, ElementsAre(0, 0, 1));
  EXPECT_THAT(placed.begin_seconds, ElementsAre(25, 45, 70));
  lanes.group_seconds[1] = 100;
  EXPECT_THAT(GroupGradients(lanes, {1, 1, 1}).groups, Each(0));
}

// More than can be looked at: still no single move helps, and it is better than all on one.
TEST(GradientPlacement, ManyAreBalanced) {
  GradientLanes lanes = TwoProcessors();
  lanes.free_seconds.push_back(0);
  lanes.group_seconds.push_back(3);
  double all_on_host = 100;
  for (int i = 0; i < 60; ++i) {
    const double seconds = 5 + i % 7;
    lanes.items.push_back({static_cast<double>(i), {seconds, seconds + 2, seconds + 3}});
    all_on_host += seconds;
  }
  const GradientPlacement placed = PlaceGradients(lanes, std::vector<int>(60));
  EXPECT_LT(placed.end_seconds, all_on_host / 2);
  for (size_t i = 0; i < 60; ++i) {
    for (int p = 0; p < 3; ++p) {
      std::vector<int> moved = placed.processors;
      moved[i] = p;
      EXPECT_GE(GroupGradients(lanes, moved).end_seconds, placed.end_seconds) << i << " to " << p;
    }
  }
}

TEST(GradientPlacement, NothingToPlaceEndsWithTheInputGradients) {
  EXPECT_EQ(PlaceGradients(TwoProcessors(), {}).end_seconds, 100);
}

}  // namespace
}  // namespace runnel::gradient_placement_test
