#include "worker/stage/state/stash.h"

#include "gtest/gtest.h"
#include "kernels/backends/host/host_memory.h"
#include "proto/base/random.h"

namespace runnel::stash_test {
namespace {

MicroBatch Place(int64_t sequence) {
  MicroBatch place;
  place.sequence = Sequence(sequence);
  return place;
}

std::unique_ptr<Stash> MakeStash() { return Stash::Create(AllocateHostMemory, 64, 64).value(); }

int64_t& VersionAt(const Memory& weights) { return *reinterpret_cast<int64_t*>(weights.address()); }

void Step(Stash& stash, int64_t version) {
  VersionAt(*stash.NextVersion().value()) = version;
  stash.Publish();
}

TEST(Stash, BackwardSeesTheVersionOfItsForward) {
  // Against a plain model: random 1F1B orders with random caps.
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    const CounterRandom random(seed, RandomPurpose::kTest, 0, 0);
    const int64_t cap = 1 + random.Below(0, 6);
    const std::unique_ptr<Stash> made = MakeStash();
    Stash& stash = *made;
    std::deque<int64_t> expected;
    int64_t version = 0, sequence = 0;
    for (int i = 1; i < 200; ++i) {
      const bool forward = expected.empty() ||
                           (static_cast<int64_t>(expected.size()) < cap && random.Below(i, 2) == 0);
      if (forward) {
        const Stash::Entry& entry = *stash.Push(Place(sequence++)).value();
        EXPECT_EQ(VersionAt(stash.weights(entry)), version);
        expected.push_back(version);
      } else {
        EXPECT_EQ(VersionAt(stash.weights(stash.Oldest())), expected.front());
        stash.Pop();
        expected.pop_front();
        Step(stash, ++version);
      }
      EXPECT_EQ(VersionAt(stash.newest()), version);
      ASSERT_LE(stash.live_versions(), cap + 1);
    }
    // Memory does not grow with time: at most a version and a stash for each micro-batch in flight,
    // and one more version.
    EXPECT_LE(stash.held_bytes(), 64 * (cap + 1) + 64 * cap);
  }
}

TEST(Stash, FindsWhatIsInFlight) {
  const std::unique_ptr<Stash> made = MakeStash();
  Stash& stash = *made;
  for (int64_t sequence : {3, 4, 5}) ASSERT_TRUE(stash.Push(Place(sequence)).ok());
  stash.Pop();
  EXPECT_EQ(stash.Find(Sequence(3)), nullptr);
  EXPECT_EQ(stash.Find(Sequence(4)), &stash.Oldest());
  ASSERT_NE(stash.Find(Sequence(5)), nullptr);
  EXPECT_EQ(stash.Find(Sequence(5))->place.sequence, Sequence(5));
  EXPECT_EQ(stash.Find(Sequence(6)), nullptr);
}

TEST(Stash, StepsInPlaceWhenNobodyUsesTheNewest) {
  const std::unique_ptr<Stash> made = MakeStash();
  Stash& stash = *made;
  ASSERT_TRUE(stash.Push(Place(0)).ok());
  stash.Pop();
  EXPECT_EQ(stash.NextVersion().value(), &stash.newest());
  ASSERT_TRUE(stash.Push(Place(1)).ok());
  EXPECT_NE(stash.NextVersion().value(), &stash.newest());
}

TEST(Stash, WeightsOfItsOwnAreNobodyElses) {
  const std::unique_ptr<Stash> made = MakeStash();
  Stash& stash = *made;
  Step(stash, 1);
  const Stash::Entry& first = *stash.Push(Place(0)).value();
  const Stash::Entry& second = *stash.PushWithOwnWeights(Place(1)).value();
  VersionAt(stash.weights(second)) = 100;
  EXPECT_EQ(VersionAt(stash.weights(first)), 1);
  EXPECT_EQ(VersionAt(stash.newest()), 1);
  stash.Pop();
  Step(stash, 2);
  EXPECT_EQ(VersionAt(stash.newest()), 2);
  EXPECT_EQ(VersionAt(stash.weights(stash.Oldest())), 100);
  // They are no published version.
  EXPECT_EQ(stash.NewestVersions(1).size(), 1U);
  EXPECT_TRUE(stash.NewestVersions(2).empty());
}

TEST(Stash, NewestVersionsAreThoseWithoutAGap) {
  const std::unique_ptr<Stash> made = MakeStash();
  Stash& stash = *made;
  ASSERT_TRUE(stash.Push(Place(0)).ok());  // version 0
  ASSERT_TRUE(stash.Push(Place(1)).ok());  // version 0
  EXPECT_TRUE(stash.NewestVersions(2).empty());
  stash.Pop();
  Step(stash, 1);
  ASSERT_TRUE(stash.Push(Place(2)).ok());  // version 1
  const std::vector<Memory*> versions = stash.NewestVersions(2);
  ASSERT_EQ(versions.size(), 2U);
  EXPECT_EQ(VersionAt(*versions[0]), 1);
  EXPECT_EQ(VersionAt(*versions[1]), 0);
  stash.Pop();
  Step(stash, 2);
  Step(stash, 3);  // 2 is no more: 1 and 3 live
  EXPECT_EQ(stash.live_versions(), 2);
  EXPECT_TRUE(stash.NewestVersions(2).empty());
}

// A device may have no more memory: nothing has changed then.
TEST(Stash, RefusesWhatTheDeviceHasNoMemoryFor) {
  int left = 2;  // a version and one micro-batch's activations
  const std::unique_ptr<Stash> stash =
      Stash::Create(
          [&left](int64_t bytes) -> absl::StatusOr<std::unique_ptr<Memory>> {
            if (left-- == 0) return absl::ResourceExhaustedError("full");
            return AllocateHostMemory(bytes);
          },
          64, 64)
          .value();
  ASSERT_TRUE(stash->Push(Place(0)).ok());
  EXPECT_EQ(stash->Push(Place(1)).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(stash->in_flight(), 1);
  EXPECT_EQ(stash->live_versions(), 1);
}

}  // namespace
}  // namespace runnel::stash_test
