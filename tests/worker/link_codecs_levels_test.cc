// Codec `recipe`: the bits of a micro-batch's level, and frames that come before the level is known.

#include <algorithm>
#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/random.h"
#include "proto/base/training/dials/precision.h"
#include "tests/base/codecs.h"
#include "worker/link_codecs.h"

namespace runnel::link_codecs_levels_test {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSeed = 5;
const Shape kShape = {4, 3, 8, 8};

std::unique_ptr<LinkCodecs> End(int stage, const char* recipe, const char* precision,
                                std::vector<TrainingChange> changes = {}) {
  Plan plan;
  plan.stages = {{{Seat{DeviceId(0)}}, 0, 0, 2}, {{Seat{DeviceId(1)}}, 1, 1, 1}};
  plan.links = {{Codecs("recipe"), Codecs("recipe")}};
  TrainingSettings training;
  training.precision = precision;
  LinkRun run = {kSeed, 0, LinkLevels::Of(recipe, training, {}).value(), std::move(changes)};
  return LinkCodecs::Create(plan, stage, std::move(run)).value();
}

MicroBatch At(int64_t step) {
  MicroBatch place;
  place.sequence = Sequence(step);
  place.step = step;
  return place;
}

// Bits of an element, header left out.
int64_t BitsSent(const LinkCodecs& end, Direction direction, int64_t step) {
  return (end.EncodedBytes(direction, At(step), kShape) - 12) * 8 / kShape.elements();
}

TEST(LinkCodecsLevels, BitsFollowTheLevelOfTheMicroBatch) {
  const auto down = End(0, "sbm:8,8,8", "pfq:3,4,8/6,6,16");
  const auto up = End(1, "sbm:8,8,8", "pfq:3,4,8/6,6,16");
  EXPECT_EQ(BitsSent(*down, Direction::kForward, 9), 3);
  EXPECT_EQ(BitsSent(*up, Direction::kBackward, 9), 6);
  down->ChangeTraining(ChangeOfPrecision(5, 2));
  up->ChangeTraining(ChangeOfPrecision(5, 2));
  EXPECT_EQ(BitsSent(*down, Direction::kForward, 4), 3);
  EXPECT_EQ(BitsSent(*down, Direction::kForward, 5), 8);
  EXPECT_EQ(BitsSent(*up, Direction::kBackward, 5), 16);
  // What a receiver has room for does not depend on the level.
  EXPECT_EQ(up->MaxReceivedBytes(Direction::kForward, kShape), 12 + kShape.elements());
  EXPECT_EQ(down->MaxReceivedBytes(Direction::kBackward, kShape), 12 + 2 * kShape.elements());
}

TEST(LinkCodecsLevels, WithoutALevelItIsTheRecipesOwn) {
  const auto down = End(0, "dorefa:8,4,32", "recipe");
  EXPECT_EQ(BitsSent(*down, Direction::kForward, 0), 4);
  const auto up = End(1, "dorefa:8,4,32", "recipe");
  EXPECT_EQ(up->EncodedBytes(Direction::kBackward, At(0), kShape), 4 * kShape.elements())
      << "in full precision";
  const auto cycle = End(0, "sbm:8,8,8", "cpt:3,6/8");
  EXPECT_EQ(BitsSent(*cycle, Direction::kForward, 0), 3);
  EXPECT_EQ(cycle->MaxReceivedBytes(Direction::kBackward, kShape), 12 + kShape.elements());
}

TEST(LinkCodecsLevels, AFrameThatComesBeforeItsLevelIsDecoded) {
  const auto sender = End(0, "sbm:8,8,8", "pfq:3,4/6,6", {ChangeOfPrecision(5, 1)});
  const auto receiver = End(1, "sbm:8,8,8", "pfq:3,4/6,6");
  const CounterRandom random(kSeed, RandomPurpose::kTest, 0, 0);
  std::vector<float> x(static_cast<size_t>(kShape.elements()));
  for (size_t e = 0; e < x.size(); ++e) x[e] = static_cast<float>(random.Below(e, 16)) / 15.0f;
  std::vector<std::byte> payload(
      static_cast<size_t>(sender->EncodedBytes(Direction::kForward, At(5), kShape)));
  std::vector<float> out(x.size());
  const auto bytes = [](auto& floats) {
    return absl::MakeSpan(reinterpret_cast<std::byte*>(floats.data()), 4 * floats.size());
  };
  ASSERT_TRUE(
      sender->Encode(Direction::kForward, At(5), kShape, bytes(x), absl::MakeSpan(payload)).ok());
  const absl::Status decoded =
      receiver->Decode(Direction::kForward, At(5), payload, kShape, bytes(out));
  ASSERT_TRUE(decoded.ok()) << decoded;
  for (size_t e = 0; e < x.size(); ++e) EXPECT_NEAR(out[e], x[e], 1e-6) << e;
  // Bits that are not those of the size, and a size that no level has.
  payload[0] = std::byte{3};
  EXPECT_THAT(
      std::string(
          receiver->Decode(Direction::kForward, At(5), payload, kShape, bytes(out)).message()),
      HasSubstr("grid:4: the payload is of another codec"));
  payload.push_back(std::byte{0});
  EXPECT_THAT(
      std::string(
          receiver->Decode(Direction::kForward, At(5), payload, kShape, bytes(out)).message()),
      HasSubstr("as at no level of the run"));
}

TEST(LinkCodecsLevels, APrecisionThatIsNoneIsAnError) {
  TrainingSettings training;
  training.precision = "fixed:99/8";
  EXPECT_EQ(LinkLevels::Of("sbm:8,8,8", training, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(LinkLevels::Of("fp32", training, {}).ok()) << "has no levels";
}

// Of few elements payloads of two levels have the same size.
TEST(LinkCodecsLevels, FramesOfOneSizeAreDecodedByTheBitsThatTheySay) {
  struct Case {
    int64_t elements;
    const char* precision;
    Direction direction;
  };
  for (const Case& one :
       {Case{7, "pfq:7,8/8,8", Direction::kForward}, Case{14, "pfq:7,8/8,8", Direction::kForward},
        Case{6, "pfq:6,8/8,8", Direction::kForward}, Case{14, "pfq:8,8/7,8", Direction::kBackward},
        Case{5, "pfq:8,8/9,16", Direction::kBackward}}) {
    const bool forward = one.direction == Direction::kForward;
    const Shape shape = {1, one.elements};
    for (const int64_t step : {4, 5}) {
      const auto sender =
          End(forward ? 0 : 1, "sbm:8,8,8", one.precision, {ChangeOfPrecision(5, 1)});
      const auto receiver = End(forward ? 1 : 0, "sbm:8,8,8", one.precision);
      std::vector<float> x, out(static_cast<size_t>(one.elements));
      for (int64_t e = 0; e < one.elements; ++e) x.push_back(static_cast<float>(e * e));
      std::vector<std::byte> payload(
          static_cast<size_t>(sender->EncodedBytes(one.direction, At(step), shape)));
      const auto bytes = [](auto& floats) {
        return absl::MakeSpan(reinterpret_cast<std::byte*>(floats.data()), 4 * floats.size());
      };
      ASSERT_TRUE(
          sender->Encode(one.direction, At(step), shape, bytes(x), absl::MakeSpan(payload)).ok());
      const absl::Status decoded =
          receiver->Decode(one.direction, At(step), payload, shape, bytes(out));
      ASSERT_TRUE(decoded.ok()) << one.precision << ", " << one.elements << ": " << decoded;
      for (size_t e = 0; e < x.size(); ++e) EXPECT_NEAR(out[e], x[e], x.back() / 63) << e;
      payload[0] = std::byte{77};
      EXPECT_THAT(
          std::string(
              receiver->Decode(one.direction, At(step), payload, shape, bytes(out)).message()),
          HasSubstr("the payload is of another codec"));
    }
  }
}

}  // namespace
}  // namespace runnel::link_codecs_levels_test
