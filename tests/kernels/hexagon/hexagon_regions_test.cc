// Where the DSP keeps packed weights when there is no room for all of them.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/hexagon/dsp/regions.h"
#include "kernels/backends/hexagon/emulated_session.h"
#include "kernels/backends/hexagon/eviction_plan.h"
#include "kernels/backends/hexagon/memory_budget.h"
#include "kernels/backends/hexagon/packed_sizes.h"

namespace runnel::hexagon::hexagon_regions_test {
namespace {

// With slack, one region.
constexpr uint32_t kRegionBytes = 4096;

class RegionsTest : public testing::Test {
 protected:
  void SetMemory(uint32_t bytes) {
    memory_.resize(bytes);
    regions_.Set(memory_.data(), bytes);
  }
  // One of `bytes` with slack; whether its bytes had to be made.
  bool Use(uint32_t data, uint32_t bytes = kRegionBytes, uint64_t version = 1) {
    bool fresh = false;
    EXPECT_NE(regions_.Use({data, 1, bytes - kSlackBytes}, version, fresh), nullptr);
    return fresh;
  }
  // Missed uses of `cycles` rounds of the regions first..last.
  int64_t Misses(int cycles, uint32_t first, uint32_t last) {
    const uint64_t before = regions_.misses();
    for (int i = 0; i < cycles; ++i) {
      for (uint32_t data = first; data <= last; ++data) Use(data);
    }
    return static_cast<int64_t>(regions_.misses() - before);
  }

  std::vector<uint8_t> memory_;
  Regions regions_;
};

struct Cycle {
  int regions;
  int room;
};

class CycleTest : public RegionsTest, public testing::WithParamInterface<Cycle> {};

// n (n - c) / (n - 1) in each round of n regions with room for c, which is the best there is
// (Belady): what was used last goes first.
TEST_P(CycleTest, MissesAreThoseOfTheBestChoice) {
  const auto [n, c] = GetParam();
  SetMemory(static_cast<uint32_t>(c) * kRegionBytes);
  const auto last = static_cast<uint32_t>(n);
  Misses(10, 1, last);
  // So many rounds that the pattern comes round.
  const int rounds = 3 * 5 * 7 * (n - 1);
  EXPECT_EQ(Misses(rounds, 1, last), c >= n ? 0 : rounds * n * (n - c) / (n - 1));
}

INSTANTIATE_TEST_SUITE_P(Cycles, CycleTest,
                         testing::Values(Cycle{4, 3}, Cycle{5, 3}, Cycle{6, 4}, Cycle{8, 3},
                                         Cycle{4, 4}, Cycle{4, 5}),
                         [](const auto& info) {
                           return std::to_string(info.param.regions) + "_in_" +
                                  std::to_string(info.param.room);
                         });

TEST_F(RegionsTest, BytesStayUntilTheVersionChanges) {
  SetMemory(2 * kRegionBytes);
  EXPECT_TRUE(Use(1));
  EXPECT_FALSE(Use(1));
  EXPECT_TRUE(Use(1, kRegionBytes, 2));
  EXPECT_FALSE(Use(1, kRegionBytes, 2));
  EXPECT_EQ(regions_.misses(), 1u) << "a new version is written where the old one was";
}

// After a move another program's weights are used, and those of before never again.
TEST_F(RegionsTest, WhatIsOutOfTheCycleMakesRoom) {
  SetMemory(4 * kRegionBytes);
  Misses(5, 1, 4);
  Misses(3, 11, 14);
  EXPECT_EQ(Misses(5, 11, 14), 0);
}

TEST_F(RegionsTest, NeighboursMakeRoomForALargeOne) {
  SetMemory(4 * kRegionBytes);
  Misses(1, 1, 4);
  EXPECT_TRUE(Use(9, 2 * kRegionBytes));
  EXPECT_FALSE(Use(1));
  EXPECT_FALSE(Use(2));
  EXPECT_FALSE(Use(9, 2 * kRegionBytes));
  bool fresh = false;
  EXPECT_EQ(regions_.Use({10, 1, 4 * kRegionBytes}, 1, fresh), nullptr) << "larger than all";
  EXPECT_TRUE(fresh);
}

// Bytes that are not fresh are those that were written, whatever came in between.
TEST_F(RegionsTest, NobodyWritesIntoAnothersRegion) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    SetMemory(64 << 10);
    std::map<uint32_t, uint64_t> versions;
    for (int i = 0; i < 5000; ++i) {
      const uint32_t data = random() % 700;  // more than are remembered
      const uint32_t bytes = 1 + data * 7919 % 9000;
      uint64_t& version = versions[data];
      if (version == 0 || random() % 8 == 0) ++version;
      bool fresh = false;
      uint8_t* at = regions_.Use({data, data % 3, bytes}, version, fresh);
      ASSERT_NE(at, nullptr);
      ASSERT_EQ((at - memory_.data()) % 128, 0);
      ASSERT_LE(at + bytes + kSlackBytes, memory_.data() + memory_.size());
      const auto mark = static_cast<uint8_t>(data * 31 + version);
      if (fresh) std::memset(at, mark, bytes + kSlackBytes);
      for (const uint32_t byte : {0u, bytes / 2, bytes + kSlackBytes - 1}) {
        ASSERT_EQ(at[byte], mark) << "tensor " << data << ", use " << i;
      }
    }
  }
}

TEST_F(RegionsTest, LessMemoryTakesTheRegionsBeyondIt) {
  SetMemory(4 * kRegionBytes);
  Misses(1, 1, 4);
  regions_.Limit(2 * kRegionBytes);
  EXPECT_EQ(Misses(1, 1, 2), 0);
  EXPECT_EQ(Misses(1, 3, 3), 1);
  regions_.Limit(100 * kRegionBytes);
  Misses(1, 1, 4);
  EXPECT_EQ(Misses(3, 1, 4), 0) << "all of it again, and no more";
}

TEST(KeptRegions, WhatLiesOverAnotherOneTakesItsBytes) {
  std::vector<uint8_t> memory(4 * kRegionBytes);
  KeptRegions kept;
  kept.Set(memory.data(), static_cast<uint32_t>(memory.size()));
  const auto use = [&](uint32_t offset, uint32_t data, uint64_t version) {
    bool fresh = false;
    uint8_t* at = kept.Use(offset, {data, 1, kRegionBytes - kSlackBytes}, version, fresh);
    EXPECT_EQ(at, memory.data() + offset);
    return fresh;
  };
  EXPECT_TRUE(use(0, 1, 1));
  EXPECT_TRUE(use(kRegionBytes, 2, 1));
  EXPECT_FALSE(use(0, 1, 1));
  EXPECT_TRUE(use(0, 1, 2)) << "another version";
  EXPECT_TRUE(use(kRegionBytes / 2, 3, 1));
  EXPECT_TRUE(use(0, 1, 2)) << "3 lay over it";
  EXPECT_TRUE(use(kRegionBytes, 2, 1)) << "and over this one";
  bool fresh = false;
  EXPECT_EQ(kept.Use(3 * kRegionBytes + 128, {4, 1, kRegionBytes}, 1, fresh), nullptr);
  kept.Set(memory.data() + 128, 2 * kRegionBytes);
  EXPECT_EQ(kept.Use(0, {1, 1, kRegionBytes - kSlackBytes}, 2, fresh), memory.data() + 128);
  EXPECT_TRUE(fresh) << "the memory is another one";
}

// ---- the stored plan

std::vector<uint32_t> Sized(const std::vector<int>& units) {
  std::vector<uint32_t> bytes;
  for (const int unit : units)
    bytes.push_back(static_cast<uint32_t>(unit) * kRegionBytes - kSlackBytes);
  return bytes;
}

// Units that `plan` packs in a cycle, counted by the DSP's own objects over many cycles.
double Executed(const std::vector<uint32_t>& regions, const EvictionPlan& plan, uint32_t memory) {
  std::vector<uint8_t> bytes(memory);
  Regions rule;
  KeptRegions kept;
  rule.Set(bytes.data(), memory - plan.kept_bytes);
  kept.Set(bytes.data() + memory - plan.kept_bytes, plan.kept_bytes);
  constexpr int kCycles = 420;
  double packed = 0;
  for (int cycle = -40; cycle < kCycles; ++cycle) {
    for (size_t i = 0; i < regions.size(); ++i) {
      const RegionKey key = {static_cast<uint32_t>(i), 0, regions[i]};
      const auto place = static_cast<uint32_t>(plan.places[i]);
      bool fresh = false;
      const uint8_t* at =
          plan.places[i] < 0 ? rule.Use(key, 1, fresh) : kept.Use(place, key, 1, fresh);
      EXPECT_NE(at, nullptr);
      if (fresh && cycle >= 0)
        packed += static_cast<double>(RegionBytes(regions[i])) / kRegionBytes;
    }
  }
  return packed / kCycles;
}

EvictionPlan RuleAlone(const std::vector<uint32_t>& regions) {
  EvictionPlan plan;
  plan.places.assign(regions.size(), -1);
  return plan;
}

// Of all choices of what goes, whatever is where: the fewest units in the long run.
double FewestUnits(const std::vector<int>& units, int memory) {
  const auto size_of = [&](unsigned set) {
    int size = 0;
    for (size_t i = 0; i < units.size(); ++i) size += (set >> i & 1) != 0 ? units[i] : 0;
    return size;
  };
  constexpr int kCycles = 60;
  std::map<unsigned, double> fewest = {{0, 0}};  // by what is there
  double first = 0;
  for (int cycle = 0; cycle < kCycles; ++cycle) {
    for (size_t i = 0; i < units.size(); ++i) {
      std::map<unsigned, double> next;
      const auto reach = [&next](unsigned set, double packed) {
        const auto known = next.emplace(set, packed).first;
        known->second = std::min(known->second, packed);
      };
      for (const auto& [set, packed] : fewest) {
        if ((set >> i & 1) != 0) reach(set, packed);
        for (unsigned left = set; (set >> i & 1) == 0; left = (left - 1) & set) {
          if (size_of(left) + units[i] <= memory) reach(left | 1u << i, packed + units[i]);
          if (left == 0) break;
        }
      }
      fewest = std::move(next);
    }
    double least = 1e300;
    for (const auto& [set, packed] : fewest) least = std::min(least, packed);
    if (cycle == kCycles / 3 - 1) first = least;
    if (cycle == kCycles - 1) return (least - first) / (kCycles - kCycles / 3);
  }
  return 0;
}

// Of one size nothing is better than the rule, and the plan is the rule.
TEST(EvictionPlan, OfOneSizeItIsTheRule) {
  for (const auto& [n, c] : {Cycle{4, 3}, Cycle{5, 3}, Cycle{6, 4}, Cycle{8, 3}}) {
    const std::vector<uint32_t> regions = Sized(std::vector<int>(static_cast<size_t>(n), 1));
    const uint32_t memory = static_cast<uint32_t>(c) * kRegionBytes;
    const EvictionPlan plan = PlanEvictions(regions, memory);
    EXPECT_EQ(plan.kept_bytes, 0u) << n << " in " << c;
    EXPECT_NEAR(Executed(regions, plan, memory), double(n) * (n - c) / (n - 1), 1e-9);
    EXPECT_NEAR(FewestUnits(std::vector<int>(static_cast<size_t>(n), 1), c),
                double(n) * (n - c) / (n - 1), 0.05);
  }
}

// Of unequal sizes it is never worse than the rule, never better than the best that there is, and
// in sum clearly better than the rule.
TEST(EvictionPlan, OfUnequalSizesItIsBetweenTheRuleAndTheBest) {
  double rule = 0, planned = 0, best = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::vector<int> units(3 + random() % 4);
    int all = 0, largest = 0;
    for (int& unit : units) {
      unit = 1 + static_cast<int>(random() % 8);
      all += unit;
      largest = std::max(largest, unit);
    }
    const int room = largest + static_cast<int>(random() % static_cast<unsigned>(all - largest));
    const std::vector<uint32_t> regions = Sized(units);
    const uint32_t memory = static_cast<uint32_t>(room) * kRegionBytes;
    const EvictionPlan plan = PlanEvictions(regions, memory);
    const double by_rule = Executed(regions, RuleAlone(regions), memory);
    const double by_plan = Executed(regions, plan, memory);
    const double fewest = FewestUnits(units, room);
    EXPECT_LE(by_plan, by_rule + 1e-9);
    EXPECT_GE(by_plan, fewest - 0.2) << "the horizon of the best is finite";
    rule += by_rule;
    planned += by_plan;
    best += fewest;
  }
  RecordProperty("rule", std::to_string(rule));
  std::printf("units a cycle: rule %.1f, plan %.1f, best %.1f\n", rule, planned, best);
  EXPECT_LT(planned, 0.97 * rule);
}

TEST(EvictionPlan, NothingIsPlannedWhereAllFitOrThereAreTooMany) {
  const std::vector<uint32_t> regions = Sized({3, 1, 2});
  EXPECT_EQ(PlanEvictions(regions, 6 * kRegionBytes).kept_bytes, 0u);
  EXPECT_EQ(PlanEvictions(regions, 0).kept_bytes, 0u);
  EXPECT_EQ(PlanEvictions({}, 1 << 20).kept_bytes, 0u);
  std::vector<int> many(kMostPlannedRegions);
  for (size_t i = 0; i < many.size(); ++i) many[i] = 1 + static_cast<int>(i % 5);
  EXPECT_EQ(PlanEvictions(Sized(many), 100 * kRegionBytes).kept_bytes, 0u);
  many.pop_back();
  EXPECT_GT(PlanEvictions(Sized(many), 100 * kRegionBytes).kept_bytes, 0u);
}

// VGG-11's packed weights, forward and backward: what the plan saves at each budget.
TEST(EvictionPlan, OfVgg11) {
  const int channels[][3] = {{3, 64, 9},    {64, 128, 9},  {128, 256, 9}, {256, 256, 9},
                             {256, 512, 9}, {512, 512, 9}, {512, 512, 9}, {512, 512, 9}};
  std::vector<uint32_t> forward, backward;
  for (const auto& [in, out, taps] : channels) {
    forward.push_back(PackedRowBytes(1, out, in * taps));
    backward.push_back(PackedRowBytes(1, in, out * taps));
  }
  std::vector<uint32_t> regions = forward;
  regions.insert(regions.end(), backward.rbegin(), backward.rend() - 1);
  uint64_t all = 0;
  for (const uint32_t bytes : regions) all += RegionBytes(bytes);
  for (const int percent : {30, 50, 70, 90}) {
    const auto memory = static_cast<uint32_t>(all * static_cast<uint64_t>(percent) / 100);
    const EvictionPlan plan = PlanEvictions(regions, memory);
    const double rule = Executed(regions, RuleAlone(regions), memory);
    const double planned = Executed(regions, plan, memory);
    std::printf("room for %d %%: rule packs %.1f %% of all in a cycle, the plan %.1f %%\n", percent,
                100 * rule * kRegionBytes / static_cast<double>(all),
                100 * planned * kRegionBytes / static_cast<double>(all));
    EXPECT_LE(planned, rule);
  }
}

TEST(MemoryBudget, IsDividedOnceAndForAll) {
  EXPECT_THAT(std::string(DivideEmulated(4'000'000).status().message()),
              testing::HasSubstr("--device-memory-mb gives the DSP 4000000 bytes; its programs"));
  const DspMemory emulated = *DivideEmulated(64 << 20);
  EXPECT_EQ(emulated.shared + emulated.scratch, 64u << 20);
  EXPECT_EQ(PackedBytesLeft(emulated, 0), emulated.packed);
  EXPECT_EQ(PackedBytesLeft(emulated, 10 << 20), emulated.shared - (10u << 20));
  EXPECT_EQ(PackedBytesLeft(emulated, int64_t{1} << 40), 0u);
  const DspMemory device = *DivideDevice(64 << 20);
  EXPECT_EQ(device.shared + device.scratch + device.packed, 64u << 20);
  EXPECT_LE(int64_t{DivideEmulated(int64_t{1} << 50)->shared}, int64_t{3} << 30);
}

// The same by the DSP's program: an operation whose weights are packed already takes fewer packets.
TEST(HexagonRegions, AProgramPacksNoMoreThanItMust) {
  auto command = FindEmulator();
  if (!command.ok()) GTEST_SKIP() << "no DSP here: " << command.status().message();
  constexpr uint32_t kSide = 256, kLayers = 4;
  // Room for three of the four: half of the program's memory.
  auto session = OpenEmulatedSession({.command = *std::move(command),
                                      .shared_bytes = 16 << 20,
                                      .private_bytes = 2 * 3 * (kSide * kSide + (2 << 10))});
  ASSERT_TRUE(session.ok()) << session.status();
  SharedMemory& memory = *(*session)->memory();
  std::vector<std::unique_ptr<Memory>> areas;
  const auto tensor = [&](uint32_t elements, uint32_t bytes, uint64_t version) {
    areas.push_back(*memory.Allocate(elements * bytes + kTailBytes));
    const uint32_t at = memory.OffsetOf(areas.back()->address());
    return DspTensor{at, at + elements * bytes, elements, bytes, version};
  };
  std::vector<DspOp> ops;
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    DspOp op;
    op.code = DspCode::kLinearForward;
    op.x = {2, kSide, 1, 1};
    op.y = {2, kSide, 1, 1};
    op.in[0] = tensor(2 * kSide, 1, 0);
    op.in[1] = tensor(kSide * kSide, 1, 1 + layer);
    op.out[0] = tensor(2 * kSide, 4, 0);
    ops.push_back(op);
  }
  constexpr int kCycles = 13;
  int packed = 0;
  uint32_t least = ~0u;
  std::vector<uint32_t> packets;
  for (int i = 0; i < kCycles; ++i) {
    ASSERT_TRUE((*session)->Submit(ops).ok());
    ASSERT_TRUE((*session)->Wait().ok());
    for (const DspCounts& counts : (*session)->counts()) packets.push_back(counts.packets);
  }
  for (const uint32_t count : packets) least = std::min(least, count);
  for (const uint32_t count : packets) packed += count > 2 * least ? 1 : 0;
  // All in the first round, then 4/3 a round.
  EXPECT_EQ(packed, 4 + 12 * 4 / 3);
}

}  // namespace
}  // namespace runnel::hexagon::hexagon_regions_test
