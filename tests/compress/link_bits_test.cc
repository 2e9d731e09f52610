// The codecs that --bits bandwidth chooses among.

#include "compress/link_bits.h"

#include <cmath>

#include "compress/codec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/codecs.h"

namespace runnel::link_bits_test {
namespace {

constexpr BitSwitches kHar = {.forward_3_bits = 60, .forward_4_bits = 160, .backward_4_bits = 120};

double ErrorOf(const CodecId& codec, Direction direction) {
  return FindCodec(codec).value()->ErrorOf(codec, direction);
}

TEST(LinkBits, ChoicesAscendAndEndWithIdentity) {
  const auto choices = BitsChoices("mbq").value();
  ASSERT_EQ(choices.size(), 8u);
  for (size_t i = 1; i < choices.size(); ++i) {
    EXPECT_GT(choices[i].bits, choices[i - 1].bits);
    for (const Direction direction : kDirections) {
      EXPECT_LT(ErrorOf(choices[i].codec, direction), ErrorOf(choices[i - 1].codec, direction));
    }
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
  EXPECT_EQ(ErrorOf(choices.back().codec, Direction::kForward), 0);
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
  for (const Direction direction : kDirections) {
    const auto error = [direction](const std::string& codecs, int64_t epochs) {
      return MeanTensorError(Codecs(codecs), direction, epochs);
    };
    const auto mean = [&error](const std::string& codecs, int64_t epochs) {
      return error(codecs, epochs).value().apart;
    };
    const double two = ErrorOf(OneCodec("hadamard:2"), direction);
    const double three = ErrorOf(OneCodec("hadamard:3"), direction);
    EXPECT_EQ(*error("identity", 10), TensorError());
    EXPECT_EQ(*error("int8", 10), TensorError());
    EXPECT_DOUBLE_EQ(mean("hadamard:2", 10), two);
    EXPECT_NEAR(mean("0:hadamard:2,5:hadamard:3", 10), (two + three) / 2, 1e-12);
    EXPECT_NEAR(error("0:hadamard:2,5:hadamard:3", 10)->root,
                (std::sqrt(two) + std::sqrt(three)) / 2, 1e-12);
    EXPECT_DOUBLE_EQ(mean("0:hadamard:2,5:hadamard:3", 5), two);
    EXPECT_FALSE(error("0:hadamard:2,3:zip", 5).ok());
    // What mbq clips is alike from tensor to tensor.
    EXPECT_EQ(mean("mbq:3", 1), 0);
    EXPECT_DOUBLE_EQ(error("mbq:3", 1)->alike, ErrorOf(OneCodec("mbq:3"), direction));
    EXPECT_NEAR(error("0:mbq:3,5:hadamard:3", 10)->apart, three / 2, 1e-12);
  }
}

// Gradients of 2 bits that are rounded at random lose most of a tensor.
TEST(LinkBits, GradientsLoseMoreThanActivations) {
  const CodecId hadamard = OneCodec("hadamard:2"), eden = OneCodec("eden:2");
  EXPECT_GT(ErrorOf(hadamard, Direction::kBackward), 8 * ErrorOf(hadamard, Direction::kForward));
  EXPECT_GT(ErrorOf(hadamard, Direction::kBackward), 5 * ErrorOf(eden, Direction::kBackward));
}

}  // namespace
}  // namespace runnel::link_bits_test
