// Where the DSP keeps packed weights when there is no room for all of them.

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/hexagon/dsp/regions.h"
#include "kernels/hexagon/emulated_session.h"

namespace runnel::hexagon {
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
}  // namespace runnel::hexagon
