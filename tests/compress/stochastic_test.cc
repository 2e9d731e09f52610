#include "compress/stochastic.h"

#include <cmath>
#include <cstring>

#include "compress/stochastic_rounding.h"
#include "gtest/gtest.h"
#include "tests/compress/test_tensors.h"

namespace runnel::stochastic_test {
namespace {

constexpr uint32_t kLastDraw = (1u << 24) - 1;

TEST(StochasticRounding, IsExactAtWholeQuotients) {
  for (int q = -127; q <= 127; ++q) {
    const float g = static_cast<float>(q) * 0.5f;
    EXPECT_EQ(StochasticQuantize(g, 0.5f, 127, 0), q);
    EXPECT_EQ(StochasticQuantize(g, 0.5f, 127, kLastDraw), q);
  }
}

// Against exact arithmetic: quotient and uniform as doubles, whose sum is exact here.
TEST(StochasticRounding, MatchesDoubleArithmetic) {
  constexpr uint64_t kSeed = 5150;
  const CounterRandom random(kSeed, RandomPurpose::kTest, 0, 0);
  for (uint64_t i = 0; i < 200000; ++i) {
    const auto g = static_cast<float>(random.Normal(i) * (i % 3 == 0 ? 1e-3 : 0.3));
    const auto scale = static_cast<float>(0.01 * (1 + random.Below(4 * i, 100)));
    const uint32_t u24 = random.Bits(1000000 + i) >> 8;
    const double exact = std::floor(static_cast<double>(g / scale) + u24 * 0x1p-24);
    const double clamped = std::max(-127.0, std::min(127.0, exact));
    ASSERT_EQ(StochasticQuantize(g, scale, 127, u24), clamped)
        << "seed " << kSeed << ", draw " << i << ", g " << g << ", scale " << scale;
  }
}

// -2^-30 is below 0: only a draw of exactly 0 rounds it down.
TEST(StochasticRounding, TinyNegativesRoundDownOnlyAtZero) {
  EXPECT_EQ(StochasticQuantize(-0x1p-30f, 1.0f, 127, 0), -1);
  EXPECT_EQ(StochasticQuantize(-0x1p-30f, 1.0f, 127, 1), 0);
  EXPECT_EQ(StochasticQuantize(-0x1p-140f, 0x1p-110f, 127, 0), -1);
}

TEST(Stochastic, DrawsAreTheOnesOfTheKey) {
  const std::vector<float> g = NormalTensor(1003, 9);
  const Shape shape = {1003};
  const EncoderKey key{42, RandomPurpose::kCodecBackward, 5};
  const auto codec = MakeStochasticCodec(8, BestCodecKernels());
  std::vector<std::byte> payload(codec->EncodedBytes(shape).value());
  ASSERT_TRUE(codec->NewEncoder(key)
                  ->Encode(ViewOf(g, shape), Sequence(77), false, absl::MakeSpan(payload))
                  .ok());
  float scale;
  std::memcpy(&scale, payload.data(), 4);
  const CounterRandom random(42, RandomPurpose::kCodecBackward, 5, 77);
  for (size_t e = 0; e < g.size(); ++e) {
    const auto u24 = static_cast<uint32_t>(random.Uniform(e) * 0x1p24f);
    ASSERT_EQ(static_cast<int8_t>(payload[4 + e]), StochasticQuantize(g[e], scale, 127, u24));
  }
}

TEST(Stochastic, TheLargestFloatsStayFinite) {
  const float top = std::numeric_limits<float>::max();
  const std::vector<float> g = {top, -top, top / 2, 0.0f};
  for (int bits : {4, 8}) {
    const auto codec = MakeStochasticCodec(bits, BestCodecKernels());
    std::vector<std::byte> payload(codec->EncodedBytes({4}).value());
    ASSERT_TRUE(codec->NewEncoder({})
                    ->Encode(ViewOf(g, {4}), Sequence(0), false, absl::MakeSpan(payload))
                    .ok());
    std::vector<float> out(4);
    ASSERT_TRUE(codec->Decode(payload, MutableViewOf(absl::MakeSpan(out), {4})).ok());
    for (float value : out) EXPECT_TRUE(std::isfinite(value));
    EXPECT_GT(out[0], 0.85f * top);
    EXPECT_LT(out[1], -0.85f * top);
    // Not even a code that no encoder sends overflows.
    payload[4] = bits == 8 ? std::byte{0x80} : std::byte{0x00};
    ASSERT_TRUE(codec->Decode(payload, MutableViewOf(absl::MakeSpan(out), {4})).ok());
    EXPECT_TRUE(std::isfinite(out[0]));
  }
}

}  // namespace
}  // namespace runnel::stochastic_test
