// The choice of bits by bandwidth, beside a slow one that looks at every codec twice.

#include "compress/link_bits.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/random.h"
#include "tests/base/codecs.h"

namespace runnel {
namespace {

constexpr BitSwitches kHar = {.forward_3_bits = 60, .forward_4_bits = 160, .backward_4_bits = 120};
const Shape kShape = {64, 64, 124};  // har_cnn's conv2 at batch 64: 1984 KB

std::string Chosen(double mbps, double seconds, double min_bits, double codec_seconds = 0) {
  const auto choices = BitsChoices("hadamard", kShape).value();
  return choices[ChooseCodec(choices, {LinkRate::Mbps(mbps), seconds, codec_seconds}, min_bits)]
      .codec.text();
}

TEST(LinkBits, ChoicesAscendAndEndWithIdentity) {
  const auto choices = BitsChoices("mbq", kShape).value();
  ASSERT_EQ(choices.size(), 8u);
  for (size_t i = 1; i < choices.size(); ++i) {
    EXPECT_GT(choices[i].bits, choices[i - 1].bits);
    EXPECT_GT(choices[i].payload_bytes, choices[i - 1].payload_bytes);
    EXPECT_LT(choices[i].relative_error, choices[i - 1].relative_error);
  }
  EXPECT_EQ(choices.back().codec.text(), "identity");
  EXPECT_EQ(BitsChoices("stochastic", kShape)->size(), 3u);
  EXPECT_FALSE(BitsChoices("int8", kShape).ok());
  EXPECT_FALSE(BitsChoices("zip", kShape).ok());
}

// 1984 KB in FP32 are 16.25 Mbit, 2 bits about 1.08 Mbit.
TEST(LinkBits, TheLinkIsNotTheSlowestPartWhileAccuracyAllows) {
  EXPECT_EQ(Chosen(100, 0.5, 2), "identity");
  EXPECT_EQ(Chosen(0, 0.001, 2), "identity");  // no limit
  EXPECT_EQ(Chosen(10, 0.5, 2), "hadamard:8");
  EXPECT_EQ(Chosen(4, 0.5, 2), "hadamard:3");
  EXPECT_EQ(Chosen(2.5, 0.5, 2), "hadamard:2");
  EXPECT_EQ(Chosen(0.25, 0.5, 2), "hadamard:2");  // too slow for all: the fewest bytes
  EXPECT_EQ(Chosen(2.5, 0.5, 4), "hadamard:4");   // accuracy's floor comes first
  EXPECT_EQ(Chosen(10, 0.5, 33), "hadamard:8");   // a floor that nothing holds
  EXPECT_EQ(Chosen(100, 0.5, 2, 0.6), "identity");
  // A device too slow to encode in time: what is sent beside the codec costs nothing more.
  EXPECT_EQ(Chosen(10, 0.5, 2, 0.6), "hadamard:8");
  EXPECT_EQ(Chosen(2, 0.5, 2, 0.6), "hadamard:2");
  EXPECT_EQ(Chosen(10, 0.5, 2, 5), "identity");  // 1.6 s instead of 5
}

TEST(LinkBits, BetweenIntegerStagesInt8LosesNothing) {
  const auto choices = BitsChoices("hadamard", kShape, OneCodec("int8")).value();
  ASSERT_EQ(choices.size(), 7u);
  EXPECT_EQ(choices[5].codec.text(), "hadamard:7");
  EXPECT_EQ(choices.back().codec.text(), "int8");
  EXPECT_EQ(choices.back().bits, 8);
  EXPECT_EQ(choices.back().relative_error, 0);
  EXPECT_EQ(BitsChoices("stochastic", kShape, OneCodec("int8"))->size(), 2u);
  EXPECT_FALSE(BitsChoices("hadamard", kShape, OneCodec("mbq:4")).ok());
}

// Also where a slow codec decides, and above any floor.
TEST(LinkBits, OnASlowerLinkThereAreNeverMoreBits) {
  const CounterRandom random(11, RandomPurpose::kTest, 0, 0);
  for (uint64_t i = 0; i < 200; ++i) {
    const auto choices = BitsChoices(i % 2 == 0 ? "hadamard" : "stochastic", kShape).value();
    const double seconds = random.Uniform(3 * i);
    const double codec_seconds = random.Uniform(3 * i + 1);
    const double min_bits = random.Below(3 * i + 2, 9);
    double last = 33;
    for (double mbps = 4096; mbps > 0.05; mbps *= 0.9) {
      const BitsChoice& chosen =
          choices[ChooseCodec(choices, {LinkRate::Mbps(mbps), seconds, codec_seconds}, min_bits)];
      EXPECT_LE(chosen.bits, last) << "case " << i << " at " << mbps;
      EXPECT_GE(chosen.bits, min_bits);
      last = chosen.bits;
    }
  }
}

TEST(LinkBits, IsTheBestOfAllThatFit) {
  const CounterRandom random(7, RandomPurpose::kTest, 0, 0);
  for (uint64_t i = 0; i < 500; ++i) {
    const auto choices = BitsChoices("tile", kShape).value();
    const LinkTime link{LinkRate::Mbps(std::exp2(12.0 * random.Uniform(4 * i) - 4)),
                        random.Uniform(4 * i + 1), 0.3 * random.Uniform(4 * i + 2)};
    const double min_bits = random.Below(4 * i + 3, 9);
    const BitsChoice& chosen = choices[ChooseCodec(choices, link, min_bits)];
    EXPECT_GE(chosen.bits, min_bits);
    const auto fits = [&link](const BitsChoice& choice) {
      const double bits = 8.0 * static_cast<double>(choice.payload_bytes.value() + 64);
      return bits / 1e6 / link.rate.mbps() <= link.available_seconds &&
             (choice.codec.is_identity() || link.codec_seconds <= link.available_seconds);
    };
    const auto seconds = [&link](const BitsChoice& choice) {
      const double bits = 8.0 * static_cast<double>(choice.payload_bytes.value() + 64);
      return std::max(bits / (link.rate.mbps() * 1e6),
                      choice.codec.is_identity() ? 0 : link.codec_seconds);
    };
    for (const BitsChoice& other : choices) {
      if (other.bits < min_bits) continue;
      if (fits(chosen)) {
        EXPECT_FALSE(fits(other) && other.relative_error < chosen.relative_error) << i;
      } else {
        EXPECT_FALSE(fits(other)) << i;
        EXPECT_GE(seconds(other), seconds(chosen)) << i;
      }
    }
  }
}

TEST(LinkBits, FloorsFollowThePapersSchedules) {
  using Steps = std::vector<BitStep>;
  EXPECT_EQ(MinBitsByEpoch(kHar, Direction::kForward, 1000), (Steps{{0, 2}, {300, 3}, {800, 4}}));
  EXPECT_EQ(MinBitsByEpoch({}, Direction::kForward, 1000), (Steps{{0, 2}, {650, 3}, {875, 4}}));
  EXPECT_EQ(MinBitsByEpoch(kHar, Direction::kBackward, 1000), (Steps{{0, 4}}));
}

TEST(LinkBits, SchedulesHaveTheFloorInEveryPhase) {
  const auto choices = BitsChoices("mbq", kShape).value();
  const auto down = MinBitsByEpoch(kHar, Direction::kForward, 200);
  EXPECT_EQ(CodecsInTime(choices, {LinkRate::Mbps(100), 0.5, 0}, down).text(), "identity");
  EXPECT_EQ(CodecsInTime(choices, {LinkRate::Mbps(10), 0.5, 0}, down).text(), "mbq:8");
  EXPECT_EQ(CodecsInTime(choices, {LinkRate::Mbps(4), 0.5, 0}, down).text(), "0:mbq:3,160:mbq:4");
  EXPECT_EQ(CodecsInTime(choices, {LinkRate::Mbps(0.25), 0.5, 0}, down).text(),
            "0:mbq:2,60:mbq:3,160:mbq:4");
  EXPECT_EQ(CodecsInTime(choices, {LinkRate::Mbps(0.25), 0.5, 0},
                         MinBitsByEpoch(kHar, Direction::kBackward, 200))
                .text(),
            "mbq:4");
  EXPECT_EQ(CodecsInTime(choices, {LinkRate::Mbps(0.25), 0.5, 0},
                         MinBitsByEpoch({}, Direction::kForward, 1))
                .text(),
            "mbq:2");
  EXPECT_EQ(CodecsWithBits(choices, 3, down).text(), "0:mbq:3,160:mbq:4");
  EXPECT_EQ(CodecsWithBits(choices, 9, down).text(), "identity");
  // Of stochastic there are 4 and 8 only.
  EXPECT_EQ(CodecsWithBits(BitsChoices("stochastic", kShape).value(), 2, down).text(),
            "stochastic:4");
  EXPECT_EQ(
      CodecsWithBits(BitsChoices("stochastic", kShape, OneCodec("int8")).value(), 5, down).text(),
      "int8");
}

TEST(LinkBits, ErrorsAreMeansOverTheRun) {
  const auto choices = BitsChoices("mbq", kShape).value();
  EXPECT_EQ(*MeanRelativeError(Codecs("identity"), 10), 0);
  EXPECT_EQ(*MeanRelativeError(Codecs("int8"), 10), 0);
  EXPECT_DOUBLE_EQ(*MeanRelativeError(Codecs("mbq:2"), 10), choices[0].relative_error);
  EXPECT_NEAR(*MeanRelativeError(Codecs("0:mbq:2,5:mbq:3"), 10),
              (choices[0].relative_error + choices[1].relative_error) / 2, 1e-12);
  EXPECT_DOUBLE_EQ(*MeanRelativeError(Codecs("0:mbq:2,5:mbq:3"), 5), choices[0].relative_error);
  EXPECT_FALSE(MeanRelativeError(Codecs("0:mbq:2,3:zip"), 5).ok());
}

}  // namespace
}  // namespace runnel
