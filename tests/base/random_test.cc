#include "proto/base/random.h"

#include <bit>
#include <cmath>

#include "gtest/gtest.h"

namespace runnel::random_test {
namespace {

using Words = std::array<uint32_t, 4>;

TEST(Philox, MatchesPublishedVectors) {
  EXPECT_EQ((Philox4x32<10>({0, 0, 0, 0}, {0, 0})),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ((Philox4x32<10>({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u})),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      (Philox4x32<10>({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0})),
      (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  EXPECT_EQ((Philox4x32<7>({0, 0, 0, 0}, {0, 0})),
            (Words{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}));
}

TEST(CounterRandom, EachPartOfTheKeyMatters) {
  const CounterRandom base(1, RandomPurpose::kDropout, 2, 3);
  EXPECT_NE(base.Bits(0), CounterRandom(2, RandomPurpose::kDropout, 2, 3).Bits(0));
  EXPECT_NE(base.Bits(0), CounterRandom(1, RandomPurpose::kShuffle, 2, 3).Bits(0));
  EXPECT_NE(base.Bits(0), CounterRandom(1, RandomPurpose::kDropout, 3, 3).Bits(0));
  EXPECT_NE(base.Bits(0), CounterRandom(1, RandomPurpose::kDropout, 2, 4).Bits(0));
  EXPECT_NE(base.Bits(0), base.Bits(1));
  EXPECT_NE(base.Bits(0), base.Bits(uint64_t{4} << 32));
  EXPECT_EQ(base.Bits(6), base.Block(1)[2]);
}

TEST(CounterRandom, DistributionsHaveTheirMoments) {
  const CounterRandom random(42, RandomPurpose::kTest, 0, 0);
  constexpr int kDraws = 100000;
  double uniform_sum = 0, normal_sum = 0, normal_squares = 0;
  std::array<int, 7> below = {};
  for (int i = 0; i < kDraws; ++i) {
    const float u = random.Uniform(i);
    ASSERT_GE(u, 0.0f);
    ASSERT_LT(u, 1.0f);
    uniform_sum += u;
    const double n = random.Normal(i);
    normal_sum += n;
    normal_squares += n * n;
    ++below[random.Below(i, 7)];
  }
  // Five standard deviations of each mean.
  EXPECT_NEAR(uniform_sum / kDraws, 0.5, 5 * std::sqrt(1.0 / 12 / kDraws));
  EXPECT_NEAR(normal_sum / kDraws, 0.0, 5 * std::sqrt(1.0 / kDraws));
  EXPECT_NEAR(normal_squares / kDraws, 1.0, 5 * std::sqrt(2.0 / kDraws));
  for (int count : below) EXPECT_NEAR(count, kDraws / 7.0, 5 * std::sqrt(kDraws / 7.0));
}

// Workers on different processors draw the same weights: no bit may come from a C library.
TEST(CounterRandom, NormalDrawsAreTheSameBitsEverywhere) {
  const CounterRandom random(42, RandomPurpose::kTest, 0, 0);
  uint32_t hash = 2166136261u;  // FNV-1a over the draws' bytes, little-endian
  for (uint64_t e = 0; e < 100'000; ++e) {
    const double normal = random.Normal(e);
    const double u = (static_cast<double>(random.Bits(2 * e)) + 1.0) * 0x1p-32;
    const double v = static_cast<double>(random.Bits(2 * e + 1)) * 0x1p-32;
    const double expected = std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v);
    ASSERT_NEAR(normal, expected, 4e-15 * std::abs(expected)) << e;
    for (int byte = 0; byte < 8; ++byte) {
      hash = (hash ^ (std::bit_cast<uint64_t>(normal) >> (8 * byte) & 255)) * 16777619u;
    }
  }
  EXPECT_EQ(hash, 3551459131u);
}

}  // namespace
}  // namespace runnel::random_test
