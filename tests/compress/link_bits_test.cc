// The codecs that --bits bandwidth chooses among.

#include "compress/link_bits.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/codecs.h"

namespace runnel {
namespace {

constexpr BitSwitches kHar = {.forward_3_bits = 60, .forward_4_bits = 160, .backward_4_bits = 120};

TEST(LinkBits, ChoicesAscendAndEndWithIdentity) {
  const auto choices = BitsChoices("mbq").value();
  ASSERT_EQ(choices.size(), 8u);
  for (size_t i = 1; i < choices.size(); ++i) {
    EXPECT_GT(choices[i].bits, choices[i - 1].bits);
    EXPECT_LT(choices[i].relative_error, choices[i - 1].relative_error);
  }
  EXPECT_EQ(choices.back().codec.text(), "identity");
  EXPECT_EQ(BitsChoices("stochastic")->size(), 3u);
  EXPECT_FALSE(BitsChoices("int8").ok());
  EXPECT_FALSE(BitsChoices("zip").ok());
}

TEST(LinkBits, BetweenIntegerStagesInt8LosesNothing) {
  const auto choices = BitsChoices("hadamard", OneCodec("int8")).value();
  ASSERT_EQ(choices.size(), 7u);
  EXPECT_EQ(choices[5].codec.text(), "hadamard:7");
  EXPECT_EQ(choices.back().codec.text(), "int8");
  EXPECT_EQ(choices.back().bits, 8);
  EXPECT_EQ(choices.back().relative_error, 0);
  EXPECT_EQ(BitsChoices("stochastic", OneCodec("int8"))->size(), 2u);
  EXPECT_FALSE(BitsChoices("hadamard", OneCodec("mbq:4")).ok());
  EXPECT_FALSE(BitsChoices("lowrank").ok());
  EXPECT_FALSE(CodecsOfBits("lowrank", {{0, 4}}).ok());
}

TEST(LinkBits, FloorsFollowThePapersSchedules) {
  using Steps = std::vector<BitStep>;
  EXPECT_EQ(MinBitsByEpoch(kHar, Direction::kForward, 1000), (Steps{{0, 2}, {300, 3}, {800, 4}}));
  EXPECT_EQ(MinBitsByEpoch({}, Direction::kForward, 1000), (Steps{{0, 2}, {650, 3}, {875, 4}}));
  EXPECT_EQ(MinBitsByEpoch(kHar, Direction::kBackward, 1000), (Steps{{0, 4}}));
}

TEST(LinkBits, SchedulesHaveTheFloorInEveryPhase) {
  const auto choices = BitsChoices("mbq").value();
  const auto down = MinBitsByEpoch(kHar, Direction::kForward, 200);
  EXPECT_EQ(CodecsWithBits(choices, 2, down).text(), "0:mbq:2,60:mbq:3,160:mbq:4");
  EXPECT_EQ(CodecsWithBits(choices, 2, MinBitsByEpoch(kHar, Direction::kBackward, 200)).text(),
            "mbq:4");
  EXPECT_EQ(CodecsWithBits(choices, 2, MinBitsByEpoch({}, Direction::kForward, 1)).text(), "mbq:2");
  EXPECT_EQ(CodecsWithBits(choices, 3, down).text(), "0:mbq:3,160:mbq:4");
  EXPECT_EQ(CodecsWithBits(choices, 9, down).text(), "identity");
  // Of stochastic there are 4 and 8 only.
  EXPECT_EQ(CodecsWithBits(BitsChoices("stochastic").value(), 2, down).text(), "stochastic:4");
  EXPECT_EQ(CodecsWithBits(BitsChoices("stochastic", OneCodec("int8")).value(), 5, down).text(),
            "int8");
}

TEST(LinkBits, ErrorsAreMeansOverTheRun) {
  const auto choices = BitsChoices("mbq").value();
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
