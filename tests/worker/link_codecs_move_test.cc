// Encoders when a stage is made anew at a barrier: one whose codec stays goes on as if nothing had
// been, one whose codec changes is new.

#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/random.h"
#include "tests/base/codecs.h"
#include "tests/worker/seeded_links.h"
#include "worker/link_codecs.h"

namespace runnel::link_codecs_move_test {
namespace {

constexpr uint64_t kSeed = 5;
const Shape kShape = {4, 6, 16};

// Stages of one layer each.
Plan PlanWith(const std::vector<LinkPlan>& links) {
  Plan plan;
  for (int i = 0; i <= static_cast<int>(links.size()); ++i) {
    plan.stages.push_back({{Seat{DeviceId(i)}}, i, i, static_cast<int64_t>(links.size()) + 1 - i});
  }
  plan.links = links;
  return plan;
}

std::unique_ptr<LinkCodecs> Make(const Plan& plan, int stage) {
  return SeededLinks(plan, stage, kSeed).value();
}

// What micro-batch `sequence` is encoded to.
std::vector<std::byte> Encode(LinkCodecs& codecs, Direction direction, int64_t sequence) {
  const CounterRandom random(kSeed, RandomPurpose::kTest, static_cast<uint64_t>(direction),
                             static_cast<uint64_t>(sequence));
  std::vector<float> values(static_cast<size_t>(kShape.elements()));
  for (size_t e = 0; e < values.size(); ++e) values[e] = static_cast<float>(random.Normal(e));
  MicroBatch place;
  place.sequence = Sequence(sequence);
  place.first_in_epoch = sequence == 0;
  std::vector<std::byte> payload(
      static_cast<size_t>(codecs.EncodedBytes(direction, place, kShape)));
  EXPECT_TRUE(
      codecs.Encode(direction, place, kShape, ViewOf(values, kShape).bytes, absl::MakeSpan(payload))
          .ok());
  return payload;
}

constexpr int64_t kBarrier = 7;

TEST(LinkCodecsMove, AnEncoderIsNewOnlyWhereItsCodecChanges) {
  // Codecs with state: averages of levels, and what was lost before.
  const Plan before = PlanWith(
      {{Codecs("mbq:4"), Codecs("hadamard_ef:4")}, {Codecs("mbq:4"), Codecs("hadamard_ef:4")}});
  const Plan after = PlanWith(
      {{Codecs("mbq:4"), Codecs("hadamard_ef:4")}, {Codecs("mbq:3"), Codecs("hadamard_ef:4")}});
  const auto old = Make(before, 1);
  const auto whole = Make(before, 1);
  for (int64_t b = 0; b < kBarrier; ++b) {
    for (Direction direction : kDirections) {
      EXPECT_EQ(Encode(*old, direction, b), Encode(*whole, direction, b));
    }
  }
  const std::vector<EncoderState> states = old->SaveStates();
  const auto moved = Make(after, 1);
  ASSERT_TRUE(moved->RestoreStates(states).ok());
  const auto fresh = Make(after, 1);
  for (int64_t b = kBarrier; b < kBarrier + 5; ++b) {
    const auto backward = Encode(*moved, Direction::kBackward, b);
    EXPECT_EQ(backward, Encode(*whole, Direction::kBackward, b)) << b;  // as if nothing had been
    EXPECT_NE(backward, Encode(*fresh, Direction::kBackward, b)) << b;  // the state counts
    EXPECT_EQ(Encode(*moved, Direction::kForward, b), Encode(*fresh, Direction::kForward, b))
        << b;  // another codec: new
  }
}

// Also in an epoch's course, and when the schedule's later codecs change only.
TEST(LinkCodecsMove, AScheduleWithTheSameCodecNowKeepsIt) {
  const Plan before = PlanWith({{Codecs("mbq:4"), Codecs("identity")}});
  const Plan after = PlanWith({{Codecs("0:mbq:4,9:mbq:8"), Codecs("identity")}});
  const auto old = Make(before, 0);
  for (int64_t b = 0; b < kBarrier; ++b) Encode(*old, Direction::kForward, b);
  const auto moved = Make(after, 0);
  ASSERT_TRUE(moved->RestoreStates(old->SaveStates()).ok());
  for (int64_t b = kBarrier; b < kBarrier + 5; ++b) {
    EXPECT_EQ(Encode(*moved, Direction::kForward, b), Encode(*old, Direction::kForward, b));
  }
}

// Another device has the boundary now: the state belongs to the layer behind which it is.
TEST(LinkCodecsMove, TheStateFollowsItsBoundary) {
  const Plan before =
      PlanWith({{Codecs("mbq:4"), Codecs("identity")}, {Codecs("mbq:4"), Codecs("identity")}});
  Plan after = PlanWith({{Codecs("mbq:4"), Codecs("identity")}});
  after.stages[0].last_layer = 1;  // layers 0 and 1: the boundary behind layer 1 is its own now
  after.stages[1].first_layer = 2;
  after.stages[1].last_layer = 2;
  after.stages[0].cap = before.stages[1].cap;
  const auto first = Make(before, 0);
  const auto second = Make(before, 1);
  for (int64_t b = 0; b < kBarrier; ++b) {
    Encode(*first, Direction::kForward, b + 100);  // other tensors
    Encode(*second, Direction::kForward, b);
  }
  std::vector<EncoderState> states = first->SaveStates();
  for (const EncoderState& state : second->SaveStates()) states.push_back(state);
  const auto moved = Make(after, 0);
  ASSERT_TRUE(moved->RestoreStates(states).ok());
  EXPECT_EQ(Encode(*moved, Direction::kForward, kBarrier),
            Encode(*second, Direction::kForward, kBarrier));
}

}  // namespace
}  // namespace runnel::link_codecs_move_test
