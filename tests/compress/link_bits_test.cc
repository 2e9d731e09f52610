// The choice of bits by bandwidth, beside a slow one that looks at every codec twice.

#include "compress/link_bits.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/random.h"

namespace runnel {
namespace {

const Shape kShape = {64, 64, 124};  // har_cnn's conv2 at batch 64: 1984 KB

std::string Chosen(double mbps, double seconds, double min_bits, double codec_seconds = 0) {
  const auto choices = CodecChoices("hadamard", kShape).value();
  return choices[ChooseCodec(choices, {mbps, seconds, codec_seconds}, min_bits)].codec;
}

TEST(LinkBits, ChoicesAscendAndEndWithIdentity) {
  const auto choices = CodecChoices("mbq", kShape).value();
  ASSERT_EQ(choices.size(), 8u);
  for (size_t i = 1; i < choices.size(); ++i) {
    EXPECT_GT(choices[i].bits, choices[i - 1].bits);
    EXPECT_GT(choices[i].payload_bytes, choices[i - 1].payload_bytes);
    EXPECT_LT(choices[i].relative_error, choices[i - 1].relative_error);
  }
  EXPECT_EQ(choices.back().codec, "identity");
  EXPECT_EQ(CodecChoices("stochastic", kShape)->size(), 3u);
  EXPECT_FALSE(CodecChoices("int8", kShape).ok());
  EXPECT_FALSE(CodecChoices("zip", kShape).ok());
}

// 1984 KB in FP32 are 16.25 Mbit, 2 bits about 1.08 Mbit.
TEST(LinkBits, TheLinkIsNotTheSlowestPartWhileAccuracyAllows) {
  EXPECT_EQ(Chosen(100, 0.5, 2), "identity");
  EXPECT_EQ(Chosen(0, 0.001, 2), "identity");  // no limit
  EXPECT_EQ(Chosen(10, 0.5, 2), "hadamard:8");
  EXPECT_EQ(Chosen(4, 0.5, 2), "hadamard:3");
  EXPECT_EQ(Chosen(2.5, 0.5, 2), "hadamard:2");
  EXPECT_EQ(Chosen(0.25, 0.5, 2), "hadamard:2");     // too slow for all: the fewest bytes
  EXPECT_EQ(Chosen(2.5, 0.5, 4), "hadamard:4");      // accuracy's floor comes first
  EXPECT_EQ(Chosen(10, 0.5, 33), "hadamard:8");      // a floor that nothing holds
  EXPECT_EQ(Chosen(10, 0.5, 2, 0.6), "hadamard:2");  // a device too slow to encode in time
  EXPECT_EQ(Chosen(100, 0.5, 2, 0.6), "identity");
}

TEST(LinkBits, IsTheBestOfAllThatFit) {
  const CounterRandom random(7, RandomPurpose::kTest, 0, 0);
  for (uint64_t i = 0; i < 500; ++i) {
    const auto choices = CodecChoices("tile", kShape).value();
    const LinkTime link{std::exp2(12.0 * random.Uniform(4 * i) - 4), random.Uniform(4 * i + 1),
                        0.3 * random.Uniform(4 * i + 2)};
    const double min_bits = random.Below(4 * i + 3, 9);
    const CodecChoice& chosen = choices[ChooseCodec(choices, link, min_bits)];
    EXPECT_GE(chosen.bits, min_bits);
    const auto fits = [&link](const CodecChoice& choice) {
      const double bits = 8.0 * static_cast<double>(choice.payload_bytes.value() + 64);
      return bits / 1e6 / link.megabits_per_second <= link.available_seconds &&
             (choice.codec == "identity" || link.codec_seconds <= link.available_seconds);
    };
    for (const CodecChoice& other : choices) {
      if (other.bits < min_bits) continue;
      if (fits(chosen)) {
        EXPECT_FALSE(fits(other) && other.relative_error < chosen.relative_error) << i;
      } else {
        EXPECT_FALSE(fits(other)) << i;
        EXPECT_GE(other.payload_bytes, chosen.payload_bytes) << i;
      }
    }
  }
}

TEST(LinkBits, FloorsFollowThePapersSchedules) {
  EXPECT_EQ(MinBits("har_cnn", true, 0), 2);
  EXPECT_EQ(MinBits("har_cnn", true, 0.31), 3);
  EXPECT_EQ(MinBits("har_cnn", true, 0.81), 4);
  EXPECT_EQ(MinBits("mobilenet_v2", true, 0.64), 2);
  EXPECT_EQ(MinBits("mobilenet_v2", true, 1), 4);
  EXPECT_EQ(MinBits("har_cnn", false, 0), 4);
}

}  // namespace
}  // namespace runnel
