// auto beside its candidates.

#include "compress/auto_codec.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "compress/typical_errors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/test_tensors.h"

namespace runnel::auto_codec_test {
namespace {

constexpr uint64_t kSeed = 31;
const Shape kShape = {16, 8, 40};
const auto kElements = static_cast<size_t>(kShape.elements());

using Payload = std::vector<std::byte>;

EncoderKey KeyOf(Direction direction) { return {kSeed, PurposeOf(direction), 3, 4}; }

Payload Encoded(Encoder& encoder, const Codec& codec, const std::vector<float>& x, int64_t sequence,
                bool restart = false) {
  Payload payload(codec.EncodedBytes(kShape).value());
  EXPECT_TRUE(
      encoder.Encode(ViewOf(x, kShape), Sequence(sequence), restart, absl::MakeSpan(payload)).ok());
  return payload;
}

double ErrorOf(const Codec& codec, const Payload& payload, const std::vector<float>& x) {
  std::vector<float> out(x.size());
  EXPECT_TRUE(codec.Decode(payload, MutableViewOf(absl::MakeSpan(out), kShape)).ok());
  double error = 0;
  for (size_t e = 0; e < x.size(); ++e) error += (double{x[e]} - out[e]) * (double{x[e]} - out[e]);
  return error;
}

// After ReLU; heavy tails; one value a sample; evenly spread.
std::vector<std::vector<float>> Kinds(int64_t sequence) {
  std::vector<float> steps(kElements), even(kElements);
  const CounterRandom random(kSeed, RandomPurpose::kTest, 9, static_cast<uint64_t>(sequence));
  for (size_t e = 0; e < kElements; ++e) {
    steps[e] = e % 320 == 0 ? 8.0f : 0.0f;
    even[e] = random.Uniform(e) - 0.5f;
  }
  return {TypicalTensor(Direction::kForward, kSeed, sequence, kElements),
          TypicalTensor(Direction::kBackward, kSeed, sequence, kElements), steps, even};
}

TEST(Auto, ErrsAsTheBestOfItsCandidates) {
  for (const int bits : {2, 3, 4, 8}) {
    const auto codec = MakeCodec(absl::StrCat("auto:", bits)).value();
    for (const Direction direction : kDirections) {
      std::vector<std::string> families = {"tile", "hadamard", "eden"};
      if (direction == Direction::kForward) families.push_back("mbq_c");
      size_t kind = 0;
      for (const std::vector<float>& x : Kinds(0)) {
        const auto encoder = codec->NewEncoder(KeyOf(direction));
        const Payload payload = Encoded(*encoder, *codec, x, 0, true);
        double least = std::numeric_limits<double>::infinity();
        for (const std::string& family : families) {
          const auto other = MakeCodec(absl::StrCat(family, ":", bits)).value();
          const Payload its = Encoded(*other->NewEncoder(KeyOf(direction)), *other, x, 0, true);
          least = std::min(least, ErrorOf(*other, its, x));
        }
        EXPECT_NEAR(ErrorOf(*codec, payload, x), least, 1e-12 * (1 + least))
            << bits << " bits, kind " << kind << ", " << ChosenFamily(payload);
        ++kind;
      }
    }
  }
}

TEST(Auto, ChoosesByTheTensor) {
  const auto codec = MakeCodec("auto:4").value();
  const auto chosen = [&](Direction direction, size_t kind) {
    const auto encoder = codec->NewEncoder(KeyOf(direction));
    return std::string(ChosenFamily(Encoded(*encoder, *codec, Kinds(0)[kind], 0, true)));
  };
  EXPECT_EQ(chosen(Direction::kForward, 0), "tile");
  EXPECT_EQ(chosen(Direction::kBackward, 1), "eden");
  for (size_t kind = 0; kind < 4; ++kind) EXPECT_NE(chosen(Direction::kBackward, kind), "mbq_c");
}

// At the hundredth tensor, or where an epoch begins, and not before.
TEST(Auto, MeasuresAgain) {
  const auto codec = MakeCodec("auto:4").value();
  const std::vector<float> relu = Kinds(0)[0], heavy = Kinds(0)[1];
  for (const bool restarts : {false, true}) {
    const auto encoder = codec->NewEncoder(KeyOf(Direction::kForward));
    EXPECT_EQ(ChosenFamily(Encoded(*encoder, *codec, relu, 0, true)), "tile");
    for (int64_t sequence = 1; sequence < 100; ++sequence)
      EXPECT_EQ(ChosenFamily(Encoded(*encoder, *codec, heavy, sequence)), "tile") << sequence;
    EXPECT_NE(ChosenFamily(Encoded(*encoder, *codec, heavy, 100, restarts)), "tile");
    EXPECT_NE(ChosenFamily(Encoded(*encoder, *codec, relu, 101)), "tile");
    EXPECT_EQ(ChosenFamily(Encoded(*encoder, *codec, relu, 102, true)), "tile");
  }
}

// Wherever a state is taken over, what comes is the same.
TEST(Auto, TheChoiceMovesWithTheState) {
  const auto codec = MakeCodec("auto:2").value();
  const auto encoder = codec->NewEncoder(KeyOf(Direction::kForward));
  for (int64_t sequence = 0; sequence < 230; ++sequence) {
    const size_t kind = static_cast<size_t>(sequence / 60) % 4;
    if (sequence % 37 == 0) {
      const auto heir = codec->NewEncoder(KeyOf(Direction::kForward));
      ASSERT_TRUE(heir->RestoreState(encoder->SaveState()).ok());
      const auto twin = codec->NewEncoder(KeyOf(Direction::kForward));
      ASSERT_TRUE(twin->RestoreState(encoder->SaveState()).ok());
      for (int64_t next = sequence; next < sequence + 110; next += 10)
        EXPECT_EQ(Encoded(*heir, *codec, Kinds(next)[kind], next),
                  Encoded(*twin, *codec, Kinds(next)[kind], next));
    }
    Encoded(*encoder, *codec, Kinds(sequence)[kind], sequence, sequence % 90 == 0);
  }
}

// mbq_c's clipped activations take no push further out, also just after another codec was chosen.
TEST(Auto, MasksWhatItsCandidateClipped) {
  const auto codec = MakeCodec("auto:2").value();
  const auto masked = MakeCodec("mbq_c:2").value();
  std::vector<float> x = Kinds(0)[0];
  const EncoderKey key = KeyOf(Direction::kForward);
  const auto encoder = codec->NewEncoder(key);
  const auto twin = masked->NewEncoder(key);
  ASSERT_TRUE(encoder->masks());
  ASSERT_FALSE(codec->NewEncoder(KeyOf(Direction::kBackward))->masks());
  ASSERT_EQ(ChosenFamily(Encoded(*encoder, *codec, x, 0, true)), "mbq_c");
  Encoded(*twin, *masked, x, 0, true);
  const std::vector<float> push(kElements, -1.0f);
  Encoded(*encoder, *codec, Kinds(1)[2], 1, true);
  std::vector<float> expected = push, gradient = push;
  ASSERT_TRUE(twin->MaskGradient(absl::MakeSpan(expected), Sequence(0)).ok());
  ASSERT_TRUE(encoder->MaskGradient(absl::MakeSpan(gradient), Sequence(0)).ok());
  EXPECT_EQ(gradient, expected);
  EXPECT_NE(gradient, push);
}

// Measured, but not sent.
TEST(Auto, MasksNothingOfWhatAnotherCodes) {
  const auto codec = MakeCodec("auto:2").value();
  const auto encoder = codec->NewEncoder(KeyOf(Direction::kForward));
  const std::vector<std::vector<float>> kinds = Kinds(0);
  for (int64_t sequence = 0; sequence < 100; ++sequence)
    ASSERT_EQ(ChosenFamily(Encoded(*encoder, *codec, kinds[0], sequence, sequence == 0)), "mbq_c");
  ASSERT_NE(ChosenFamily(Encoded(*encoder, *codec, kinds[2], 100)), "mbq_c");
  const std::vector<float> push(kElements, -1.0f);
  std::vector<float> gradient = push;
  ASSERT_TRUE(encoder->MaskGradient(absl::MakeSpan(gradient), Sequence(100)).ok());
  EXPECT_EQ(gradient, push);
}

TEST(Auto, RefusesOtherCandidatesAndBytesBehind) {
  const auto codec = MakeCodec("auto:4").value();
  const auto encoder = codec->NewEncoder(KeyOf(Direction::kForward));
  const Payload good = Encoded(*encoder, *codec, Kinds(0)[0], 0, true);
  std::vector<float> out(kElements);
  const auto refusal = [&](const Payload& payload) {
    return std::string(
        codec->Decode(payload, MutableViewOf(absl::MakeSpan(out), kShape)).message());
  };
  Payload bad = good;
  bad[0] = std::byte{4};
  EXPECT_THAT(refusal(bad), testing::HasSubstr("auto:4: there is no candidate 4"));
  bad = good;
  bad.back() = std::byte{1};
  EXPECT_THAT(refusal(bad), testing::HasSubstr("bytes behind the codes are not 0"));
}

}  // namespace
}  // namespace runnel::auto_codec_test
